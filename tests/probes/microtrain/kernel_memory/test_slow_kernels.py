"""What takes long on this machine is tried once, and not again for every call like it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from probes.allocations import RESULT, KernelAllocations
from probes.microtrain.kernel_memory import kernel_allocations, slow_kernels
from probes.microtrain.kernel_memory.kernel_calls import Call, Shape, call_of
from probes.microtrain.kernel_memory.kernel_trials import Taken, measure_call
from probes.microtrain.kernel_memory.slow_kernels import SlowKernels, Trial, Work
from probes.microtrain.tracing import trace_workload
from probes.trace import Affine, Trace
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.kernel_memory.enough_time import give_time

aten = torch.ops.aten
DENSE = Work(flops=1e9, moved=1e7, read=4e6)
DEPTHWISE = Work(flops=1e7, moved=1e7, read=4e6)
SOME = {
    "layers": [
        *({"type": "conv2d", "out": out, "kernel": 3, "padding": 1} for out in (16, 24, 32, 40)),
        "global_avg_pool",
        {"type": "linear", "out": 5},
    ],
    "input_shape": [3, 24, 24],
}


def call(dtype: torch.dtype = torch.bfloat16) -> Call:
    arguments = (Shape((4, 8), (0, 1), dtype), Shape((8, 4), (0, 1), dtype))
    return Call(aten.mm.default, arguments, (), 0, 0, 0, 0, made=0, copies=False, inference=False, autocast=False)


def test_what_was_never_slow_is_never_expected_to_be() -> None:
    known = SlowKernels()
    assert known.seconds(call(), DENSE) == 0.0
    known.learn(call(), Trial(DENSE, 0.02, 4e6))  # a first run, perhaps: so much for so little says nothing of more
    assert known.seconds(call(), Work(1e12, 1e10, 4e9)) == 0.0


def test_a_slow_one_tells_of_those_like_it_by_what_they_do() -> None:
    known = SlowKernels()
    known.learn(call(), Trial(DENSE, 0.8, 2e6))
    half = Work(flops=5e8, moved=5e6, read=2e6)
    assert known.seconds(call(), half) == pytest.approx(0.4)
    assert known.seconds(call(), DEPTHWISE) == 0.0  # another pace
    assert known.seconds(call(torch.float32), DENSE) == 0.0
    assert known.inside(call(), half) == 1e6
    assert known.inside(call(), DEPTHWISE) is None


def test_the_quickest_of_its_kind_counts() -> None:
    known = SlowKernels()
    known.learn(call(), Trial(DENSE, 0.8, 2e6))
    known.learn(call(), Trial(Work(2e9, 2e7, 8e6), 0.02, 4e6))  # so the first was slow for something else
    assert known.seconds(call(), DENSE) == pytest.approx(0.01)


def test_what_took_too_long_for_any_kernel_says_nothing_of_others() -> None:
    known = SlowKernels()
    small = Work(flops=1e4, moved=4e4, read=1e3)
    known.learn(call(), Trial(small, 0.3, 950))
    assert known.seconds(call(), Work(1e8, 4e8, 1e7)) == 0.0
    assert known.inside(call(), small) is None


def test_convolutions_go_by_how_they_are_grouped() -> None:
    def convolution(channels: int, groups: int) -> Call:
        shapes = tuple(Shape(sizes, (0, 1, 2, 3), torch.bfloat16) for sizes in ((4, 8, 9, 9), (8, channels, 3, 3)))
        arguments = (*shapes, None, (1, 1), (0, 0), (1, 1), False, (0, 0), groups)
        return call()._replace(operation=aten.convolution.default, arguments=arguments)

    known = SlowKernels()
    known.learn(convolution(8, 1), Trial(DENSE, 0.8, 2e6))
    assert known.seconds(convolution(8, 1), DENSE) == pytest.approx(0.8)
    for channels, groups in ((4, 2), (1, 8)):
        assert known.seconds(convolution(channels, groups), DENSE) == 0.0
    known.learn(convolution(1, 8), Trial(DENSE, 0.4, 1e6))
    assert known.inside(convolution(1, 8), DENSE) == 1e6
    assert known.inside(convolution(8, 1), DENSE) == 2e6
    assert known.inside(convolution(4, 2), DENSE) is None


def test_unfolded_images_are_followed_where_the_trial_had_room_for_them() -> None:
    """Else it goes with what is read; of trials of several sizes the nearest tells."""
    known = SlowKernels()
    small, large = Work(1e8, 1e6, 1e6, unfolded=9e6), Work(1e9, 1e7, 1e7, unfolded=9e7)
    known.learn(call(), Trial(small, 0.8, 9e6))
    known.learn(call(), Trial(large, 0.8, 2e7))
    assert known.inside(call(), Work(2e8, 2e6, 1.5e6, unfolded=2.7e7)) == pytest.approx(2.7e7)
    assert known.inside(call(), Work(2e9, 2e7, 2e7, unfolded=5e8)) == pytest.approx(4e7)


def traced(monkeypatch: pytest.MonkeyPatch) -> tuple[Trace, Counter[object]]:
    """And how often each operation was tried in fp32 and bf16 together."""
    tried: Counter[object] = Counter()

    def counted(each: Call) -> Taken:
        tried[each.operation] += 1
        return measure_call(each)

    monkeypatch.setattr(slow_kernels, "measure_call", counted)
    monkeypatch.setattr(slow_kernels, "KNOWN", SlowKernels())
    return trace_workload(Workload(parse_model(SOME), 4)), tried


def test_a_machine_on_which_every_kernel_is_slow_tries_few(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        give_time(patch.setattr)
        all_tried, often = traced(patch)
    monkeypatch.setattr(slow_kernels, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(slow_kernels, "MAX_SECONDS_EACH", math.inf)
    trace, seldom = traced(monkeypatch)
    for operation in (aten.convolution.default, aten.convolution_backward.default):
        assert 0 < seldom[operation] < often[operation] / 3
    for knots, others in (
        (trace.kernel_peaks, all_tried.kernel_peaks),
        (trace.autocast_kernel_peaks, all_tried.autocast_kernel_peaks),
    ):
        assert knots[0].bytes == pytest.approx(others[0].bytes, rel=0.5)
        assert knots[-1].bytes == pytest.approx(others[-1].bytes, rel=0.5)


def test_of_a_loop_inside_a_kernel_the_first_allocations_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_allocations, "MOST_ALLOCATIONS", 2)
    line = Affine(8.0, 1.0)
    looped = KernelAllocations((line,) * 4, (0, 0, 1, 0, RESULT, 3, 2, 0, 4))
    assert kernel_allocations._shortened(looped) == KernelAllocations((line,) * 2, (0, 0, 1, RESULT, 2))
    short = KernelAllocations((line,), (0, 1))
    assert kernel_allocations._shortened(short) is short


@pytest.mark.parametrize(("first", "again", "is_told_slow"), [(0.2, 0.01, False), (0.2, 0.19, True), (2.0, None, True)])
def test_a_first_run_that_took_long_is_no_slow_kernel(
    monkeypatch: pytest.MonkeyPatch, first: float, again: float | None, is_told_slow: bool
) -> None:
    """oneDNN compiles it then; what takes far too long is not run once more."""
    left = torch.zeros(8, 4096, dtype=torch.bfloat16)
    right = torch.zeros(4096, 4096, dtype=torch.bfloat16)
    flops, moved = 2 * 8 * 4096 * 4096, 2 * 4096 * 4096
    call = call_of(aten.mm.default, "matmul", "bfloat16", (left, right), {}, (flops, moved, 2**16))
    assert call is not None
    seconds = iter([first, *([] if again is None else [again])])

    def run(_: Call) -> Taken:
        return Taken(0, 0, (), (), next(seconds))

    for name in ("measure_call", "run_call"):
        monkeypatch.setattr(slow_kernels, name, run)
    monkeypatch.setattr(slow_kernels, "KNOWN", SlowKernels())
    slow_kernels.seconds_once_compiled.cache_clear()
    slow_kernels.try_at((8, 16), call, call, 8)
    assert slow_kernels.is_slow((8, 16), call, call, 8) is is_told_slow
    assert next(seconds, None) is None
