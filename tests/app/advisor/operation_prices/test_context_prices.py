import itertools
import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.operation_prices.context_prices import ContextPrices, _keys, context_prices, undisturbed
from app.advisor.operation_prices.surroundings import footprint_of, often_of, surroundings
from app.advisor.time_model.predicted import fit_all_plans, model_of_plan
from probes.context import SPARSE, Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.points import NetworkPoint
from probes.profile import Profile
from probes.trace import Affine, Trace
from probes.workload.description import MODES, Plan
from tests.app.advisor.machine import a_profile

PLAN = Plan("cpu", "fp32", 1)
OVERHEAD, RATE, BANDWIDTH = 2e-6, 5e10, 1e10


def an_operation(name: str = "aten.relu", moved: float = 1e6, flops: float = 0.0) -> ContextOperation:
    return ContextOperation(name, "matmul" if flops else "elementwise", "", "float32", flops, moved / 2, moved / 2)


def true_seconds(operation: ContextOperation, times: float = 1.0) -> float:
    moved = operation.read_bytes + operation.written_bytes
    return OVERHEAD + times * (operation.flops / RATE + moved / BANDWIDTH)


def a_context(*operations: ContextOperation, network: str = "a", times: float = 1.0) -> Context:
    costs = tuple(OperationCost(operation, 1, true_seconds(operation, times), 0.1) for operation in operations)
    return Context(network, 8, "training", PLAN, costs)


def prices_of(*contexts: Context) -> ContextPrices:
    prices = context_prices(contexts, "training", RATE)
    assert prices is not None
    return prices


SIZES = [an_operation(moved=10.0**power) for power in range(2, 9)]
FOOTPRINT = footprint_of(1e8)


def test_an_operation_that_was_timed_costs_what_it_took() -> None:
    prices = prices_of(a_context(*SIZES))
    for operation in SIZES:
        assert prices.seconds(operation, FOOTPRINT) == pytest.approx(true_seconds(operation), rel=0.1)


@given(st.floats(1e2, 1e8))
def test_between_sizes_that_were_timed_the_price_lies_between(moved: float) -> None:
    prices = prices_of(a_context(*SIZES))
    operation = an_operation(moved=moved)
    assert prices.seconds(operation, FOOTPRINT) == pytest.approx(true_seconds(operation), rel=0.5)


def test_a_name_that_takes_longer_than_its_kind_is_priced_by_its_own() -> None:
    slow = [an_operation("aten.tanh", moved) for moved in (1e4, 1e6)]
    others = [an_operation("aten.neg", 10.0**power) for power in range(2, 9)]
    prices = prices_of(a_context(*SIZES, *others), a_context(*slow, network="b", times=20.0))
    assert prices.seconds(slow[1], FOOTPRINT) == pytest.approx(true_seconds(slow[1], 20.0), rel=0.2)
    assert prices.seconds(SIZES[4], FOOTPRINT) == pytest.approx(true_seconds(SIZES[4]), rel=0.1)


def test_below_the_smallest_that_was_timed_only_what_goes_with_the_size_shrinks() -> None:
    slow = an_operation("aten.tanh", 1e7)
    prices = prices_of(a_context(*SIZES), a_context(slow, network="b", times=20.0))
    small = an_operation("aten.tanh", 1e3)
    assert prices.seconds(small, FOOTPRINT) < 3 * OVERHEAD


def test_what_a_step_runs_again_and_again_is_priced_by_what_others_run_as_often() -> None:
    operation = an_operation(moved=1e4)
    once = a_context(operation, times=3.0)
    often = replace(
        a_context(operation, network="b"), costs=(OperationCost(operation, 40, true_seconds(operation), 0.1),)
    )
    prices = prices_of(once, often)
    (rare,), (usual,) = (often_of([(operation, executions)]).values() for executions in (1, 30))
    assert prices.seconds(operation, FOOTPRINT, usual) < 0.9 * prices.seconds(operation, FOOTPRINT, rare)


