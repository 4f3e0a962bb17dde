"""How much memory a workload takes under a plan, whether it fits, and what would make it fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.advisor.like_cards import measured_plan
from app.advisor.memory_model.device_peaks import bytes_held_at_once, device_peaks
from app.advisor.memory_model.old_cards import without_flash
from app.advisor.memory_model.peaks import NOTHING, Peaks
from app.advisor.memory_model.rooms import available_bytes, context_bytes, device_bytes, lacks_flash
from app.advisor.memory_model.stretches import EVERY, Stretch, Stretches, joined
from app.advisor.recommendation import MemoryParts
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Affine, Trace
from probes.workload.description import Data, Plan, Workload

# Autocast leaves these in fp32: normalizations, softmax and losses (torch.amp docs, "Ops that autocast to float32").
KEPT_IN_FP32 = frozenset({"normalization", "reduction", "random"})
# More than a process takes before there is a model, far more: with torch on a CPU it is about 0.33 GB (the
# `process_base_bytes` of the profiles under benchmarks/results). A GPU's context differs by card and driver and has no
# such bound.
CPU_OVERHEAD_AT_MOST = 2 * 2**30
# What libraries take once they work, beyond a process that has imported torch: torch imports its compiler with the
# first optimizer, transformers the model's own modules, oneDNN writes code and keeps room for each shape. Measured on
# x86 (torch 2.13, transformers 5.23): medians of 78 rows in fresh processes, of networks that no estimate is judged by
# (benchmarks.working_bytes; benchmarks/results/2026-11-28-amd-epyc-zen-4-2-cores/working_bytes.json).
WORKING_BYTES = {
    ("layers", "inference"): 4_000_000,
    ("layers", "training"): 93_000_000,
    ("huggingface", "inference"): 135_000_000,
    ("huggingface", "training"): 153_000_000,
}
CONVOLUTION_BYTES = 4_000_000
NO_BYTES = Affine(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes at the step's peak, each part apart. None: not known.

    overhead: what a process takes beside its tensors (interpreter, libraries at work; on a GPU the context). workspace:
    on a GPU, what libraries keep of torch's allocator.
    fragmentation: what a CPU's heap holds beyond them, freed and not given back; without knots: not known.
    update: lines of what is alive in the optimizer's step, when the activations are gone: the highest counts.
    ahead: of the batch that a device is sent while it computes on another; in activations and update too.
    data_set: of resident data (data_set_bytes).
    overhead_at_most: where the overhead was not measured, what it surely stays below.
    available_at_most: where nobody knows what is available, what it surely is not above: all that the device has.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: Peaks
    overhead: int | None
    available: int | None
    overhead_at_most: int | None = None
    on_cpu: bool = True
    trace: Trace | None = None  # of a plan on a device, whose allocator's blocks follow from it
    precision: str = "fp32"
    fragmentation: Peaks = NOTHING
    workspace: int = 0  # what libraries keep of a device's allocator
    update: tuple[Affine, ...] = ()
    ahead: Affine = NO_BYTES
    data_set: int = 0
    available_at_most: int | None = None

    @property
    def limit(self) -> int | None:
        """What takes more surely does not fit; what takes less does where `available` is known."""
        return self.available if self.available is not None else self.available_at_most

    @property
    def fixed(self) -> int:
        """What does not grow with the batch, activations apart."""
        return self.weights + self.gradients + self.optimizer + self.data_set + self.workspace + (self.overhead or 0)

    def peak(self, batch_size: int) -> int:
        """At least this many bytes; exactly what is estimated when the overhead is known."""
        return self.fixed + math.ceil(self._step_at(batch_size) + self.fragmentation_at(batch_size))

    def allocated(self, batch_size: int) -> int:
        """What torch's allocator hands out of it: the tensors, and on a CPU what kernels take inside."""
        return self.fixed - (self.overhead or 0) + math.ceil(self._step_at(batch_size))

    def freed(self, batch_size: int) -> int:
        """What the heap holds beyond it: the rest of the peak, so that parts that are rounded up add up to that."""
        return self.peak(batch_size) - (self.overhead or 0) - self.allocated(batch_size)

    def update_beyond(self, batch_size: int) -> int:
        """What the optimizer's own step takes of the peak, beyond what forward and backward take anyway."""
        return math.ceil(self._step_at(batch_size) - self.activations_at(batch_size))

    def update_at(self, batch_size: int) -> float:
        return max((line.at(batch_size) for line in self.update), default=0.0)

    def _step_at(self, batch_size: int) -> float:
        """Beyond what lives from step to step."""
        return max(self.activations_at(batch_size), self.update_at(batch_size))

    def activations_at(self, batch_size: int) -> float:
        return self.activations.at(batch_size)

    def fragmentation_at(self, batch_size: int) -> float:
        return self.fragmentation.at(batch_size)

    def fits(self, batch_size: int) -> bool | None:
        """None when the available memory is not known, unless the device has too little in all, or when the unknown
        overhead may decide it.

        Not measured, the overhead decides nothing where the rest alone is too much, or leaves more than it can take.
        """
        if self.limit is None:
            return None
        spare = self.limit - self.peak(batch_size)
        if spare < 0:
            return False
        if self.available is None:
            return None
        if self.overhead is None and (self.overhead_at_most is None or spare < self.overhead_at_most):
            return None
        return True

    def max_batch_size(self) -> int | None:
        """The largest batch that fits within the limit; 0 when not even one sample does; None when it is not known or
        has no end. Of smaller ones some may not fit (stretches)."""
        return None if self.limit is None else self.stretches().largest

    def stretches(self) -> Stretches:
        """The batches that fit within the limit; all where none is known."""
        if self.limit is None:
            return EVERY
        peaks = self.activations.at_least(self.update).and_with(self.fragmentation)
        found = (self._settled(stretch) for stretch in peaks.within(self.limit - self.fixed).each)
        return joined(stretch for stretch in found if stretch is not None)

    def _settled(self, stretch: Stretch) -> Stretch | None:
        """With its ends where the peaks have them, whose sums are rounded otherwise."""
        first, last = stretch
        if last is None:
            return stretch
        while last >= first and not self._has_room(last):
            last -= 1
        if last < first:
            return None
        return Stretch(first if self._has_room(first) else first + 1, self._with_what_still_fits(last))

    def _has_room(self, batch_size: int) -> bool:
        return self.limit is None or self.peak(batch_size) <= self.limit

    def _with_what_still_fits(self, batch_size: int) -> int:
        """The same batch, but where the slope was rounded, too: by a few samples of thousands of millions."""
        step = 1
        while self.fits(batch_size + step):
            batch_size += step
            step *= 2
        while step > 1:
            step //= 2
            batch_size += step if self.fits(batch_size + step) else 0
        return batch_size

    def _held(self, batch_size: int) -> int | None:
        """What a CPU's heap holds; None where its rules are not known."""
        return self.allocated(batch_size) + self.freed(batch_size) if self.fragmentation.knots else None

    def parts(self, batch_size: int) -> MemoryParts:
        known = self.overhead is not None
        blocks = device_peaks(self.trace, self.precision, batch_size) if self.trace is not None else None
        beside = self.workspace + self.data_set + math.ceil(self.ahead.at(batch_size))  # of the step's own blocks
        return MemoryParts(
            weights_bytes=self.weights,
            gradients_bytes=self.gradients,
            optimizer_bytes=self.optimizer,
            activations_bytes=math.ceil(self._step_at(batch_size)) + self.data_set,
            overhead_bytes=self.overhead + self.workspace if self.overhead is not None else None,
            fragmentation_bytes=self.freed(batch_size) if self.fragmentation.knots else None,
            peak_bytes=self.peak(batch_size) if known else None,
            available_bytes=self.available,
            allocated_peak_bytes=self.allocated(batch_size) if blocks is None else blocks.allocated + beside,
            reserved_peak_bytes=self._held(batch_size) if blocks is None else blocks.reserved + beside,
            process_peak_bytes=self.peak(batch_size) if known and self.on_cpu else None,
        )


