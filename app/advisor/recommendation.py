"""What the advisor answers: the document of `POST /recommend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.advisor.memory_model.stretches import EVERY, Stretches
from probes.workload.description import Plan, Workload

SCHEMA_VERSION = "1"

Basis = Literal["measured", "probed", "predicted", "assumed"]
CrossoverKind = Literal["at", "always", "never", "undecided"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A time: the middle, and the range that holds it in about four cases of five."""

    median: float
    """The middle. Seconds."""
    low: float
    """The range's lower end. Seconds."""
    high: float
    """The range's upper end. Seconds."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A step's parts; None where it is not known."""

    transfer: float | None = None
    """Copying batches to the device, as far as no computing hides it. Seconds."""
    launch: float | None = None
    """Issuing the operations: on a CPU all of it, on a device what that adds beyond computing. Seconds."""
    compute: float | None = None
    """Computing. Seconds."""
    synchronize: float | None = None
    """Waiting for the loss that is read, a step's share of it. Seconds."""


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Of one process that trains; None where it is not known. The parts up to peak_bytes add up to it."""

    weights_bytes: int | None = None
    """Parameters and buffers."""
    gradients_bytes: int | None = None
    """Of the parameters; 0 in inference."""
    optimizer_bytes: int | None = None
    """What the optimizer keeps between steps."""
    activations_bytes: int | None = None
    """What else is alive at the peak: activations, the batch, what kernels take inside, and resident data."""
    overhead_bytes: int | None = None
    """Of the process beside: libraries, a device's context; None: no calibration has measured it."""
    fragmentation_bytes: int | None = None
    """What a CPU's heap holds of what was freed; None: a device, or rules that are not known."""
    peak_bytes: int | None = None
    """The sum of the parts: what it takes at most."""
    available_bytes: int | None = None
    """What is free for it; None: nobody knows."""
    allocated_peak_bytes: int | None = None
    """What torch's allocator hands out at most."""
    reserved_peak_bytes: int | None = None
    """What a GPU's allocator, in blocks, or a CPU's heap holds for that."""
    process_peak_bytes: int | None = None
    """A CPU's whole process, libraries included; None of a device."""


@dataclass(frozen=True, slots=True)
class Option:
    """One plan with what is known about it."""

    plan: Plan
    """The plan."""
    fits: bool | None
    """Whether it fits into the memory that is free; None: not known."""
    why_not: str | None
    """Why it does not fit or cannot run, and what would help; None: it does, or it is not known."""
    basis: Basis | None
    """Where its time comes from. measured: this very plan ran at this batch; probed: this model ran at other batches,
    fed otherwise, or one step alone; predicted: from profile and trace; assumed: from a data sheet, which is not given
    yet. None: it has no time."""
    step_seconds: Interval | None
    """Of one step; None: not known, or it does not fit."""
    samples_per_second: float | None
    """By the median; None: it has no time."""
    breakdown_seconds: Breakdown
    """What the step is made of."""
    memory: MemoryParts
    """What it takes, and what is free."""
    max_batch_size: int | None
    """The largest that fits, 16,777,216 at most; 0: not even the smallest does; None: not known."""
    note: str | None = None
    """Why it was not measured at this batch, or why nothing is known of it, in sentences; None: nothing to say."""
    cannot_run: bool = False
    """It was tried, for real or in tracing, and torch refused."""
    crowded: bool = False
    """Others hold cores that it needs, so that its step may take far longer than its median: it is ranked by `high`."""
    relieved: bool = False
    """Others, who have left, held cores that it needs when its time was taken, seen or (where its samples lie far
    apart) unseen, so that it may take far less; its note says so. It is ranked by `high`, too."""
    slowed: float | None = 1.0
    """How many times as long as without others it takes at worst, below 1 the other way round; None: nobody can tell,
    as one step is all that it rests on. Of two plans with the same the ratio is that of a calm machine."""
    uncopied_seconds: float | None = None
    """Of its step without copies, where none of the kind asked for were calibrated: then it has no time, or one that is
    bound by other copies; None where they were."""
    fits_up_to: int | None = None
    """The batch up to which all fit: below `max_batch_size` where one between takes more than that one; 0: not even the
    smallest does; None: not known."""
    held: Stretches = EVERY
    """The batches that are not known to take more than there is."""
    ran_out: bool = False
    """So many samples ran out of memory, and no more is free now: how much they lacked nobody knows."""
    rests_on_prediction: bool = False
    """Its time is predicted, or was carried along a prediction from a batch that ran; else real steps told it."""

    @property
    def is_judged_by_high(self) -> bool:
        """Its median is too poor a guess to go before a better known one by it."""
        return self.crowded or self.relieved or self.slowed is None

    @property
    def judged_seconds(self) -> float | None:
        """Of a step, by which it has its place. None where it has no time, or does not fit."""
        if self.fits is False or self.step_seconds is None:
            return None
        return self.step_seconds.high if self.is_judged_by_high else self.step_seconds.median

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
            "relieved": self.relieved,
            "fits_up_to": self.fits_up_to,
        }


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where `to` overtakes `start` as the batch grows (app.advisor.curves.crossover)."""

    start: Plan
    """The plan that is overtaken."""
    to: Plan
    """The plan that overtakes."""
    data: str
    """How both are fed: resident, pageable or pinned; with plans of the CPU alone as asked."""
    kind: CrossoverKind
    """at: from `batch_size` on `to` is faster; always: at each batch looked at; never: `from` is, at the largest;
    undecided: too close at the largest."""
    batch_size: int | None
    """The likeliest batch, where the medians cross; None of any kind but `at`."""
    low: int | None
    """From where on `from` is no longer certain to be faster. Samples a step; None of any kind but `at`."""
    high: int | None
    """From where on `to` is certain to be faster. Samples a step; None of any kind but `at`."""
    launch_bound_until: int | None
    """The batch from which the device of `to`, no longer the host, is the limit. Samples a step; 1: at every batch
    looked at; None: not at the largest that `to` can hold of these (`launch_bound_at_largest`), or not predicted."""
    break_even_steps: int | None
    """So many at the batch asked for repay the longer start of `to`; None: the device's start is not known, `to` is not
    faster there, or both are on one device."""
    basis: Basis
    """The weaker of the two plans': measured, probed, predicted or assumed."""
    looked_at: tuple[int, int]
    """The smallest and the largest batch at which the two were compared."""
    medians_cross_at: int | None = None
    """The likeliest batch of any kind, from which `to` has the lower median at all larger ones; None: it has not at the
    largest."""
    launch_bound_at_largest: bool | None = None
    """The host still is the limit at the largest batch that `to` can hold; None: not predicted."""

    def to_json(self) -> dict[str, Any]:
        found = fields_of(self)
        start, to = plan_name(found.pop("start")), plan_name(found.pop("to"))
        return {"from": start, "to": to, **found}


