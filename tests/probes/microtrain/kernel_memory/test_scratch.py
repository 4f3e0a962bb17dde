"""At which batch sizes a kernel is tried: as large as there is time for."""

from __future__ import annotations

import pytest
import torch

from probes.microtrain.kernel_memory import slow_kernels
from probes.microtrain.kernel_memory.kernel_calls import Call, Shape, call_of
from probes.microtrain.kernel_memory.kernel_trials import Taken
from probes.microtrain.kernel_memory.scratch import Budget, Inside
from probes.microtrain.kernel_memory.slow_kernels import SlowKernels

aten = torch.ops.aten
WIDE = 2048


def product(rows: int) -> Call:
    operands = tuple(torch.zeros(size, WIDE, dtype=torch.bfloat16) for size in (rows, WIDE))
    costs = (2 * rows * WIDE * WIDE, 2 * WIDE * (2 * rows + WIDE), 2**16)
    call = call_of(aten.mm.default, "matmul", "bfloat16", operands, {}, costs)
    assert call is not None
    return call


@pytest.mark.parametrize(("compiled", "tried"), [(0.001, True), (0.09, False)])
def test_what_a_library_does_at_a_first_run_keeps_no_larger_batch_from_being_tried(
    monkeypatch: pytest.MonkeyPatch, compiled: float, tried: bool
) -> None:
    """Seconds of two samples, of which oneDNN compiling the kernel is most, say nothing of sixty-four."""
    ran: list[int] = []

    def run(call: Call) -> Taken:
        rows = next(each for each in call.arguments if isinstance(each, Shape)).sizes[0]
        seconds = compiled if rows in ran else 0.09
        ran.append(rows)
        return Taken(1000 * rows if rows < 64 else 5000, 0, (), (), seconds)

    for name in ("measure_call", "run_call"):
        monkeypatch.setattr(slow_kernels, name, run)
    monkeypatch.setattr(slow_kernels, "KNOWN", SlowKernels())
    slow_kernels.seconds_once_compiled.cache_clear()
    inside, budget = Inside((16, 32), product(16), product(32)), Budget()
    assert [inside.at(size, budget) for size in (1, 2)] == [1000, 2000]
    assert (inside.at(64, budget) == 5000) is tried