def trace_on(survey: Survey | None, plan: Plan, trace: Trace) -> Trace:
    """The step as the plan's device runs it, in any precision. survey: None for a machine whose cards nobody knows."""
    trace = trace.on(cpu=plan.is_cpu)
    return without_flash(trace) if lacks_flash(survey, plan) else trace


def estimate_memory(
    survey: Survey | None,
    profile: Profile | None,
    trace: Trace,
    measurements: Sequence[Measurement],
    plan: Plan,
    model_kind: str = "layers",
    data: Data = "pageable",
    data_set: int = 0,
) -> MemoryEstimate:
    """Memory of the traced workload under the plan, as a function of the batch. survey: None for another machine.

    model_kind: of probes.workload.description.ModelDescription; transformers' own modules take memory too.
    data: how batches reach a device. data_set: bytes that lie there, by data_set_bytes.
    """
    trace = trace_on(survey, plan, trace)
    base = _overhead(profile, measurements, plan)
    working = working_bytes(trace, model_kind) if plan.is_cpu else 0
    return MemoryEstimate(
        weights=trace.parameter_bytes + trace.buffer_bytes,
        gradients=trace.gradient_bytes,
        optimizer=trace.optimizer_bytes,
        activations=_with_ahead(activation_peaks(trace, plan), trace, plan, data),
        overhead=base + working if base is not None else None,
        available=available_bytes(survey, plan) if survey is not None else None,
        available_at_most=device_bytes(survey, plan) if survey is not None else None,
        overhead_at_most=CPU_OVERHEAD_AT_MOST if plan.is_cpu else None,
        on_cpu=plan.is_cpu,
        trace=None if plan.is_cpu else trace,
        precision=plan.precision,
        fragmentation=fragmentation(trace, plan),
        workspace=_workspace(profile, plan, trace.mode),
        update=_with_ahead(update_peaks(trace, plan), trace, plan, data).lines,
        ahead=_ahead(trace, plan, data),
        data_set=data_set,
    )


