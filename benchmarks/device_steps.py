"""Steps of a device that benchmarks.device_truth measured, with what a profile and a trace tell of each."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.advisor.memory_model.device_peaks import device_peaks
from app.advisor.memory_model.memory import estimate_memory
from app.advisor.recommendation import Interval
from app.advisor.time_model.experience import Experience
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.predicted import PredictedTime, predict
from app.advisor.time_model.step_estimate import StepEstimate
from app.advisor.time_model.step_time import PlanTime
from app.lessons import lesson_of, most_like, nearest_knot
from app.store.lessons import LessonRow
from benchmarks.rules_of_thumb import baselines
from benchmarks.workloads import twins
from probes.profile import Profile
from probes.signature import Signature, signature_of
from probes.trace import Trace
from probes.workload.description import Plan

Document = dict[str, Any]
Key = tuple[str, tuple[object, ...], int]  # workload, plan, batch size

# Profiles of the first card tell no copies (docs/estimates.md): steps there that copy more than this are not judged.
MOST_COPIED = 1_000_000
SIDES = {
    "issuing": (0.0, 0.5),
    "between": (0.5, 0.85),
    "computing": (0.85, math.inf),
}  # by the device's share of a step
NOT_CLOCKED = "not clocked"  # the profiler saw no kernels: it was not there, or failed


@dataclass
class Step:
    """One plan and batch size. seconds: the median of its processes; device: of its kernels, None where none of them
    was clocked; memory: allocated and reserved at the peak, bytes."""

    workload: str
    family: str
    mode: str
    plan: Plan
    batch_size: int
    seconds: float
    device: float | None
    memory: tuple[int, int] | None
    estimates: dict[str, StepEstimate] = field(default_factory=dict)  # by who told it
    beside: dict[str, float] = field(default_factory=dict)  # by rule of thumb
    computing: float = 0.0  # told of its kernels
    copied: float = 0.0  # bytes of a batch
    allocated: int | None = None  # told
    reserved: int | None = None

    @property
    def told(self) -> dict[str, Interval]:
        return {who: estimate.seconds for who, estimate in self.estimates.items()}

    @property
    def side(self) -> str:
        if self.device is None:
            return NOT_CLOCKED
        share = self.device / self.seconds
        return next(name for name, (low, high) in SIDES.items() if low <= share < high)


def read(folder: Path, name: str) -> Any:
    return json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))


def read_profile(folder: Path) -> Profile:
    """All of its calibrations, pooled."""
    found = [Profile.from_json(json.loads(gzip.decompress(path.read_bytes()))) for path in folder.glob("profile_*.gz")]
    return pool(sorted(found, key=lambda profile: profile.created_at, reverse=True))


def read_steps(rows: Iterable[Document], kind: str) -> list[Step]:
    found: dict[Key, list[tuple[Document, Document]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == kind:
            for run in row["runs"]:
                found[row["name"], Plan.from_json(run["plan"]).key, run["batch_size"]].append((row, run))
    return [_step(same) for same in found.values()]


def _step(same: Sequence[tuple[Document, Document]]) -> Step:
    row, run = same[0]
    memory = (run["memory"]["allocated_bytes"], run["memory"]["reserved_bytes"])
    clocked = [seconds for _, each in same if (seconds := each["device_seconds"]) is not None]
    return Step(
        row["name"],
        row["family"],
        row["mode"],
        Plan.from_json(run["plan"]),
        run["batch_size"],
        statistics.median(each["seconds"]["median"] for _, each in same),
        statistics.median(clocked) if clocked else None,
        memory if memory[0] else None,
    )


def tell(steps: Sequence[Step], profile: Profile, traces: Mapping[str, Trace]) -> list[Step]:
    """Those that something can be told of, with what is told."""
    most_copied = math.inf if any(point.constant == "transfer" for point in profile.points) else MOST_COPIED
    predicted = {}
    for step in steps:
        trace = traces.get(step.workload)
        found = predict(profile, step.plan, trace, None) if trace is not None else None
        if trace is not None and found is not None and trace.input_bytes.at(step.batch_size) <= most_copied:
            predicted[id(step)] = found
            _tell(step, found, profile, trace)
    told = [step for step in steps if id(step) in predicted]
    lessons = lessons_of(told, traces)
    heard: dict[tuple[str, int], Experience] = {}
    for step in told:
        asked = step.workload, nearest_knot(step.batch_size)
        if asked not in heard:
            heard[asked] = experience_for(lessons, *asked, traces[step.workload])
        _estimate(step, "learned", predicted[id(step)], heard[asked])
    return told


def lessons_of(steps: Iterable[Step], traces: Mapping[str, Trace]) -> list[LessonRow]:
    """What a service would have kept of these, told by `instant`."""
    signatures: dict[tuple[str, int], Signature | None] = {}  # plans of one step share it
    found = []
    for step in steps:
        trace, asked = traces[step.workload], (step.workload, step.batch_size)
        if asked not in signatures:
            signatures[asked] = signature_of(trace, step.batch_size)
        if (signature := signatures[asked]) is not None:
            found.append(_lesson(step, trace, signature))
    return found


def experience_for(rows: Iterable[LessonRow], workload: str, batch_size: int, trace: Trace) -> Experience:
    """As a service has it that measured the other models: of the nearest workloads alone."""
    near = most_like(of_other_models(rows, workload), trace, batch_size)
    return Experience(tuple(lesson for row in near if (lesson := lesson_of(row)) is not None), trace)


def of_other_models(rows: Iterable[LessonRow], workload: str) -> list[LessonRow]:
    """Without those of the same network in another mode, which would tell of itself."""
    return [row for row in rows if row.workload_key not in twins(workload)]


def _estimate(step: Step, who: str, predicted: PredictedTime, experience: Experience | None) -> None:
    """As the product makes it of a plan that was not measured."""
    time = PlanTime(step.plan, None, predicted, None, experience=experience)
    # without copies in the profile only steps are told that copy next to nothing (MOST_COPIED)
    estimate = time.at(step.batch_size, "pageable") or time.at(step.batch_size, "resident")
    assert estimate is not None
    step.estimates[who] = estimate


def _tell(step: Step, predicted: PredictedTime, profile: Profile, trace: Trace) -> None:
    _estimate(step, "instant", predicted, None)
    if step.plan.is_cpu:
        return
    step.copied = trace.input_bytes.at(step.batch_size)
    step.computing = predicted.breakdown(step.batch_size, "resident").compute or 0.0
    beside = baselines(profile, step.plan, trace.on(cpu=False), step.batch_size)
    step.beside = {name: seconds for name, seconds in beside.items() if seconds}
    if device_peaks(trace.on(cpu=False), step.plan.precision, step.batch_size) is not None:
        parts = estimate_memory(None, profile, trace, (), step.plan).parts(step.batch_size)
        step.allocated, step.reserved = parts.allocated_peak_bytes, parts.reserved_peak_bytes


def _lesson(step: Step, trace: Trace, signature: Signature) -> LessonRow:
    key = (step.workload, step.mode, trace.optimizer, trace.torch_version)
    told = step.told["instant"].median
    return LessonRow(
        step.workload, key, None, step.plan, "pageable", step.batch_size, step.seconds, signature, told, ""
    )


def error(told: float, true: float) -> float:
    return math.log(told / true)
