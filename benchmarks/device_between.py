"""How good is a device's step at a batch that did not run, told from batches that did? Replayed from what
benchmarks.device_truth measured and was kept, on any machine.

    python -m benchmarks.device_between benchmarks/results/2026-11-26-nvidia-h200-xeon-16-cores

Of each plan with three batches or more each is left out in turn: told from the nearest on both sides, and from each
other one alone. Which clock was the limit is not told, as a short measurement may not tell it. `alone` is what the
profile tells that knows of none. Truth and what it is told from ran in one process, so that intervals, which are also
of what another process takes, should hold more than four in five.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from app.advisor.recommendation import Interval
from app.advisor.time_model.measured import MeasuredTime
from app.advisor.time_model.predicted import PredictedTime, predict
from app.advisor.time_model.step_time import PlanTime
from benchmarks.device_steps import MOST_COPIED, Step, error, read, read_profile, read_steps
from benchmarks.device_table import HEAD, figures, say, trace_named
from probes.measurement import Measurement, Timing
from probes.profile import Profile
from probes.trace import Trace

KINDS = {"device": "far apart", "curve": "by fours"}


class LeftOut(NamedTuple):
    """One batch of a plan, told from others. alone: by the profile."""

    step: Step
    ran: tuple[int, ...]
    told: Interval
    alone: Interval

    @property
    def held(self) -> bool:
        return self.told.low <= self.step.seconds <= self.told.high

    @property
    def octaves(self) -> float:
        return min(abs(math.log2(self.step.batch_size / size)) for size in self.ran)


def leave_out(steps: Iterable[Step], profile: Profile, traces: Mapping[str, Trace]) -> list[LeftOut]:
    by_plan: dict[tuple[object, ...], dict[int, Step]] = defaultdict(dict)
    for step in steps:
        if step.workload in traces and not step.plan.is_cpu:
            by_plan[step.workload, step.plan.key][step.batch_size] = step
    return [row for ran in by_plan.values() for row in _of_plan(ran, profile, traces)]


def _of_plan(steps: Mapping[int, Step], profile: Profile, traces: Mapping[str, Trace]) -> Iterable[LeftOut]:
    first = next(iter(steps.values()))
    trace, has_copies = traces[first.workload], any(point.constant == "transfer" for point in profile.points)
    predicted = predict(profile, first.plan, trace, None)
    sizes = sorted(size for size in steps if has_copies or trace.input_bytes.at(size) <= MOST_COPIED)
    if predicted is None or len(sizes) < 3:
        return
    data = "pageable" if has_copies else "resident"  # next to nothing is copied there
    around = [((left, right), asked) for left, asked, right in zip(sizes, sizes[1:], sizes[2:], strict=False)]
    for ran, asked in (*around, *(((one,), other) for one, other in itertools.permutations(sizes, 2))):
        told = _tell(predicted, [steps[size] for size in ran], asked, data)
        alone = predicted.at(asked, data)
        if told is not None and alone is not None:
            yield LeftOut(steps[asked], ran, told, alone)


def _tell(predicted: PredictedTime, ran: Sequence[Step], batch_size: int, data: str) -> Interval | None:
    rows = {
        step.batch_size: Measurement(
            step.plan, step.batch_size, data, "ok", step=Timing.from_samples([step.seconds] * 5)
        )
        for step in ran
    }
    return PlanTime(ran[0].plan, MeasuredTime(rows, data), predicted, None).seconds(batch_size, data)


def print_table(rows: Sequence[LeftOut], kind: str) -> None:
    groups = {
        "from both sides": [row for row in rows if len(row.ran) == 2],
        "from one batch": [row for row in rows if len(row.ran) == 1],
        "from one batch, up to 2.5 octaves away": [row for row in rows if len(row.ran) == 1 and row.octaves <= 2.5],
    }
    for name, group in groups.items():
        for who in ("told", "alone") if group else ():
            errors = [error(getattr(row, who).median, row.step.seconds) for row in group]
            held = f"{statistics.fmean(row.held for row in group):.0%}" if who == "told" else ""
            say(f"| {KINDS[kind]}, {name}, {who} {figures(errors)} {held} | {len(group)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with truth.json.gz and profile_*.json.gz")
    options = parser.parse_args()
    truth, profile = read(options.folder, "truth"), read_profile(options.folder)
    named = {row["name"] for row in truth if row["kind"] in KINDS and row["runs"]}
    traces = trace_named(named)
    say(HEAD)
    for kind in KINDS:
        print_table(leave_out(read_steps(truth, kind), profile, traces), kind)


if __name__ == "__main__":
    main()