# A library's handle has a room of its own in each thread: a backward runs in autograd's (an H200's: 67 MB in training,
# 34 in inference; torch 2.11, CUDA 13.0).
THREADS = {"training": 2, "inference": 1}


def _workspace(profile: Profile | None, plan: Plan, mode: str) -> int:
    """A profile tells that of training."""
    if profile is None or profile.workspace_bytes is None:
        return 0
    return profile.workspace_bytes.get(measured_plan(profile, plan).device, 0) * THREADS[mode] // THREADS["training"]


def step_peaks(trace: Trace, plan: Plan, data: Data = "pageable") -> Peaks:
    """What a step takes beyond what lives from step to step, on a CPU with what its heap holds of what was freed."""
    peaks = with_update(activation_peaks(trace, plan), trace, plan)
    return _with_ahead(peaks, trace, plan, data).and_with(fragmentation(trace, plan))


def with_update(activations: Peaks, trace: Trace, plan: Plan) -> Peaks:
    """With what is alive in the optimizer's step, where that is more."""
    return activations.at_least(update_peaks(trace, plan).lines)


def update_peaks(trace: Trace, plan: Plan) -> Peaks:
    """What is alive in the optimizer's step, when the activations are gone: on a CPU torch.optim goes from parameter to
    parameter, on a GPU it updates all of them at once. The batch is alive there as well, as a loop's variable has
    it."""
    if plan.is_cpu:
        return Peaks(trace.update_peaks)
    held, batch = bytes_held_at_once(trace), trace.input_bytes
    return Peaks((Affine(held + batch.constant, batch.per_sample),) if held else ())


def _with_ahead(peaks: Peaks, trace: Trace, plan: Plan, data: Data) -> Peaks:
    """With the batch that a device is sent while it computes on another."""
    more = _ahead(trace, plan, data)
    if not any(more):
        return peaks
    return Peaks(
        tuple(Affine(line.constant + more.constant, line.per_sample + more.per_sample) for line in peaks.lines)
    )


