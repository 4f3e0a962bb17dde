"""What a trace holds of its step in one precision, read off recordings of it at two batch sizes."""

from __future__ import annotations

import platform
from typing import NamedTuple

from probes.allocations import pack, unpack
from probes.heap_peaks import HeapCurves, heap_curves
from probes.heap_steps import TEMPORARIES, Step
from probes.issued import Issued
from probes.microtrain.failures import explain_step_failure, is_out_of_memory
from probes.microtrain.kernel_memory.kernel_allocations import kernel_allocations
from probes.microtrain.kernel_memory.kernel_peaks import kernel_peaks
from probes.microtrain.kernel_memory.kernel_trials import start_profiler
from probes.microtrain.traces.merging import merge, peak_lines
from probes.microtrain.traces.primed_stepper import PrimedStepper, Recording, Resident
from probes.trace import Affine, Knot, Operation
from probes.workload.description import Workload

Pair = tuple[int, int]  # of batch sizes
Recordings = tuple[Recording, Recording]  # at these


class TracedStep(NamedTuple):
    """As the fields of probes.trace.Trace, most of which are kept once a precision."""

    operations: tuple[Operation, ...] = ()
    peaks: tuple[Affine, ...] = ()
    update_peaks: tuple[Affine, ...] = ()
    kernel_peaks: tuple[Knot, ...] = ()
    allocations: str = ""
    heap: HeapCurves = HeapCurves()
    issued: Issued | None = None


class AutocastStep(NamedTuple):
    """refused: why it does not run under autocast, where that is torch's word; step has nothing then."""

    step: TracedStep = TracedStep()
    refused: str = ""
    evenly_routed: bool = False


def trace_plainly(pair: Pair, recordings: Recordings) -> TracedStep:
    """Without the order of its allocations, and what kernels take inside, which has to be tried for real."""
    one, other = recordings
    lines = peak_lines(pair, one.alive, other.alive)
    updating = peak_lines(pair, one.alive_in_update, other.alive_in_update)
    return TracedStep(merge(pair, one.records, other.records), lines, updating, issued=other.issued)


def trace_step(workload: Workload, pair: Pair, recordings: Recordings, resident: Resident) -> TracedStep:
    """All of it: seconds, for a large network."""
    start_profiler()  # before what may take so long and no longer
    one, other = recordings
    packed = pack(pair, one.log, other.log)
    heap = heap_curves(_heap_step(workload, packed, resident, pair, recordings))
    kernels = kernel_peaks(pair, one, other)
    return trace_plainly(pair, recordings)._replace(kernel_peaks=kernels, allocations=packed, heap=heap)


def trace_autocast(stepper: PrimedStepper, pair: Pair) -> AutocastStep:
    """The step under autocast, or why it does not run so. What fake tensors alone cannot do is no reason: they raise
    classes of their own, and torch's operations plain RuntimeErrors."""
    try:
        one, other = stepper.record(pair[0], "bf16"), stepper.record(pair[1], "bf16", counts=True)
    except Exception as error:
        if is_out_of_memory(error):  # which says nothing of the model
            raise
        by_torch = type(error) in (RuntimeError, NotImplementedError)
        return AutocastStep(refused=str(explain_step_failure(error)) if by_torch else "")
    step = trace_step(stepper.workload, pair, (one, other), stepper.resident_bytes())
    return AutocastStep(step, evenly_routed=stepper.evenly_routed)


def _heap_step(workload: Workload, packed: str, resident: Resident, pair: Pair, recordings: Recordings) -> Step | None:
    """None where the C library is not the one whose rules are known, or the step does not run like this."""
    allocations = unpack(packed)
    if platform.libc_ver()[0] != "glibc" or allocations is None:
        return None
    temporaries = TEMPORARIES.get(workload.optimizer, 0) if workload.mode == "training" else 0
    kernels = kernel_allocations(pair, *recordings)
    return Step(allocations, (temporaries, resident.parameter_tensors), recordings[0].inputs, kernels)
