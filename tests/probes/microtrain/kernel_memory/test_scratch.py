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


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of the products that ran; each took 0.09 s at first and 1 ms from then on, and 1,000 bytes a row."""
    rows_run: list[int] = []

    def run(call: Call) -> Taken:
        rows = next(each for each in call.arguments if isinstance(each, Shape)).sizes[0]
        seconds = 0.001 if rows in rows_run else 0.09
        rows_run.append(rows)
        return Taken(1000 * rows if rows < 64 else 5000, 0, (), (), seconds)

    for name in ("measure_call", "run_call"):
        monkeypatch.setattr(slow_kernels, name, run)
    monkeypatch.setattr(slow_kernels, "KNOWN", SlowKernels())
    slow_kernels.seconds_once_compiled.cache_clear()
    return rows_run


def test_what_a_library_does_at_a_first_run_keeps_no_larger_batch_from_being_tried(ran: list[int]) -> None:
    """Seconds of two samples, of which oneDNN compiling the kernel is most, say nothing of sixty-four."""
    inside, budget = Inside((16, 32), product(16), product(32)), Budget()
    assert [inside.at(size, budget) for size in (1, 2, 64)] == [1000, 2000, 5000]
    assert ran == [1, 2, 2, 64]


def test_where_all_time_is_used_up_nothing_runs_again(ran: list[int]) -> None:
    inside, budget = Inside((16, 32), product(16), product(32)), Budget()
    budget.spend(1.0)
    assert [inside.at(size, budget) for size in (1, 2, 64)] == [1000, 2000, 64000]
    assert len(set(ran)) == len(ran)


def test_a_kernel_that_takes_more_than_its_bound_is_in_line_with_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it makes inside need not show in what it reads and writes: its trials say more than the bound does, whether
    they are many or two."""

    def run(call: Call) -> Taken:
        return Taken(10**9 * next(each for each in call.arguments if isinstance(each, Shape)).sizes[0], 0, (), (), 0.09)

    for name in ("measure_call", "run_call"):
        monkeypatch.setattr(slow_kernels, name, run)
    monkeypatch.setattr(slow_kernels, "KNOWN", SlowKernels())
    slow_kernels.seconds_once_compiled.cache_clear()
    inside, budget = Inside((16, 32), product(16), product(32)), Budget()
    budget.spend(1.0)
    assert [inside.at(size, budget) for size in (1, 2, 64, 1000)] == [10**9, 2 * 10**9, 64 * 10**9, 10**12]
    assert inside.bound_at(1000) == 10**12
    assert inside.bound_at(1) >= 10**9