def with_data(memory: MemoryEstimate, plan: Plan, data: Data, data_set: int) -> MemoryEstimate:
    """The same where batches reach the plan's device as `data`, and so much lies there (data_set_bytes). memory: as
    estimated; of a CPU, where every way is the same but for that."""
    trace = memory.trace
    if trace is None:
        return replace(memory, data_set=data_set)
    activations, update = (
        _with_ahead(peaks, trace, plan, data) for peaks in (activation_peaks(trace, plan), update_peaks(trace, plan))
    )
    ahead = _ahead(trace, plan, data)
    return replace(memory, activations=activations, update=update.lines, ahead=ahead, data_set=data_set)


def data_set_bytes(trace: Trace | None, workload: Workload) -> int:
    """What resident data take of a plan's device (of the host's memory on a CPU), beside the batch that is picked from
    them; 0 where others are asked for, or nobody knows how many samples there are or how large one is, as a summary
    does not tell."""
    if trace is None or workload.data != "resident" or workload.model.kind == "summary":
        return 0
    return math.ceil((workload.dataset_samples or 0) * max(trace.input_bytes.per_sample, 0.0))


def _ahead(trace: Trace, plan: Plan, data: Data) -> Affine:
    """From pinned memory the next batch is copied while a step runs (probes.microtrain.feeding)."""
    return trace.input_bytes if data == "pinned" and not plan.is_cpu else NO_BYTES


def fragmentation(trace: Trace, plan: Plan) -> Peaks:
    """Nothing where the plan puts another allocator, or other settings, in the place of the C library's own."""
    if not plan.is_cpu or plan.environment:
        return NOTHING
    return Peaks(knots=trace.heap_surplus_under(plan.precision))


def working_bytes(trace: Trace, model_kind: str) -> int:
    """What libraries take on a CPU once this workload runs."""
    kind = "huggingface" if model_kind == "huggingface" else "layers"
    convolves = any(operation.kind == "convolution" for operation in trace.operations)
    return WORKING_BYTES[kind, trace.mode] + (CONVOLUTION_BYTES if convolves else 0)


def _halved(plan: Plan) -> bool:
    return plan.precision in ("bf16", "fp16")


def _copied_weights(trace: Trace, plan: Plan) -> int:
    """Autocast casts each weight once a step and keeps the copy until the step ends (torch.amp docs, cache_enabled)."""
    return trace.parameter_bytes // 2 if _halved(plan) else 0


def activation_peaks(trace: Trace, plan: Plan) -> Peaks:
    """What is alive at the peak of forward and backward beyond what lives from step to step."""
    knots = trace.kernel_peaks_under(plan.precision) if plan.is_cpu else ()
    lines = trace.peaks_under(plan.precision)
    if not knots and not lines:
        lines = trace.activation_peaks or (trace.activation_bytes,)
        lines = Peaks(lines).plus(_copied_weights(trace, plan), _autocast_factor(trace)).lines
    return Peaks(lines, knots)


def _autocast_factor(trace: Trace) -> float:
    """Under autocast the activations that need not stay in fp32 take half: by their share of the bytes written.

    Simple on purpose: it takes what the forward writes for what is kept. Normalizations, losses and the inputs
    count whole.
    """
    batch = trace.batch_sizes[-1]
    written = {True: 0.0, False: 0.0}
    for operation in trace.operations:
        if operation.phase == "forward":
            kept = operation.kind in KEPT_IN_FP32
            written[kept] += operation.count * max(operation.written_bytes.at(batch), 0.0)
    total = written[True] + written[False]
    return 1.0 - 0.5 * written[False] / total if total > 0 else 1.0


def _overhead(profile: Profile | None, measurements: Sequence[Measurement], plan: Plan) -> int | None:
    """Measured once, by the profile or by a measurement of this very model: a process that has done nothing yet."""
    if plan.is_cpu:
        if profile is not None and profile.process_base_bytes is not None:
            return profile.process_base_bytes
        bases = [row.memory.process_base_bytes for row in measurements if row.memory is not None]
        return max((base for base in bases if base is not None), default=None)
    return context_bytes(profile, plan)
