"""Copies between host and device, and what waiting for the device costs. CUDA only."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch

from probes.microtrain.constants.bench import Action, Bench, Effort
from probes.workload.description import Plan

SIZES_QUICK = (1 << 10, 1 << 16, 1 << 20, 1 << 24)  # bytes
SIZES_FULL = (1 << 8, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)


def is_spokesman(plan: Plan) -> bool:
    """One plan a device: what is measured here depends on neither precision nor threads."""
    return plan.precision == "fp32" and plan.threads in (None, 1)


def transfer(plan: Plan, effort: Effort) -> list[Bench]:
    """From asking for the copy to its end, both ways, from pageable and from pinned memory."""
    if plan.is_cpu or not is_spokesman(plan):
        return []
    sizes = SIZES_QUICK if effort == "quick" else SIZES_FULL
    buffers = Buffers()
    return [
        _copy_bench(plan, size, buffers, pinned=pinned, to_device=to_device)
        for size in sizes
        for pinned in (False, True)
        for to_device in (True, False)
    ]


class Buffers:
    """Of bytes, one of each kind and size, gone with the last bench that copies from or to it: those of all sizes are
    hundreds of megabytes, on the host and on the card."""

    def __init__(self) -> None:
        self._living: WeakValueDictionary[tuple[int, str, bool], torch.Tensor] = WeakValueDictionary()

    def take(self, size: int, device: str, *, pinned: bool = False) -> torch.Tensor:
        key = (size, device, pinned)
        buffer = self._living.get(key)
        if buffer is None:
            buffer = torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned)
            self._living[key] = buffer
        return buffer


def _copy_bench(plan: Plan, size: int, buffers: Buffers, *, pinned: bool, to_device: bool) -> Bench:
    device = torch.device(plan.device)

    def make() -> Action:
        host, there = buffers.take(size, "cpu", pinned=pinned), buffers.take(size, plan.device)
        target, source = (there, host) if to_device else (host, there)

        def run() -> None:
            target.copy_(source, non_blocking=pinned)
            torch.cuda.synchronize(device)

        return run

    parameters = {"bytes": float(size), "pinned": float(pinned), "to_device": float(to_device)}
    return Bench("transfer", plan, parameters, make, 0.0, float(size))


def synchronize(plan: Plan, effort: Effort) -> list[Bench]:
    """`.item()` of a scalar when there is nothing left to do; on a CPU too, where it is a function call."""
    if not is_spokesman(plan):
        return []

    def make() -> Action:
        return torch.zeros((), device=torch.device(plan.device)).item

    return [Bench("synchronize", plan, {}, make)]


def launch(plan: Plan, effort: Effort) -> list[Bench]:
    """The smallest kernel from its issue to its end, on an idle device."""
    if plan.is_cpu or not is_spokesman(plan):
        return []
    device = torch.device(plan.device)

    def make() -> Action:
        value = torch.zeros(1, device=device)

        def run() -> None:
            value.add_(1.0)
            torch.cuda.synchronize(device)

        return run

    return [Bench("launch", plan, {}, make)]
