"""One step as a device runs it -> its trace, on a machine that need not have one."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from probes.allocations import pack
from probes.microtrain.traces.device_ways import as_on_device
from probes.microtrain.traces.merging import merge, ordinary_line, peak_lines
from probes.microtrain.traces.primed_stepper import PrimedStepper
from probes.microtrain.traces.traced_step import Pair, TracedStep
from probes.trace import Trace
from probes.workload.description import Precision


def trace_on_device(stepper: PrimedStepper, pair: Pair, trace: Trace) -> Trace | None:
    """Of the step that `trace` is of on a CPU; None where a device runs the same, or the step does not get through
    with a device's ways. To be called within the fake mode that the stepper's model was built in."""
    plain, plain_differs = _step(stepper, pair, "fp32")
    if not plain.operations:
        return None
    # A device may run what a CPU refuses, as recurrent layers in bf16 where it has no instructions for it.
    tried = trace.autocast_operations or trace.autocast_refused
    under, under_differs = _step(stepper, pair, "bf16") if tried else (TracedStep(), False)
    if not plain_differs and not under_differs:
        return None
    return replace(
        trace,
        activation_bytes=ordinary_line(plain.peaks),
        activation_peaks=plain.peaks,
        operations=plain.operations,
        autocast_operations=under.operations,
        autocast_refused="",
        autocast_peaks=under.peaks,
        allocations=plain.allocations,
        autocast_allocations=under.allocations,
        kernel_peaks=(),
        autocast_kernel_peaks=(),
        heap_surplus=(),
        autocast_heap_surplus=(),
        heap_fresh=(),
        autocast_heap_fresh=(),
    )


def _step(stepper: PrimedStepper, pair: Pair, precision: Precision) -> tuple[TracedStep, bool]:
    """And whether it took any of a device's ways. Without operations where it does not get through: a model may do with
    torch's functions what others in their place cannot."""
    with contextlib.suppress(Exception), as_on_device() as ways:
        one, other = (stepper.record(size, precision) for size in pair)
        operations = merge(pair, one.records, other.records)
        lines = peak_lines(pair, one.alive, other.alive)
        return TracedStep(operations, lines, allocations=pack(pair, one.log, other.log)), ways.taken
    return TracedStep(), False