@dataclass(frozen=True, slots=True)
class Curve:
    """A plan's median step seconds at each of the curves' batch sizes; None where it is not known or does not fit."""

    plan: Plan
    """The plan."""
    step_seconds: tuple[float | None, ...]
    """The median at each of the curves' batch sizes; None where it is not known or does not fit."""

    def to_json(self) -> dict[str, Any]:
        return {**plan_name(self.plan), "step_seconds": list(self.step_seconds)}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why, or what there is to know."""

    code: str
    """What it is, stable (docs/reasons.md lists all)."""
    text: str
    """The same in a sentence."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The numbers behind it, by name."""


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Who else computes on the machine's CPU: when plans ran for this answer, else now."""

    usable_cores: float
    """That this process may use."""
    others_cores: float | None
    """Of all cores, those that others keep busy, the hypervisor's other machines among them; None: not known."""
    steal_fraction: float | None
    """Of all CPU time, 0 to 1, what the hypervisor took for others; None: not known."""
    cpu_pressure_percent: float | None
    """Share of the last 10 s before the answer was begun in which something waited for a CPU; None: not known."""


def nothing_fits(options: Sequence[Option]) -> bool:
    """Every plan is known to need more memory than there is, but for those that cannot run at all."""
    too_big = [option.fits is False for option in options]
    return any(too_big) and all(big or option.cannot_run for big, option in zip(too_big, options, strict=True))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Ranked plans, crossovers, settings, reasons and a snippet to paste."""

    workload: Workload
    """What was asked about."""
    parameters: int | None
    flops_per_step: int | None
    recommended: Plan | None
    """The plan to take, the first of `options`; None: none can be told, and
    the verdict says why."""
    verdict: str
    """The answer in a sentence or two."""
    confidence: float | None
    """Probability, 0 to 1, that no other plan is faster by more than 5 %; None: a plan that may fit has no
    time, or none is recommended."""
    options: tuple[Option, ...]
    """All plans of which anything can be said, ranked: the recommended one, then by the step."""
    crossovers: tuple[Crossover, ...]
    """Where plans overtake each other as the batch grows."""
    curve_batch_sizes: tuple[int, ...]
    curves: tuple[Curve, ...]
    settings: dict[str, Any]
    """What to set for the recommended plan."""
    reasons: tuple[Reason, ...]
    """Why, and what there is to know about it."""
    snippet: str | None
    """A script to paste that runs with these settings; None: there is no plan to write it for."""
    schema_version: str = SCHEMA_VERSION
    """Of this document."""
    all_parameters: int | None = None
    load: MachineLoad | None = None
    """Who else computes on the machine's CPU; None: it is another machine, or its cores are not known."""

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
            "load": None if self.load is None else fields_of(self.load),
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
            "all_parameters": self.all_parameters,
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
