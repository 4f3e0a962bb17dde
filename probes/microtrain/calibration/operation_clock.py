"""Times every operation of real steps where it runs, between the others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from probes.context import ContextOperation, OperationCost
from probes.issued import Issued
from probes.measurement import Timing
from probes.microtrain.kernel_memory.kernel_calls import is_whole_layer
from probes.microtrain.processes.footprint import count_page_faults
from probes.microtrain.step import Step
from probes.microtrain.timing import significant
from probes.microtrain.traces.decomposing import casting_as_asked, taken_apart
from probes.microtrain.traces.issuing import IssueCounter
from probes.microtrain.traces.recording import SILENT, Record, Recorder, is_composite
from probes.microtrain.traces.sparse_states import sparse_states
from probes.microtrain.traces.unwatched import as_unwatched, unheld

# Visits of one network whose operations take no more than so many times the quickest one's are of calm minutes alike:
# chosen, a little above what two processes of a plan may differ by (app.advisor.time_model.intervals).
ALIKE = 1.15
# Pages more than in another step: to find so many takes some 20 us (1.0 to 1.7 each on an EPYC, Zen 4).
MANY_FRESH = 16


class EachOperation(TorchDispatchMode):
    """Hands every operation of a step to `_run`. It takes composite operations apart as Recorder does, so that all see
    the same ones. device: see Recorder."""

    def __init__(self, *, device: str = "cpu") -> None:
        super().__init__()
        unheld()  # for as_unwatched
        self._device = device

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        func = as_unwatched(func, args, kwargs)
        if func.namespace in SILENT:
            return func(*args, **kwargs)
        if is_composite(func, self._device):
            with self:
                parts = taken_apart(func, args, kwargs, self._device)
            if parts is not NotImplemented:
                return parts
        if is_whole_layer(func):
            with casting_as_asked(self._device):
                return self._run(func, args, kwargs)
        return self._run(func, args, kwargs)

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class ClockedStep(NamedTuple):
    """Of each operation in the order they ran: seconds, and the page faults it met, none where nobody counted."""

    seconds: Sequence[float]
    faults: Sequence[int] = ()


class OperationClock(EachOperation):
    """Seconds and page faults of each operation in the order they ran. What it costs itself lies between the
    operations, not in them. On a device it is what issuing takes, as long as its queue is not full."""

    def __init__(self, *, device: str = "cpu") -> None:
        super().__init__(device=device)
        self.seconds: list[float] = []
        self.faults: list[int] = []

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before, begun = count_page_faults(), time.perf_counter()
        result = func(*args, **kwargs)
        self.seconds.append(time.perf_counter() - begun)
        self.faults.append(count_page_faults() - before)
        return result


def record_step(step: Step) -> tuple[list[Record], Issued]:
    """What a real step runs, in order, and what issues it."""
    counter = IssueCounter()
    recorder = _recorder(step, counter)
    with recorder, counter.running():
        step()
    return recorder.records, counter.issued


def record_operations(step: Step) -> list[Record]:
    """What a real step runs, in order: a quarter of the time that counting what issues it takes."""
    with _recorder(step) as recorder:
        step()
    return recorder.records


def _recorder(step: Step, counter: IssueCounter | None = None) -> Recorder:
    sparse = sparse_states(step.module, step.optimizer)
    return Recorder(issuing=counter, sparse=sparse, device=step.device.type)


def clock_step(step: Step) -> ClockedStep:
    """Each operation of one step."""
    with OperationClock(device=step.device.type) as clock:
        step()
    return ClockedStep(clock.seconds, clock.faults)


def merge_costs(records: Sequence[Record], clocked: Sequence[ClockedStep]) -> tuple[OperationCost, ...]:
    """Equal operations in one row; all rows add up to what the operations of a step took together (the median step).
    Medians of operations do not: each is now and then slow, another one in every step, and together they were 1 to 5 %
    short of it. clocked: steps of another length ran something else and are not counted. Empty when nothing is left."""
    steps = _settled([step for step in clocked if len(step.seconds) == len(records)])
    if not steps:
        return ()
    places: dict[ContextOperation, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        places[_operation(record)].append(place)
    typical = {each: median(sum(step[place] for place in ran) for step in steps) for each, ran in places.items()}
    apart = sum(typical.values())
    together = median(map(sum, steps)) / apart if apart else 1.0
    return tuple(
        _cost(each, typical[each] * together / len(ran), [step[place] for place in ran for step in steps], len(ran))
        for each, ran in places.items()
    )


def _settled(steps: Sequence[ClockedStep]) -> list[list[float]]:
    """Seconds of each step's operations. What found many more fresh pages than in another step is taken to be as it was
    where it did not: they are counted and priced apart, and while a heap grows an operation takes three times as
    long."""
    seconds = [list(step.seconds) for step in steps]
    if not all(step.faults for step in steps):
        return seconds
    for place, faults in enumerate(zip(*(step.faults for step in steps), strict=True)):
        few = [found <= min(faults) + MANY_FRESH for found in faults]
        if not all(few):
            usual = median(step[place] for step, is_settled in zip(seconds, few, strict=True) if is_settled)
            for step, is_settled in zip(seconds, few, strict=True):
                step[place] = step[place] if is_settled else usual
    return seconds


def still_grows(steps: Sequence[ClockedStep]) -> bool:
    """Whether an operation found fresh pages in every one of these steps, as in those that make a heap grow."""
    faults = [step.faults for step in steps if step.faults]
    return any(min(of_operation) >= MANY_FRESH for of_operation in zip(*faults, strict=False))


def _operation(record: Record) -> ContextOperation:
    r = record
    return ContextOperation(r.name, r.kind, r.variant, r.dtype, r.flops, r.read_bytes, r.written_bytes, r.grain)


def _cost(operation: ContextOperation, seconds: float, samples: list[float], count: int) -> OperationCost:
    timing = Timing.from_samples(samples)
    spread = (timing.high - timing.low) / 2 / timing.median
    return OperationCost(operation, count, significant(seconds, 4), significant(round(spread, 2), 4))


def quieter_costs(visits: Sequence[Sequence[OperationCost]]) -> tuple[OperationCost, ...]:
    """Means of the visits that took nearly as long as the quickest; a burst leaves those out that it met."""
    totals = [sum(cost.seconds * cost.times for cost in costs) for costs in visits]
    found: dict[ContextOperation, list[OperationCost]] = defaultdict(list)
    for costs, total in zip(visits, totals, strict=True):
        if total <= ALIKE * min(totals):
            for cost in costs:
                found[cost.operation].append(cost)
    return tuple(
        costs[0]._replace(seconds=significant(geometric_mean(cost.seconds for cost in costs), 4))
        for costs in found.values()
    )
