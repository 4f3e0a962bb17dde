"""Counts the operations that reach torch's dispatcher below autograd; the host pays for issuing each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from probes.microtrain.step import Step


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Operations that one step dispatches: in forward, loss and backward, and in the optimizer's step."""

    model: int
    optimizer: int


class OperationCounter(TorchDispatchMode):
    """Hands each operation on unchanged. Off the clock: each takes many times longer."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def count_dispatches(action: Callable[[], object]) -> int:
    """Operations of one call."""
    with OperationCounter() as counter:
        action()
    return counter.count


def count_operations(step: Step) -> OperationCounts:
    """Runs one real step and counts."""
    batch = step.feed.next()
    before_optimizer: list[int] = []
    handle = None
    with OperationCounter() as counter:
        if step.optimizer is not None:
            handle = step.optimizer.register_step_pre_hook(lambda *_: before_optimizer.append(counter.count))
        try:
            step.compute(batch)
        finally:
            if handle is not None:
                handle.remove()
    model = before_optimizer[0] if before_optimizer else counter.count
    return OperationCounts(model, counter.count - model)
