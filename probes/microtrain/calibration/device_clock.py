"""Times every operation of real steps on a CUDA device: how long its kernels ran there.

A clock on the host cannot: an operation returns when its kernels are queued. torch's profiler (CUPTI below it) tells
each kernel's time on the device and which call launched it; marks that are put around operations tell whose call that
was, whatever thread made it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch._ops import OpOverload
from torch.autograd.profiler import profile, record_function

from probes.microtrain.calibration.operation_clock import EachOperation
from probes.microtrain.measuring.workbench import StepRun, synchronize
from probes.microtrain.step import Step, made_current

MARK = "crosspoint operation "
LAUNCHES = ("cuda", "cu", "hip")  # how the names of calls begin that queue work: cudaLaunchKernel, cuLaunchKernelEx, …


class Span(NamedTuple):
    """Nanoseconds on the profiler's clock."""

    begin: int
    end: int


class DeviceCost(NamedTuple):
    """Of one operation in one step. seconds: of all its kernels and copies; kernels: how many there were."""

    seconds: float
    kernels: int


class OperationMarks(EachOperation):
    """Marks operations for the profiler, numbered as they ran."""

    def __init__(self, *, device: str = "cuda") -> None:
        super().__init__(device=device)
        self.count = 0

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.count += 1
        with record_function(f"{MARK}{self.count}"):
            return func(*args, **kwargs)


def clock_device_steps(runs: Sequence[StepRun], times: int) -> list[list[list[DeviceCost]]]:
    """Of each of these, all on one device, stepped that often under its plan, what its operations took there: a list a
    run, of lists a step, with an entry an operation in the order of `record_step`.

    Raises RuntimeError where the profiler sees no kernels (CUPTI missing, or taken by another profiler).
    """
    if not runs:
        raise RuntimeError("There are no steps to be timed.")
    counts: list[list[int]] = []
    with made_current(runs[0].plan.device), profile(use_device="cuda", use_kineto=True) as profiler:
        for run in runs:
            with run.setting():
                counts.append([_marked_step(run.prepared()) for _ in range(times)])
    results = profiler.kineto_results
    costs = costs_of_marks(results.events() if results is not None else ())
    if not any(cost.kernels for cost in costs):
        raise RuntimeError("The profiler saw no kernels.")
    if len(costs) != sum(map(sum, counts)):
        raise RuntimeError("The profiler lost marks of operations.")
    found: list[list[list[DeviceCost]]] = []
    place = 0
    for steps in counts:
        found.append([])
        for count in steps:
            found[-1].append(costs[place : place + count])
            place += count
    return found


def _marked_step(step: Step) -> int:
    """How many operations it had."""
    with OperationMarks(device=step.device.type) as marks:
        step()
    synchronize(step.device)
    return marks.count


def costs_of_marks(events: Iterable[Any]) -> list[DeviceCost]:
    """By mark, in the order of their beginnings. events: torch's _KinetoEvent."""
    marks: list[Span] = []
    launches: dict[int, int] = {}  # by correlation, when the call was made
    kernels: list[tuple[int, int]] = []  # correlation, duration
    for event in events:
        name = event.name()
        if event.device_type().name == "CPU":
            if name.startswith(MARK):
                begin = event.start_ns()
                marks.append(Span(begin, begin + event.duration_ns()))
            elif name.startswith(LAUNCHES) and "::" not in name:
                launches[event.correlation_id()] = event.start_ns()
        elif not name.startswith(MARK):
            kernels.append((event.correlation_id(), event.duration_ns()))
    marks.sort()
    begins = [mark.begin for mark in marks]
    seconds, counts = [0.0] * len(marks), [0] * len(marks)
    for correlation, duration in kernels:
        launched = launches.get(correlation)
        place = bisect_right(begins, launched) - 1 if launched is not None else -1
        if place >= 0 and launched is not None and launched <= marks[place].end:
            seconds[place] += duration * 1e-9
            counts[place] += 1
    return [DeviceCost(*cost) for cost in zip(seconds, counts, strict=True)]
