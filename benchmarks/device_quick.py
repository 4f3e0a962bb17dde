"""What a service tells on a machine with a device, by `instant` and by `quick`.

    python -m benchmarks.device_quick --output out --seconds 90     # out: the folder of benchmarks.device_truth
    python -m benchmarks.device_quick --output out --seconds 250 --only iris vit "image residual" --efforts thorough

Needs what the service needs. The last profile of the folder is taken for this machine's, nothing is learned. Asked are
some of benchmarks.workloads, one of each kind, at their largest batch size, each within its own time; by `thorough` a
minute each, with what torch.compile and channels-last gained. quick.json: what was told of each plan, which was named,
and seconds until then; written after each answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.advisor.request import EFFORTS, Effort, Request
from app.errors import CrosspointError
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.estimates import told
from benchmarks.workloads import WORKLOADS, Row
from probes.profile import Profile

Document = dict[str, Any]
ASKED = ("iris", "bert", "image residual", "lstm", "vit", "gpt2", "encoder", "dense huge", "tabular inference")


async def ask(crosspoint: Crosspoint, row: Row, efforts: Sequence[Effort]) -> Document:
    """One model at its largest batch size."""
    workload = row.workload(row.batch_sizes[-1])
    found: Document = {"name": row.name, "mode": row.mode, "batch_size": workload.batch_size}
    for effort in efforts:
        begun = time.monotonic()
        try:
            answer = await crosspoint.recommend(Request(workload, effort=effort))
            reasons = {reason.code: reason.text for reason in answer.reasons}
            found[effort] = {**told(answer), "reasons": reasons, "seconds": round(time.monotonic() - begun, 2)}
        except CrosspointError as error:
            found[effort] = {"error": str(error), "seconds": round(time.monotonic() - begun, 2)}
    return found


def describe(found: Document) -> str:
    parts = []
    for effort in EFFORTS:
        if effort not in found:
            continue
        said = found[effort]
        named = said.get("recommended")
        step = said["options"][named]["median"] if named in said.get("options", {}) else None
        took = "no time" if step is None else f"{step * 1e3:.3g} ms"
        parts.append(f"{effort}: {said.get('error') or named}, {took}, after {said['seconds']} s")
    return f"{found['name']} at {found['batch_size']}: " + "; ".join(parts)


async def run(output: Path, profile: Profile, names: list[str], efforts: Sequence[Effort], seconds: float) -> None:
    """Until the seconds are over; what is asked by then is answered."""
    end = time.monotonic() + seconds
    answers: list[Document] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_environment(data_dir=Path(folder), learning=False)
        async with Crosspoint(settings) as crosspoint:
            survey = await crosspoint.survey_for_plans()
            ours = replace(profile, fingerprint=survey.fingerprint)
            await crosspoint.store.keep_profile(ours, ours)
            for name in names:
                if time.monotonic() < end:
                    row = next(row for row in WORKLOADS if row.name == name)
                    answers.append(await ask(crosspoint, row, efforts))
                    sys.stderr.write(f"{describe(answers[-1])}\n")
                    (output / "quick.json").write_text(json.dumps(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder with a profile, and for quick.json")
    names = [row.name for row in WORKLOADS]
    only = {"choices": names, "default": list(ASKED), "help": "of the workloads these"}
    parser.add_argument("--only", nargs="+", metavar="NAME", **only)
    parser.add_argument("--seconds", type=float, default=90.0, help="after these nothing more is asked")
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=["instant", "quick"], help="in this order")
    options = parser.parse_args()
    profile = Profile.from_json(json.loads(sorted(options.output.glob("profile_*.json"))[-1].read_text()))
    asyncio.run(run(options.output, profile, options.only, options.efforts, options.seconds))


if __name__ == "__main__":
    main()
