"""What the advisor answers: the document of `POST /recommend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from probes.workload.description import Plan, Workload

SCHEMA_VERSION = "1"

Basis = Literal["measured", "probed", "predicted", "assumed"]
CrossoverKind = Literal["at", "always", "never", "undecided"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A time in seconds: the middle, and the range that holds it in about four cases of five."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A step's parts in seconds; None where it is not known."""

    transfer: float | None = None
    launch: float | None = None
    compute: float | None = None
    synchronize: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Bytes of one process that trains; None where it is not known.

    The first parts add up to peak_bytes. fragmentation: what a CPU's heap holds of what was freed. allocated_peak: what
    torch's allocator hands out at most; reserved_peak: what a GPU's allocator, in blocks, or a CPU's heap holds for
    that; process_peak: a CPU's whole process, libraries included.
    """

    weights_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None
    activations_bytes: int | None = None
    overhead_bytes: int | None = None
    fragmentation_bytes: int | None = None
    peak_bytes: int | None = None
    available_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One plan with what is known about it.

    fits: None when memory is not known. cannot_run: it was tried, for real or in tracing, and torch refused. note: why
    the time is unknown. crowded: others hold cores that it needs, so that its step may take far longer than its median.
    """

    plan: Plan
    fits: bool | None
    why_not: str | None
    basis: Basis | None
    step_seconds: Interval | None
    samples_per_second: float | None
    breakdown_seconds: Breakdown
    memory: MemoryParts
    max_batch_size: int | None
    note: str | None = None
    cannot_run: bool = False
    crowded: bool = False

    @property
    def judged_seconds(self) -> float | None:
        """Of a step, by which it has its place: at its worst where it is crowded. None where it has no time, or does
        not fit."""
        if self.fits is False or self.step_seconds is None:
            return None
        return self.step_seconds.high if self.crowded else self.step_seconds.median

    def to_json(self) -> dict[str, Any]:
        """By hand, as `asdict` copies every number twice, which took a third of an answer."""
        return {
            **self.plan.to_json(),
            "fits": self.fits,
            "why_not": self.why_not,
            "basis": self.basis,
            "step_seconds": fields_of(self.step_seconds) if self.step_seconds is not None else None,
            "samples_per_second": self.samples_per_second,
            "breakdown_seconds": fields_of(self.breakdown_seconds),
            "memory": fields_of(self.memory),
            "max_batch_size": self.max_batch_size,
            "note": self.note,
            "cannot_run": self.cannot_run,
            "crowded": self.crowded,
        }


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where `to` overtakes `start` as the batch grows (app.advisor.curves.crossover).

    batch_size: the likeliest batch, of kind `at` alone; low: from where on `start` is no longer certain to be faster;
    high: from where on `to` is certain to be. medians_cross_at: the likeliest batch, from which `to` has the lower
    median at all larger ones, whether or not the two can be told apart; None where it has not at the largest.
    looked_at: the smallest and the largest batch at which the two were compared. launch_bound_until: the batch from
    which the device of `to`, no longer the host, is the limit; None where the host still is at the largest that `to`
    can hold of those looked at (launch_bound_at_largest), or where that is not predicted (which is None then, too).
    """

    start: Plan
    to: Plan
    data: str
    kind: CrossoverKind
    batch_size: int | None
    low: int | None
    high: int | None
    launch_bound_until: int | None
    break_even_steps: int | None
    basis: Basis
    looked_at: tuple[int, int]
    medians_cross_at: int | None = None
    launch_bound_at_largest: bool | None = None

    def to_json(self) -> dict[str, Any]:
        found = fields_of(self)
        start, to = plan_name(found.pop("start")), plan_name(found.pop("to"))
        return {"from": start, "to": to, **found}


@dataclass(frozen=True, slots=True)
class Curve:
    """A plan's median step seconds at each of the curves' batch sizes; None where it is not known or does not fit."""

    plan: Plan
    step_seconds: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        return {**plan_name(self.plan), "step_seconds": list(self.step_seconds)}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why. `code` is stable, `text` is a sentence, `evidence` holds the numbers behind it."""

    code: str
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)


def nothing_fits(options: Sequence[Option]) -> bool:
    """Every plan is known to need more memory than there is, but for those that cannot run at all."""
    too_big = [option.fits is False for option in options]
    return any(too_big) and all(big or option.cannot_run for big, option in zip(too_big, options, strict=True))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Ranked plans, crossovers, settings, reasons and a snippet to paste."""

    workload: Workload
    parameters: int | None
    flops_per_step: int | None
    recommended: Plan | None
    verdict: str
    confidence: float | None
    options: tuple[Option, ...]
    crossovers: tuple[Crossover, ...]
    curve_batch_sizes: tuple[int, ...]
    curves: tuple[Curve, ...]
    settings: dict[str, Any]
    reasons: tuple[Reason, ...]
    snippet: str | None
    schema_version: str = SCHEMA_VERSION

    @property
    def nothing_fits(self) -> bool:
        return nothing_fits(self.options)

    def to_json(self) -> dict[str, Any]:
        """The body of the answer, as docs/http-api.md has it."""
        return {
            "schema_version": self.schema_version,
            "workload": self._workload_json(),
            "recommended": self._recommended_json(),
            "verdict": self.verdict,
            "confidence": self.confidence,
            "options": [option.to_json() for option in self.options],
            "crossovers": [crossover.to_json() for crossover in self.crossovers],
            "curves": {
                "batch_sizes": list(self.curve_batch_sizes),
                "plans": [curve.to_json() for curve in self.curves],
            },
            "settings": self.settings,
            "reasons": [fields_of(reason) for reason in self.reasons],
            "snippet": self.snippet,
        }

    def _workload_json(self) -> dict[str, Any]:
        return {
            "model": self.workload.model.name,
            "batch_size": self.workload.batch_size,
            "mode": self.workload.mode,
            "optimizer": self.workload.optimizer,
            "data": self.workload.data,
            "log_every": self.workload.log_every,
            "parameters": self.parameters,
            "flops_per_step": self.flops_per_step,
        }

    def _recommended_json(self) -> dict[str, Any] | None:
        if self.recommended is None:
            return None
        return {**self.recommended.to_json(), "batch_size": self.workload.batch_size}


def plan_name(plan: Plan) -> dict[str, Any]:
    """A plan as it stands in crossovers, curves and maps: without its environment unless it has one."""
    name = plan.to_json()
    if not plan.environment:
        del name["environment"]
    return name


def fields_of(value: Any) -> dict[str, Any]:
    """A flat dataclass as a dictionary."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
