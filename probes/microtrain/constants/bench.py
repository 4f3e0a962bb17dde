"""One point of a profile that is still to be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from probes.workload.description import Plan

Effort = Literal["quick", "full"]
Action = Callable[[], object]

# What autocast computes heavy operations in, and what flows between them then.
DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True)
class Bench:
    """One execution of `make()()` is what the point tells the seconds of.

    make: allocates, and gives the action; called once, when its turn comes: what that holds is held until all benches
    of its constant are done, which take turns.
    executions: how many a call of the action counts for (0 of nothing: an action may run a whole network of them).
    """

    constant: str
    plan: Plan
    parameters: dict[str, float]
    make: Callable[[], Action]
    flops: float = 0.0
    bytes: float = 0.0
    executions: float = field(default=1.0)

    @property
    def device(self) -> torch.device:
        return torch.device(self.plan.device)

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.plan.precision]


def element_bytes(plan: Plan) -> int:
    """Bytes of one element as operations see it under this plan."""
    return DTYPES[plan.precision].itemsize


def random_tensor(plan: Plan, *shape: int) -> torch.Tensor:
    """Normal values in the plan's precision, on its device."""
    return torch.randn(*shape, device=torch.device(plan.device)).to(DTYPES[plan.precision])
