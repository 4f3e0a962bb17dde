"""What a process takes of a device before there is a model: memory and time of its context, with the libraries at work
in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.fresh_processes import EndedEarly, Fresh


class DeviceOverhead(NamedTuple):
    """Bytes. context: of the device's memory, beyond what torch's allocator holds; workspace: what libraries keep of
    what that hands out (cuBLAS's room for products), which torch.cuda.memory_allocated counts. start_seconds: from
    when a process first asks for the device until the libraries have worked."""

    context: int
    workspace: int
    start_seconds: float


def measure_overhead(device: str) -> DeviceOverhead | None:
    """By another process that begins to use it, and holds it while this one looks at how much is free: what others hold
    meanwhile is in neither figure. None where no process can be forked, or this one sees no difference."""
    if not fresh_processes.prepare():
        return None
    try:
        fresh_processes.wait_until_ready()
        before = torch.cuda.mem_get_info(device)[0]
        other = Fresh(_use, (device,))
        try:
            reserved, workspace, seconds = other.ask(None)
            context = before - torch.cuda.mem_get_info(device)[0] - reserved
        finally:
            other.end()
    except (EndedEarly, RuntimeError):
        return None
    return DeviceOverhead(context, workspace, seconds) if context > 0 else None


def _use(serve: Callable[[Callable[[Any], object]], object], device: str) -> None:
    """In the other process."""
    begun = time.perf_counter()
    _run_each_library(torch.device(device))
    seconds = time.perf_counter() - begun
    held = torch.cuda.memory_allocated(device)
    torch.cuda.empty_cache()
    found = torch.cuda.memory_reserved(device), held, seconds
    serve(lambda _: found)


def _run_each_library(device: torch.device) -> None:
    """Products with and without a bias, a convolution, and their gradients. Nothing of it is left but workspaces."""
    rows = torch.randn(64, 64, device=device, requires_grad=True)
    bias = torch.randn(64, device=device, requires_grad=True)
    functional.linear(rows @ rows, rows, bias).sum().backward()
    image = torch.randn(2, 8, 16, 16, device=device)
    kernel = torch.randn(8, 8, 3, 3, device=device, requires_grad=True)
    functional.conv2d(image, kernel, padding=1).sum().backward()
    torch.cuda.synchronize(device)
