"""What a measurement says: a time with its spread, and a plan's step with its parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from probes.workload.description import Plan

# How real steps are measured: a row of another method tells of another step, and is not read. To be counted up with
# each change after which the same workload's step under the same plan does other work, or is timed otherwise.
# 2: sound in stacked frames is as long as was asked for, and images in patches have all of them; what steps alter of
# their batches is copied for each. 3: cores that share no cache are heard, and do not count as calm. 4: inference is
# fed no targets.
METHOD = 4
# Of a row that says none, as all did before it was counted: no release measured otherwise than 1.
UNSAID_METHOD = 1
# From here on somebody else computes on a card; a desktop's own drawing is less.
BUSY_FRACTION = 0.25
# Processes of one plan differ by their page faults, by half at most (docs/decisions/0014). Two threads whose cores
# others held for moments, which no reading need tell, took 36 to 348 ms for 4, 155 in the median (0013).
UNSTEADY = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, several times over. A sample is the mean over a block of steps that is long enough for the clock; of a
    plan that ran in three processes or more it is one figure a process, and in a pooled profile the median of a
    calibration. The raw samples are kept, so that any other statistic can be had later."""

    median: float
    """Of the samples. Seconds."""
    low: float
    """Their 10th percentile. Seconds."""
    high: float
    """Their 90th percentile. Seconds."""
    samples: tuple[float, ...] = ()
    """Each of them. Seconds."""

    @classmethod
    def from_samples(cls, samples: list[float] | tuple[float, ...]) -> Timing:
        """Raises ValueError without samples."""
        if not samples:
            raise ValueError("a timing needs at least one sample")
        ordered = sorted(samples)
        return cls(median(ordered), _quantile(ordered, 0.1), _quantile(ordered, 0.9), tuple(samples))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Timing:
        return cls(document["median"], document["low"], document["high"], tuple(document.get("samples", ())))


def _quantile(ordered: list[float], fraction: float) -> float:
    """Linear interpolation between order statistics (numpy's default)."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass(frozen=True, slots=True)
class Overheads:
    """A step's parts, each measured for this workload on this device; None where it does not apply."""

    transfer_seconds: float | None = None
    """Putting one batch on the device."""
    launch_seconds: float | None = None
    """The host issuing the step's operations."""
    synchronize_seconds: float | None = None
    """Reading one result back with `.item()`."""
    compute_seconds: float | None = None
    """What remains of the step."""
    device_busy: float | None = None
    """Fraction of the step, 0 to 1, in which the device computes."""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Peaks while stepping; None where they were not measured."""

    process_bytes: int | None = None
    """Resident set of the measuring process."""
    process_base_bytes: int | None = None
    """Its resident set before the model was built."""
    allocated_bytes: int | None = None
    """What torch's allocator handed out; None on a CPU."""
    reserved_bytes: int | None = None
    """What torch's allocator holds; None on a CPU."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Real steps of one workload under one plan at one batch size."""

    plan: Plan
    """That it ran under."""
    batch_size: int
    """Of each step."""
    data: str
    """How batches reached the device: resident (already there), pageable or pinned."""
    outcome: Literal["ok", "out-of-memory", "unsupported", "failed"]
    """ok; out-of-memory; unsupported: torch refuses it on this device; failed: anything else, want of time among it."""
    reason: str | None = None
    """Why there is no figure, in a sentence; None: there is one."""
    step: Timing | None = None
    """One step on cores as quick as they get; None: it did not run."""
    steps: int = 0
    """How many ran."""
    steady: bool = False
    """The step times settled; False: time ran out before they did."""
    startup_seconds: float | None = None
    """First step beyond a steady one: context, autotuning, first allocations; None: only one ran."""
    overheads: Overheads | None = None
    """Its parts; None: they were not measured."""
    memory: MemoryPeak | None = None
    """Its peak; None: it was not measured."""
    others_cores: float | None = None
    """That others, the hypervisor's machines among them, held meanwhile; None: not known."""
    control: Timing | None = None
    """The same plan as torch has it, in turns with it, in a process of its own; None: nothing was tried against it."""
    processes: int | None = None
    """With a control: how many processes ran each of the two; of two and more a sample is what one of them took."""
    slow_share: float | None = None
    """Of the samples, 0 to 1, how many were taken while the cores were slow; None: nobody read how quick they were."""
    slowdown: float | None = None
    """How many times as long as on the calm machine, of which `step` tells, those took. None: nobody read how quick the
    cores were, or no sample was calm (or those that seemed so took longer than the others), and `step` is reckoned back
    from those that a neighbour may have slowed, or else what steps took (probes.microtrain.quiet.calm)."""
    denormal_share: float | None = None
    """Of the floating-point numbers that a step on a CPU makes or leaves, 0 to 1; with a control, that one's. None:
    nobody looked."""
    available_bytes: int | None = None
    """Free on the plan's device before, where it ran out of memory, or where nobody knows what it took; None
    elsewhere."""
    device_busy_fraction: float | None = None
    """Of the time just before, 0 to 1, that others computed on its device; None: a CPU, or not known."""
    measured_at: float | None = None
    """When it ended; None: not known."""
    method: int = METHOD
    """Of measuring; counted up where steps do other work, or are timed otherwise."""
    momentary: bool = False
    """Refused for what its process could use at that moment (its cores, devices and environment, the one model of its
    job): tells nothing of any other."""

    @property
    def is_first_step(self) -> bool:
        """There was no time for a second one: it took at least as long as those after it would have. Where one followed
        but the time was for a single sample more, `steps` is 1 as well; what the first took beyond it is known then."""
        return self.steps == 1 and self.startup_seconds is None

    @property
    def is_reckoned(self) -> bool:
        """No sample met calm cores."""
        return self.slow_share is not None and self.slowdown is None

    @property
    def is_unsteady(self) -> bool:
        """Most of its samples took far longer than its shortest: what they met is not known."""
        return self.step is not None and self.step.median > UNSTEADY * self.step.low

    @property
    def met_others(self) -> bool:
        """Somebody else computed on the device just before it was measured."""
        return (self.device_busy_fraction or 0.0) >= BUSY_FRACTION

    @property
    def met_nobody(self) -> bool:
        """It is known that nobody else computed on the device then; False of a CPU."""
        return self.device_busy_fraction is not None and not self.met_others

    @property
    def held_bytes(self) -> int | None:
        """What must be there for it to run: the process on a CPU; on a device what torch's allocator hands out, as it
        gives back what it keeps beyond that before it runs out. None where they were not measured."""
        if self.memory is None:
            return None
        if self.plan.is_cpu:
            return self.memory.process_bytes
        allocated = self.memory.allocated_bytes
        return self.memory.reserved_bytes if allocated is None else allocated

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "plan": self.plan.to_json()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Measurement:
        """Raises KeyError, TypeError or ValueError when the document is not a measurement."""
        values = {"method": UNSAID_METHOD, **document}
        values["plan"] = Plan.from_json(values["plan"])
        if values.get("step") is not None:
            values["step"] = Timing.from_json(values["step"])
        if values.get("control") is not None:
            values["control"] = Timing.from_json(values["control"])
        if values.get("overheads") is not None:
            values["overheads"] = Overheads(**values["overheads"])
        if values.get("memory") is not None:
            values["memory"] = MemoryPeak(**values["memory"])
        return cls(**values)
