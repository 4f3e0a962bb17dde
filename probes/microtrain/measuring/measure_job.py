"""What is to be measured: the document of a job of kind `measure`, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probes.bounds import MAX_BATCH_SIZE, MAX_TIME_LIMIT_SECONDS
from probes.checked import is_whole
from probes.microtrain.failures import Failure
from probes.microtrain.plans import Cores, read_cores, sensible_plans
from probes.workload.description import Plan, Workload

Document = dict[str, Any]
MAX_PLANS = 256


@dataclass(frozen=True)
class MeasureJob:
    workload: Workload
    plans: tuple[Plan, ...]
    batch_sizes: tuple[int, ...]
    seconds: float
    memory_limit_bytes: int | None
    cores: Cores = field(default_factory=read_cores)
    enough_seconds: float | None = None  # later only plans with few samples run; None: all do
    apart: bool = False  # there is room for a process for each plan on the CPU, where these can be forked
    # By threads, seconds of fixed work on calm cores, as known before (probes.microtrain.quiet.pace); empty: none.
    paces: Mapping[int, float] = field(default_factory=dict)
    expected_seconds: tuple[float | None, ...] = ()  # of a step under each plan, as foretold; empty: nothing is
    # Of what a step trains, as a trace tells them; None: nobody knows.
    gradient_bytes: int | None = None
    optimizer_bytes: int | None = None


def parse_measure_job(job: Document, workload: Workload) -> MeasureJob:
    """Raises Failure `invalid-job`. No plans: every sensible one here; no batch sizes: the workload's own."""
    cores = read_cores()
    try:
        plans = tuple(_read_plan(row) for row in job.get("plans") or ()) or sensible_plans(cores)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Failure("invalid-job", "plans is a list of documents with a device, a precision and threads.") from None
    sizes = _read_batch_sizes(job.get("batch_sizes"), workload)
    seconds, limit = job.get("seconds"), _read_bytes(job, "memory_limit_bytes")
    if not isinstance(seconds, int | float) or not 0 < seconds <= MAX_TIME_LIMIT_SECONDS:
        raise Failure("invalid-job", f"seconds is the time to spend, up to {MAX_TIME_LIMIT_SECONDS:.0f}.")
    enough = job.get("enough_seconds")
    if enough is not None and not (isinstance(enough, int | float) and 0 < enough <= MAX_TIME_LIMIT_SECONDS):
        raise Failure("invalid-job", "enough_seconds is the time after which plans with samples rest, or null.")
    expected = _read_expected(job.get("expected_seconds"), plans)
    distinct = tuple({plan.key: plan for plan in plans}.values())
    if len(distinct) > MAX_PLANS:
        raise Failure("invalid-job", f"A measurement compares at most {MAX_PLANS} plans.")
    apart = job.get("apart") is True
    foretold = tuple(expected.get(plan.key) for plan in distinct)
    paces = _read_paces(job.get("paces"))
    trained = (_read_bytes(job, "gradient_bytes"), _read_bytes(job, "optimizer_bytes"))
    return MeasureJob(workload, distinct, sizes, float(seconds), limit, cores, enough, apart, paces, foretold, *trained)


def _read_bytes(job: Document, name: str) -> int | None:
    """Raises Failure `invalid-job`."""
    value = job.get(name)
    if value is not None and not (is_whole(value) and value >= 0):
        raise Failure("invalid-job", f"{name} is a whole number of bytes, or null.")
    return value


def _read_batch_sizes(value: Any, workload: Workload) -> tuple[int, ...]:
    """Each once. Raises Failure `invalid-job`."""
    rows = [workload.batch_size] if value is None or value == [] else value
    if not isinstance(rows, list) or not all(is_whole(size) and 1 <= size <= MAX_BATCH_SIZE for size in rows):
        raise Failure("invalid-job", f"batch_sizes is a list of whole numbers from 1 to {MAX_BATCH_SIZE}.")
    return tuple(dict.fromkeys(rows))


def _read_expected(value: Any, plans: Sequence[Plan]) -> dict[object, float]:
    """By plan's key. Raises Failure `invalid-job`."""
    rows = [] if value is None else value
    fine = isinstance(rows, list) and len(rows) in (0, len(plans))
    if not fine or not all(row is None or (isinstance(row, int | float) and row > 0) for row in rows):
        raise Failure("invalid-job", "expected_seconds holds a time above 0, or null, for each of the plans.")
    return {plan.key: float(row) for plan, row in zip(plans, rows, strict=False) if row is not None}


def _read_paces(value: Any) -> dict[int, float]:
    """By threads. Raises Failure `invalid-job`."""
    rows = {} if value is None else value
    if not isinstance(rows, dict) or not all(
        isinstance(name, str) and name.isdecimal() and isinstance(pace, int | float) and pace > 0
        for name, pace in rows.items()
    ):
        raise Failure("invalid-job", "paces holds a time above 0 for numbers of threads, or is null.")
    return {int(name): float(pace) for name, pace in rows.items()}


def _read_plan(row: Any) -> Plan:
    """Raises KeyError, TypeError, ValueError or AttributeError."""
    plan = Plan.from_json(row)
    texts = (plan.device, plan.precision, *plan.environment, *plan.environment.values())
    if not all(isinstance(text, str) for text in texts) or not (plan.threads is None or is_whole(plan.threads)):
        raise TypeError("a plan of other types")
    return plan
