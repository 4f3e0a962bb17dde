"""Times every operation of real steps where it runs, between the others."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median_low
from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from probes.context import ContextOperation, OperationCost
from probes.issued import Issued
from probes.measurement import Timing
from probes.microtrain.issuing import IssueCounter
from probes.microtrain.kernel_calls import is_whole_layer
from probes.microtrain.recording import SILENT, Record, Recorder, decompose, is_composite, under_autocast
from probes.microtrain.sparse_states import sparse_states
from probes.microtrain.step import Step
from probes.microtrain.timing import significant


class EachOperation(TorchDispatchMode):
    """Hands every operation of a step to `_run`. It takes composite operations apart as Recorder does, so that all see
    the same ones. autocast, device: see Recorder."""

    def __init__(self, *, autocast: bool = False, device: str = "cpu") -> None:
        super().__init__()
        self._autocast = autocast
        self._device = device

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in SILENT:
            return func(*args, **kwargs)
        if is_composite(func, self._device):
            with self, self._casting() if self._autocast else nullcontext():
                parts = decompose(func, args, kwargs)
            if parts is not NotImplemented:
                return parts
        if self._autocast and is_whole_layer(func):
            with self._casting():
                return self._run(func, args, kwargs)
        return self._run(func, args, kwargs)

    def _casting(self) -> AbstractContextManager[Any]:
        return under_autocast(self._device)

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class OperationClock(EachOperation):
    """Seconds of each operation in the order they ran. What it costs itself lies between the operations, not in them.
    On a device it is what issuing takes, as long as its queue is not full."""

    def __init__(self, *, autocast: bool = False, device: str = "cpu") -> None:
        super().__init__(autocast=autocast, device=device)
        self.seconds: list[float] = []

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        begun = time.perf_counter()
        result = func(*args, **kwargs)
        self.seconds.append(time.perf_counter() - begun)
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
    return Recorder(autocast=step.casts, issuing=counter, sparse=sparse, device=step.device.type)


def clock_step(step: Step) -> list[float]:
    """Seconds of each operation of one step."""
    with OperationClock(autocast=step.casts, device=step.device.type) as clock:
        step()
    return clock.seconds


def merge_costs(records: Sequence[Record], clocked: Sequence[Sequence[float]]) -> tuple[OperationCost, ...]:
    """Equal operations in one row. clocked: one list a step; those of another length ran something else and are not
    counted. Empty when nothing is left."""
    steps = [seconds for seconds in clocked if len(seconds) == len(records)]
    groups: dict[ContextOperation, list[float]] = defaultdict(list)
    counts: Counter[ContextOperation] = Counter()
    for place, record in enumerate(records):
        operation = _operation(record)
        groups[operation] += [seconds[place] for seconds in steps]
        counts[operation] += 1
    return tuple(_cost(operation, counts[operation], samples) for operation, samples in groups.items() if samples)


def _operation(record: Record) -> ContextOperation:
    r = record
    return ContextOperation(r.name, r.kind, r.variant, r.dtype, r.flops, r.read_bytes, r.written_bytes, r.grain)


def _cost(operation: ContextOperation, count: int, samples: list[float]) -> OperationCost:
    timing = Timing.from_samples(samples)
    spread = (timing.high - timing.low) / 2 / timing.median
    return OperationCost(operation, count, significant(median_low(samples), 4), significant(round(spread, 2), 4))


def quieter_costs(visits: Sequence[Sequence[OperationCost]]) -> tuple[OperationCost, ...]:
    """Of each operation the visit in which it was faster: a burst meets some operations of some steps."""
    found: dict[ContextOperation, OperationCost] = {}
    for cost in (cost for costs in visits for cost in costs):
        known = found.get(cost.operation)
        if known is None or cost.seconds < known.seconds:
            found[cost.operation] = cost
    return tuple(found.values())
