"""What kernels take on a device, below its roof."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

import benchmarks
from app.advisor.operation_prices.kernel_prices import KernelPrices, kernel_prices
from app.advisor.operation_prices.roofs import KERNELS_OF
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.predicted import model_of_plan
from probes.context import Clock, Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.points import Point
from probes.profile import Profile
from probes.workload.description import MODES, Plan

CARD = Plan("cuda:0", "fp32")
ADD = ContextOperation("aten.add", "elementwise", "", "float32", 0.0, 800.0, 400.0)
RATE, BANDWIDTH, FLOOR = 1e13, 1e12, 2e-6


def point(constant: str, flops: float, moved: float, seconds: float) -> Point:
    return Point(constant, CARD, {}, flops, moved, Timing.from_samples([seconds] * 3))


POINTS = [
    point("matmul", 1e9, 1e6, 1e9 / RATE),
    point("matmul", 1e8, 1e5, 1e8 / RATE),
    point("matmul", 1e6, 1e4, 1e-5),  # too small to show the rate
    point("bandwidth", 0.0, 1e10, 1e10 / BANDWIDTH),
    point("bandwidth", 0.0, 1e8, 1e8 / BANDWIDTH),
]


def sized(megabytes: float) -> ContextOperation:
    return ADD._replace(read_bytes=0.6e6 * megabytes, written_bytes=0.4e6 * megabytes)


def clocked(network: str, operations: dict[ContextOperation, float], clock: Clock = "device") -> Context:
    costs = tuple(OperationCost(operation, 1, seconds, 0.0) for operation, seconds in operations.items())
    return Context(network, 4, "training", CARD, costs, clock=clock)


def prices_of(*contexts: Context) -> KernelPrices:
    found = kernel_prices(contexts, POINTS)
    assert found is not None
    return found


def twice_the_roof(megabytes: float) -> float:
    return 2 * (FLOOR + 1e6 * megabytes / BANDWIDTH)


def test_a_kernel_takes_so_many_times_the_roof_as_its_like_at_sizes_that_were_never_clocked() -> None:
    floor = clocked("floor", {ADD._replace(name="aten.fill"): FLOOR})
    rows = {sized(megabytes): twice_the_roof(megabytes) for megabytes in (0.01, 0.1, 1, 10)}
    prices = prices_of(floor, clocked("a", rows))
    for megabytes in (0.03, 3, 300):
        assert prices.seconds(sized(megabytes)) == pytest.approx(twice_the_roof(megabytes), rel=0.15)


@pytest.mark.parametrize(("quickest", "least"), [(1.05, 1.0), (0.8, 0.8)])
def test_far_from_all_that_was_clocked_a_kernel_is_no_quicker_than_the_roof_or_the_quickest(
    quickest: float, least: float
) -> None:
    """They come nearer to the roof the larger they are, and would go on through it."""
    floor = clocked("floor", {ADD._replace(name="aten.fill"): FLOOR})
    times = {10: 8.0, 100: 3.0, 1000: quickest}
    rows = {sized(megabytes): ratio * (FLOOR + 1e6 * megabytes / BANDWIDTH) for megabytes, ratio in times.items()}
    prices = prices_of(floor, clocked("a", rows))
    far = sized(100_000)
    for without in (None, "floor"):
        assert prices.seconds(far, without) == pytest.approx(least * prices.roof.seconds(far))


def test_of_a_kernel_larger_than_all_of_its_like_it_is_told_how_much_quicker_it_may_be() -> None:
    """Down to what the largest of them took, or to the roof."""
    times_as_long = 20.0
    rows = {sized(size): times_as_long * (FLOOR + 1e6 * size / BANDWIDTH) for size in (1, 10)}
    prices = prices_of(clocked("floor", {ADD._replace(name="aten.fill"): FLOOR}), clocked("a", rows))
    largest = prices.seconds(sized(10))
    for size in (0.1, 1, 10):
        assert prices.doubt(sized(size)) == pytest.approx((0, 0), abs=0.2)
    near, far = sized(40), sized(10_000)
    assert prices.seconds(near) * math.exp(-prices.doubt(near).quicker) == pytest.approx(largest, rel=0.2)
    assert prices.seconds(far) * math.exp(-prices.doubt(far).quicker) == pytest.approx(prices.roof.seconds(far))
    assert [prices.doubt(each).slower for each in (near, far)] == pytest.approx([0, 0])


def test_the_roof_is_the_best_that_was_measured() -> None:
    roof = prices_of(clocked("a", {ADD: FLOOR})).roof
    assert roof.floor == FLOOR
    assert [roof.flops.best, roof.bandwidth.best] == pytest.approx([RATE, BANDWIDTH])
    product = ContextOperation("aten.mm", "matmul", "", "float32", 1e10, 1e6, 1e6)
    assert roof.seconds(product) == pytest.approx(FLOOR + 1e10 / RATE)


def test_a_recurrent_layers_steps_wait_for_each_other() -> None:
    roof = prices_of(clocked("a", {ADD: FLOOR})).roof
    layer = ContextOperation("aten._cudnn_rnn", "recurrent", "", "float32", 1e6, 1e4, 1e4, 50.0)
    assert roof.seconds(layer) > 50 * FLOOR
    assert roof.seconds(layer._replace(grain=100.0)) == pytest.approx(2 * roof.seconds(layer), rel=0.01)


@pytest.mark.parametrize("name", ["aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention"])
def test_many_kernels_in_one_are_no_slow_kernel_where_they_are_large(name: str) -> None:
    """Clocked once, where each of its kernels takes three times the shortest, as short ones do."""
    tiny = ContextOperation(name, "attention", "wide", "float32", 1e5, 2e4, 1e4)
    large = tiny._replace(flops=1e11, read_bytes=2e9, written_bytes=1e9)
    least = FLOOR * KERNELS_OF[name]
    prices = prices_of(clocked("a", {ADD: FLOOR}), clocked("b", {tiny: 3 * least}))
    assert prices.seconds(tiny) == pytest.approx(3 * least, rel=0.2)
    assert 1.0 < prices.seconds(large) / prices.roof.seconds(large) < 3.5


def test_left_out_a_network_tells_nothing_and_a_view_takes_nothing() -> None:
    prices = prices_of(
        clocked("a", {ADD: FLOOR, sized(1): 1e-5}), clocked("b", {sized(1): 8e-5}), clocked("c", {sized(0.9): 1e-5})
    )
    assert prices.seconds(sized(1), "b") == pytest.approx(1e-5, rel=0.3)
    assert prices.seconds(sized(1)) > 1.5 * prices.seconds(sized(1), "b")
    assert prices.seconds(ADD._replace(kind="view")) == 0.0


def test_a_name_that_was_never_clocked_is_priced_by_its_kind_and_the_hosts_clock_is_no_kernels() -> None:
    fill = ADD._replace(name="aten.fill", kind="copy")
    prices = prices_of(clocked("a", {sized(1): 1e-5, fill: FLOOR}), clocked("b", {sized(1): 1.0}, clock="host"))
    assert prices.seconds(sized(1)._replace(name="aten.sub")) == pytest.approx(1e-5, rel=0.2)
    assert kernel_prices([clocked("b", {ADD: 1.0}, clock="host")], POINTS) is None
    assert kernel_prices([clocked("a", {ADD: FLOOR})], []) is None


def test_a_context_without_operations_is_no_floor() -> None:
    """A profile that somebody else wrote may hold one."""
    assert prices_of(clocked("empty", {}), clocked("a", {ADD: FLOOR})).roof.floor == FLOOR
    assert kernel_prices([clocked("empty", {})], POINTS) is None


H200 = Path(benchmarks.__file__).parent / "results" / "2026-11-26-nvidia-h200-xeon-16-cores"


def test_every_plan_of_a_real_card_has_a_model() -> None:
    """An NVIDIA H200's calibrations."""
    files = sorted(H200.glob("profile_*.json.gz"), reverse=True)
    profile = pool([Profile.from_json(json.loads(gzip.decompress(path.read_bytes()))) for path in files])
    plans = {each.plan.key: each.plan for each in profile.networks if not each.plan.is_cpu}
    assert {plan.precision for plan in plans.values()} == {"fp32", "tf32", "bf16", "fp16"}
    for plan in plans.values():
        for mode in MODES:
            model = model_of_plan(profile, plan, mode)
            assert model is not None
            assert model.prices.issuing is not None
            assert model.prices.kernels is not None
            assert all(math.isfinite(factor) and factor > 0 for factor in model.fit.factors)
            assert 0.1 < model.fit.spread < 1.5
            assert len(model.fit.left_out) >= 10