def test_what_is_learned_later_counts_for_what_was_asked_before() -> None:
    slow = an_operation("aten.tanh", 1e6)
    prices = prices_of(a_context(*SIZES))
    prices.seconds(slow, FOOTPRINT), prices.overhead(FOOTPRINT)
    prices.learn_context(a_context(slow, *SIZES[:1], network="b", times=20.0), is_same_mode=True)
    assert prices.seconds(slow, FOOTPRINT) == pytest.approx(true_seconds(slow, 20.0), rel=0.2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_vector_tells_little_of_products_of_matrices(dtype: str) -> None:
    """One sample's gradient of a weight is quick, the gradient by two takes nine times as long."""
    size = 4 if dtype == "float32" else 2

    def gradient(width: int, samples: int) -> ContextOperation:
        numbers = 2 * width * samples, width * width
        read, written = (size * count for count in numbers)
        return ContextOperation("aten.mm", "matmul", "", dtype, 2.0 * width * width * samples, read, written)

    def took(operation: ContextOperation, times: float) -> OperationCost:
        return OperationCost(operation, 1, times * true_seconds(operation), 0.1)

    costs = [took(gradient(width, samples), times) for width in (256, 2048) for samples, times in ((1, 1.0), (4, 9.0))]
    prices = prices_of(a_context(*SIZES), replace(a_context(network="b"), costs=tuple(costs)))
    for samples, times in ((1, 1.0), (2, 9.0)):
        asked = gradient(1024, samples)
        assert prices.seconds(asked, FOOTPRINT) == pytest.approx(times * true_seconds(asked), rel=0.3)


def test_products_that_write_much_are_told_from_those_that_read_much() -> None:
    """A weight's gradient and the layer's result: equal arithmetic, equal bytes, other kernels."""
    gradient = ContextOperation("aten.mm", "matmul", "", "float32", 1e8, 5e5, 4e6)
    result = gradient._replace(read_bytes=4e6, written_bytes=5e5)
    slow = OperationCost(gradient, 1, 3 * true_seconds(gradient), 0.1)
    quick = OperationCost(result, 1, true_seconds(result), 0.1)
    prices = prices_of(replace(a_context(*SIZES), costs=(*a_context(*SIZES).costs, slow, quick)))
    assert prices.seconds(gradient, FOOTPRINT) > 1.5 * prices.seconds(result, FOOTPRINT)


def test_what_was_timed_on_next_to_nothing_says_nothing_of_large_tensors() -> None:
    prices = prices_of(a_context(*SIZES), a_context(an_operation("aten.abs", 8.0), network="b"))
    large = an_operation("aten.abs", 1e7)
    assert prices.seconds(large, FOOTPRINT) == pytest.approx(true_seconds(large), rel=0.3)


def test_what_was_at_work_takes_as_many_times_its_kind_beyond_the_sizes_that_were_timed() -> None:
    sort = an_operation("aten.sort", 1e6)
    prices = prices_of(a_context(*SIZES), a_context(sort, network="b", times=50.0))
    large = an_operation("aten.sort", 1e8)  # e-folds beyond
    assert prices.seconds(large, FOOTPRINT) == pytest.approx(true_seconds(large, 50.0), rel=0.2)


def test_beyond_the_sizes_that_were_timed_work_grows_in_proportion_though_its_kind_does_not() -> None:
    """Others of its kind are cheaper a byte where they are large: they are others."""
    cheap = [OperationCost(an_operation(moved=moved), 1, 1e-4, 0.1) for moved in (1e6, 1e7, 1e8)]
    sort = an_operation("aten.sort", 1e6)
    prices = prices_of(replace(a_context(*SIZES[:4]), costs=tuple(cheap)), a_context(sort, network="b", times=50.0))
    large = an_operation("aten.sort", 1e8)
    assert prices.seconds(large, FOOTPRINT) == pytest.approx(true_seconds(large, 50.0), rel=0.2)


@pytest.mark.parametrize("times", [1.0, 3.9, 4.1, 8.0, 100.0])
def test_a_price_neither_jumps_nor_falls_as_the_batch_grows(times: float) -> None:
    """Of one that was timed on next to nothing alone, which took so many times the overhead of its step: hundreds of
    times its time was told up to where the overhead of larger steps overtook it, and a hundredth beyond."""
    odd = an_operation("aten.nll_loss", 400.0)
    took = OperationCost(odd, 1, times * OVERHEAD, 0.1)
    busy = [an_operation(f"aten.{name}", 100.0) for name in "abc"]
    larger = replace(
        a_context(*busy, *SIZES[3:], network="large"),
        costs=tuple(OperationCost(each, 1, 3 * true_seconds(each), 0.1) for each in (*busy, *SIZES[3:])),
    )
    prices = prices_of(a_context(*SIZES[:3]), replace(a_context(odd, network="b"), costs=(took,)), larger)
    told = [
        prices.seconds(an_operation("aten.nll_loss", 400.0 * 2 ** (step / 8)), footprint_of(1e4 * 2 ** (step / 8)))
        for step in range(120)
    ]
    assert all(before * 0.99 < after < 1.3 * before for before, after in itertools.pairwise(told))


def test_what_one_network_of_several_took_long_is_no_work() -> None:
    """A disturbed sample, by which a step of a batch of 8,192 was told to spend most on it."""
    odd = an_operation("aten.nll_loss", 400.0)
    contexts = [
        replace(a_context(odd, network=name), costs=(OperationCost(odd, 1, times * OVERHEAD, 0.1),))
        for name, times in (("b", 2.0), ("c", 1.5), ("d", 12.0))
    ]
    large = an_operation("aten.nll_loss", 1e6)
    assert prices_of(a_context(*SIZES), *contexts).seconds(large, FOOTPRINT) < 3 * true_seconds(large)


def test_a_product_beyond_the_sizes_that_were_timed_does_not_carry_what_small_ones_take_a_flop() -> None:
    products = [an_operation("aten.mm", 1e5, flops) for flops in (1e7, 1e8, 1e9, 1e10)]
    rare = an_operation("aten.bmm", 1e5, 1e7)
    prices = prices_of(a_context(*SIZES, *products), a_context(rare, network="b", times=3.0))
    large = an_operation("aten.bmm", 1e5, 1e10)
    assert prices.seconds(large, FOOTPRINT) < 1.2 * true_seconds(large, 3.0)


def test_a_name_that_was_never_timed_follows_its_kind() -> None:
    prices = prices_of(a_context(*SIZES))
    unknown = an_operation("own.operation", 1e6)
    assert prices.seconds(unknown, FOOTPRINT) == pytest.approx(true_seconds(unknown), rel=0.2)


CONVOLUTION = an_operation("aten.convolution", 1e6, flops=1e7)._replace(kind="convolution", variant="2d-spatial")
BACKWARD = CONVOLUTION._replace(name="aten.convolution_backward")


def test_a_variant_that_was_never_timed_follows_its_name_and_not_all_of_its_kind() -> None:
    """A convolution of volumes: forward is told by what others take forward, backward by what they take backward."""
    prices = prices_of(a_context(*SIZES, CONVOLUTION), a_context(BACKWARD, network="b", times=9.0))
    for operation, times in ((CONVOLUTION, 1.0), (BACKWARD, 9.0)):
        unknown = operation._replace(variant="3d-spatial", flops=2e7)
        assert prices.seconds(unknown, FOOTPRINT) == pytest.approx(true_seconds(unknown, times), rel=0.3)


def test_the_state_of_a_table_is_told_by_other_states_where_calibrations_did_not_tell_it_apart() -> None:
    square_root = an_operation("aten.sqrt", 1e6)
    prices = prices_of(a_context(*SIZES), a_context(square_root, network="b", times=20.0))
    sparse = square_root._replace(variant=SPARSE)
    assert prices.seconds(sparse, FOOTPRINT) == prices.seconds(square_root, FOOTPRINT)


def test_a_variant_that_was_timed_small_takes_more_than_its_name_where_it_is_large_too() -> None:
    large = CONVOLUTION._replace(flops=1e10)
    rare = CONVOLUTION._replace(variant="2d-grouped")
    prices = prices_of(a_context(*SIZES, CONVOLUTION, large), a_context(rare, network="b", times=8.0))
    unknown = rare._replace(flops=1e10)
    assert prices.seconds(unknown, FOOTPRINT) > 2 * prices.seconds(large, FOOTPRINT)


def test_beyond_all_sizes_of_its_name_a_variant_that_was_never_timed_carries_what_its_name_takes() -> None:
    products = [an_operation("aten.mm", 1e5, flops)._replace(kind="convolution") for flops in (1e7, 1e8, 1e9, 1e10)]
    prices = prices_of(a_context(*SIZES, *products), a_context(BACKWARD, network="b", times=9.0))
    unknown = BACKWARD._replace(variant="3d-spatial", flops=1e10)
    assert prices.seconds(unknown, FOOTPRINT) > 4 * true_seconds(unknown)


def test_keys_that_tell_of_the_same_operations_are_solved_once() -> None:
    prices = prices_of(a_context(*SIZES, CONVOLUTION), a_context(CONVOLUTION._replace(variant="2d-image")))
    alike = [prices.samples[key] for key in _keys(SIZES[0])[:4]]
    assert all(each is alike[0] for each in alike)
    apart = [prices.samples[key] for key in _keys(CONVOLUTION)[2:4]]
    assert apart[0] is not apart[1]
    assert [len(each.rows) for each in apart] == [1, 2]


def test_arithmetic_that_was_never_timed_in_a_step_costs_the_machine_s_best_and_moving_its_bytes() -> None:
    prices = prices_of(a_context(*SIZES))
    product = an_operation("aten.mm", 1e6, 1e9)
    assert prices.seconds(product, FOOTPRINT) == pytest.approx(true_seconds(product), rel=0.2)


def test_large_products_that_move_much_do_not_tell_of_one_that_moves_little() -> None:
    """What was clocked of many FLOPs waits for memory; what waits for arithmetic was clocked on fewer."""
    small = [an_operation("aten.mm", moved=flops / 100, flops=flops) for flops in (1e6, 1e7, 1e8)]
    moving = [an_operation("aten.mm", moved=flops / 2, flops=flops) for flops in (1e8, 1e9)]
    prices = prices_of(a_context(*SIZES, *small), a_context(*SIZES, *moving, network="b"))
    product = an_operation("aten.mm", moved=2e7, flops=2e9)
    assert prices.seconds(product, FOOTPRINT) == pytest.approx(true_seconds(product), rel=0.1)


def test_a_kind_that_no_step_had_costs_what_it_takes_alone() -> None:
    """A product's best rate says nothing of a convolution, nor of attention that works through blocks."""
    product = an_operation("aten.mm", 1e6, 1e9)
    prices = context_prices(
        [a_context(*SIZES, product)], "training", 1e12, alone=lambda kind, flops, moved: flops / 1e9
    )
    assert prices is not None
    convolution = an_operation("aten.convolution", 1e6, 1e9)._replace(kind="convolution")
    assert prices.seconds(convolution, FOOTPRINT) == pytest.approx(1.0, rel=0.01)
    assert prices.seconds(blocks_of(1000, 1e6), FOOTPRINT) == pytest.approx(1.0, rel=0.01)
    assert prices.seconds(product, FOOTPRINT) == pytest.approx(true_seconds(product), rel=0.1)


def test_without_a_network_its_times_are_not_known() -> None:
    tanh = an_operation("aten.tanh", 1e6)
    prices = prices_of(a_context(*SIZES), a_context(tanh, network="b", times=20.0))
    assert prices.seconds(tanh, FOOTPRINT, without="b") < true_seconds(tanh, 20.0) / 5


@given(
    st.floats(0, 1e15),
    st.floats(0, 1e15),
    st.sampled_from(["aten.relu", "aten.mm", "own.operation"]),
    st.floats(0, 1e18),
)
def test_every_price_is_finite_and_above_nothing(moved: float, flops: float, name: str, step: float) -> None:
    prices = prices_of(a_context(*SIZES, an_operation("aten.mm", 1e5, 1e7)))
    seconds = prices.seconds(an_operation(name, moved, flops), footprint_of(step))
    assert 0 < seconds < math.inf


def test_a_clock_that_disturbed_a_step_is_put_right_by_the_step() -> None:
    context = a_context(*SIZES)
    total = sum(cost.seconds for cost in context.costs)
    assert undisturbed(context, total) == context
    assert undisturbed(context, None) == context
    calm = undisturbed(context, total / 3)
    assert sum(cost.seconds for cost in calm.costs) == pytest.approx(total / 3)


def test_nothing_timed_is_no_price() -> None:
    assert context_prices([], "training", RATE) is None
    assert context_prices([replace(a_context(), costs=())], "training", RATE) is None


def blocks_of(count: int, grain: float) -> ContextOperation:
    return ContextOperation("aten.attention", "attention", "", "bfloat16", count * grain, 1e3, 1e3, grain)


def test_what_a_kernel_pays_for_each_block_is_paid_for_each() -> None:
    """50 us a block whatever its arithmetic: twice the arithmetic in as many blocks takes as long, in twice as many
    twice as long."""
    timed = [blocks_of(count, grain) for count in (8, 128) for grain in (1e6, 4e6)]
    costs = [OperationCost(operation, 1, 5e-5 * operation.flops / operation.grain, 0.1) for operation in timed]
    quick = OperationCost(an_operation("aten.add", moved=100.0), 1, 1e-6, 0.1)
    prices = prices_of(replace(a_context(), costs=(*costs, quick)))
    footprint, _ = surroundings((cost.operation, cost.times) for cost in (*costs, quick))
    for count, grain in ((32, 2e6), (64, 1e6), (1024, 2e6)):
        assert prices.seconds(blocks_of(count, grain), footprint) == pytest.approx(count * 5e-5, rel=0.3)


def test_a_pool_is_priced_by_those_whose_windows_are_as_large() -> None:
    def a_pool(moved: float, window: float) -> ContextOperation:
        return ContextOperation("aten.max_pool2d", "reduction", "", "float32", 0.0, moved / 2, moved / 2, window)

    costs = [
        OperationCost(a_pool(moved, window), 1, OVERHEAD + window * moved / BANDWIDTH, 0.1)
        for moved in (1e5, 1e6, 1e7)
        for window in (2.0, 4.0, 9.0)
    ]
    prices = prices_of(replace(a_context(*SIZES), costs=tuple(costs)), a_context(*SIZES, network="b"))
    small, large = (prices.seconds(a_pool(3e6, window), FOOTPRINT) for window in (2.0, 9.0))
    assert large / small == pytest.approx(9 / 2, rel=0.25)


def test_what_older_calibrations_did_not_tell_apart_is_priced_as_it_was_then() -> None:
    """Depthwise convolutions that leave places out, which take several times as long as the others in bf16."""
    products = [an_operation("aten.mm", 10.0**power, flops=10.0 ** (power + 2)) for power in range(3, 8)]
    convolution = an_operation("aten.convolution", 1e6, flops=1e7)._replace(kind="convolution")
    pointwise, depthwise, strided = (
        convolution._replace(variant=f"2d-{what}") for what in ("pointwise", "depthwise", "depthwise-strided")
    )
    before = [a_context(*SIZES, *products, pointwise), a_context(depthwise, network="b", times=10.0)]
    assert prices_of(*before).seconds(strided, FOOTPRINT) == prices_of(*before).seconds(depthwise, FOOTPRINT)
    since = prices_of(*before, a_context(strided, network="c", times=40.0))
    assert since.seconds(strided, FOOTPRINT) == pytest.approx(true_seconds(strided, 40.0), rel=0.2)
    assert since.seconds(depthwise, FOOTPRINT) == pytest.approx(true_seconds(depthwise, 10.0), rel=0.2)


def test_a_profile_that_is_fitted_holds_on_to_nothing_that_only_leaving_networks_out_takes() -> None:
    """As many bytes as a square of its operations, of every kind, plan and network."""
    sizes = [an_operation(moved=10.0 ** (power / 20)) for power in range(40, 160)]
    model = model_of_plan(_profile_of(sizes), PLAN)
    assert model is not None
    assert len({name for name, _ in model.fit.left_out}) == 3
    prices = model.prices.context
    assert prices is not None
    kept = pickle.dumps((prices.samples, prices.overheads, prices._left_out))
    assert len(kept) < 8 * (3 * len(sizes)) ** 2


def test_a_profile_whose_plans_are_all_fitted_has_nothing_left_to_solve_for_the_first_question() -> None:
    sizes = [an_operation(moved=10.0**power) for power in range(3, 8)]
    profile = _profile_of(sizes)
    fit_all_plans(profile)
    models = [model_of_plan(profile, PLAN, mode) for mode in MODES]
    prices = [model.prices.context for model in models if model is not None and model.prices.context is not None]
    samples = [each for of_mode in prices for each in (*of_mode.samples.values(), of_mode.overheads)]
    assert len(prices) == len(MODES)
    assert len(samples) > 4
    assert all(each._known is not None for each in samples if each.rows)
    assert all((key, None) in of_mode._work for of_mode in prices for key in of_mode.samples)


def _profile_of(sizes: list[ContextOperation]) -> Profile:
    """Three networks of these operations, under one plan."""
    contexts = [a_context(*sizes, network=name) for name in ("gru", "lstm", "looped")]
    networks = [_point(context) for context in contexts]
    return replace(a_profile((PLAN,)), networks=tuple(networks), contexts=tuple(contexts))


def _point(context: Context) -> NetworkPoint:
    seconds = context.seconds
    trace = Trace("k", "training", "adamw", (16, 32), 1, 1, 4, 0, 0, 0, Affine(0, 1), Affine(0, 1), (), "2.13")
    return NetworkPoint(context.network, 8, PLAN, Timing(seconds, seconds, seconds, (seconds,)), trace)


def test_no_slope_leads_on_to_above_the_machine_s_roof() -> None:
    """Each of these products moves a tenth of what the one before it does, and is three times as quick."""
    products = [an_operation("aten.mm", moved=1e9 / 10**power, flops=1e9) for power in range(4)]
    costs = tuple(OperationCost(each, 1, each.flops / (1e9 * 3**power), 0.1) for power, each in enumerate(products))
    contexts = [Context("a", 8, "training", PLAN, (*costs, OperationCost(SIZES[0], 1, 2e-6, 0.1)))]

    def seconds(peak: float, operation: ContextOperation) -> float:
        prices = context_prices(contexts, "training", peak)
        assert prices is not None
        return prices.seconds(operation, FOOTPRINT)

    further = an_operation("aten.mm", moved=1e5, flops=1e9)
    assert seconds(1e12, further) < 1e9 / 32e9  # where the roof is far above
    assert seconds(30e9, further) == pytest.approx(1e9 / 30e9)  # nothing was quicker, clocked or alone
    assert seconds(1e9, further) == pytest.approx(1e9 / 27e9)  # the quickest that was clocked
    assert seconds(30e9, products[0]) == pytest.approx(1.0, rel=0.2)


def test_a_light_operation_that_computes_takes_no_less_than_products_of_as_much() -> None:
    """Of an inverse nothing was clocked, and it moves next to nothing."""
    moves = an_operation("aten.linalg_inv_ex", moved=1e4)
    contexts = [a_context(*SIZES, an_operation("aten.mm", moved=1e5, flops=1e9))]
    prices = context_prices(contexts, "training", 40e9)
    assert prices is not None
    assert prices.seconds(moves, FOOTPRINT) < 1e-4
    assert prices.seconds(moves._replace(flops=1e9), FOOTPRINT) == pytest.approx(1e9 / max(40e9, RATE), rel=0.1)


def test_a_convolution_may_be_quicker_than_a_product_of_as_many_flops() -> None:
    """Kernels of fewer multiplications than are counted are."""
    quick = an_operation("aten.convolution", moved=1e6, flops=1e9)._replace(kind="convolution")
    cost = OperationCost(quick, 1, 1e9 / 80e9, 0.1)
    contexts = [Context("a", 8, "training", PLAN, (cost, OperationCost(SIZES[0], 1, 2e-6, 0.1)))]
    prices = context_prices(contexts, "training", 40e9)
    assert prices is not None
    assert prices.seconds(quick, FOOTPRINT) == pytest.approx(1e9 / 80e9, rel=0.1)
