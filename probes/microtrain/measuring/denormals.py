"""Numbers too small for a full fraction (denormals): how many a step makes. Many CPUs compute with them slowly."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from probes.microtrain.step import Step

# fp16's own denormals are no matter: a CPU computes in fp32 on them.
_DTYPES = {torch.float32, torch.float64, torch.bfloat16}


class DenormalCounter(TorchDispatchMode):
    """Looks at every operation's results. Off the clock: that takes several times longer than the step."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0
        self.denormal = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            self.look_at(leaf)
        return result

    def look_at(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.dtype in _DTYPES and value.layout is torch.strided:
            self.numbers += value.numel()
            self.denormal += count_denormals(value)


def count_denormals(tensor: torch.Tensor) -> int:
    """As arithmetic here sees them: none where they are flushed."""
    size = tensor.detach().abs()
    return int(((size > 0) & (size < torch.finfo(tensor.dtype).tiny)).sum())


def measure_denormal_share(step: Step) -> float:
    """Runs one real step on the CPU: the share of denormals among its operations' results and the weights it leaves."""
    with DenormalCounter() as counter:
        step.compute(step.feed.next())
    for parameter in step.module.parameters():
        counter.look_at(parameter)
    return counter.denormal / counter.numbers if counter.numbers else 0.0
