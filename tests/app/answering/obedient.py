"""A program that measures as it is told and writes down each job, and a question that is answered with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.keeping import OnProgress, say_nothing
from app.service import Crosspoint
from probes.measurement import METHOD
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import serving

T = TypeVar("T")
IRIS = Workload(parse_model("iris-mlp"), 64)
COLD = Workload(parse_model({"layers": [{"type": "linear", "out": 3}], "input_shape": [5]}), 64)


def obedient(
    heard: Path,
    *,
    of_more_sizes: str = "pass",
    of_a_trace: str = "pass",
    of_a_step: str = "pass",
    to_begin: float = 0.0,
    more: str = "",
    end: bool | str = False,
) -> tuple[str, ...]:
    """Writes down each job and measures at once: a step takes a millisecond and as much a sample, shared by threads.
    end: of a job, whether the process ends with it."""
    return serving(
        f"open({str(heard)!r}, 'a').write(line)",
        "if job['kind'] == 'trace':",
        f"    {of_a_trace}",
        "rows = []",
        "for size in job['batch_sizes']:",
        f"    if size != {IRIS.batch_size}: {of_more_sizes}",
        "    for plan in job['plans']:",
        "        s = (1 + size) * 1e-3 / plan['threads'] * (2 if plan['precision'] == 'bf16' else 1)",
        f"        known = dict(plan=plan, batch_size=size, data='resident', method={METHOD})",
        f"        {of_a_step}",
        "        step = dict(median=s, low=s * .99, high=s * 1.01, samples=[s] * 9)",
        "        rows.append(dict(known, outcome='ok', step=step, steps=90))",
        f"result = dict(measurements=rows, noise={{}}, to_begin_seconds={to_begin}{more})",
        f"say(event='result', job=job['job'], result=result, last=bool({end}))",
        f"if {end}: os._exit(0)",
    )


async def ask(crosspoint: Crosspoint, on_progress: OnProgress = say_nothing, **choices: Any) -> Recommendation:
    """With the trace of something else, so that no process has to make one."""
    survey = await crosspoint.survey()
    version = survey.software.torch.version if survey.software.torch else None
    await crosspoint.store.keep_trace(IRIS, version or "unknown", a_profile().networks[0].trace)
    return await crosspoint.recommend(Request(IRIS, **{"effort": "quick", **choices}), on_progress)


def jobs(heard: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in heard.read_text(encoding="utf-8").splitlines()]
