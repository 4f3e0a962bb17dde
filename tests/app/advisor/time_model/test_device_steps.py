"""Steps on a made-up card whose truth is known, and on a real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.advisor.memory_model.memory import estimate_memory
from app.advisor.operation_prices.device_operations import on_device
from app.advisor.operation_prices.prices import prices_for
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.features import CONTEXT_PRIORS, PRIORS, features_at
from app.advisor.time_model.fitting import UNFITTED_SPREAD
from app.advisor.time_model.launch_bound import launch_bound_until
from app.advisor.time_model.predicted import PlanModel, PredictedTime, breakdown_parts, model_of_plan, predict
from probes.allocations import Log, pack
from probes.context import Clock, Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.points import NetworkPoint, Point
from probes.profile import Profile
from probes.trace import Affine, Kind, Operation, Phase, Trace
from probes.workload.description import Mode, Plan
from tests.app.advisor.build import ONE, a_workload
from tests.app.advisor.machine import GPU, a_profile

TF32, BF16 = Plan("cuda:0", "tf32"), Plan("cuda:0", "bf16")
# Of every kernel the roof; of every name's first issue twice what each after it takes.
FLOOR, RATE, BANDWIDTH, ISSUE = 2e-6, 1e13, 1e12, 1e-5
BATCH = 8
NOTHING = Affine(0.0, 0.0)


def row(name: str, kind: Kind, count: int, flops: float, moved: float, phase: Phase = "forward") -> Operation:
    """flops, moved: a sample."""
    half = Affine(0.0, moved / 2)
    return Operation(kind, f"aten.{name}", phase, "float32", count, Affine(0.0, flops), half, half)


def a_trace(*operations: Operation, tensors: int = 10, mode: Mode = "training") -> Trace:
    sizes = (tensors, tensors, 4 * tensors, 0, 4 * tensors, 0)
    return Trace("k", mode, "sgd", (16, 32), *sizes, Affine(0, 1000), Affine(0, 100), operations, "2.13")


def a_network(layers: int, flops: float, moved: float) -> Trace:
    """Products and what follows each, and an optimizer's step for each tensor."""
    product, activation = row("mm", "matmul", layers, flops, moved), row("relu", "elementwise", layers, 0.0, moved)
    update = replace(row("add_", "elementwise", layers, 0.0, 0.0, "optimizer"), read_bytes=Affine(64.0, 0.0))
    return a_trace(product, activation, update, tensors=layers)


# Issuing limits the first three, computing the others.
NETWORKS = {
    "tiny": a_network(4, 1e4, 1e3),
    "deep": a_network(60, 1e5, 1e4),
    "narrow": a_network(20, 1e6, 1e4),
    "wide": a_network(6, 5e9, 1e6),
    "large": a_network(12, 2e9, 4e7),
    "moving": a_network(8, 1e8, 3e8),
}


def run(trace: Trace, batch_size: int) -> list[tuple[ContextOperation, int]]:
    """What the card is seen to run of a trace."""
    found = []
    for o in on_device(trace.operations, trace.parameter_tensors):
        flops, read, written = (line.at(batch_size) for line in (o.flops, o.read_bytes, o.written_bytes))
        found.append((ContextOperation(o.name, o.kind, o.variant, o.dtype, flops, read, written, o.grain), o.count))
    return found


def kernel_seconds(operation: ContextOperation) -> float:
    moved = operation.read_bytes + operation.written_bytes
    return FLOOR + max(operation.flops / RATE, moved / BANDWIDTH)


def issued_seconds(trace: Trace) -> float:
    return sum(ISSUE * (times + 1) for _, times in run(trace, BATCH))


def computed_seconds(trace: Trace, batch_size: int) -> float:
    return sum(kernel_seconds(operation) * times for operation, times in run(trace, batch_size))


def a_context(name: str, trace: Trace, clock: Clock, plan: Plan, times_as_long: float = 1.0) -> Context:
    costs = []
    for operation, times in run(trace, BATCH):
        seconds = kernel_seconds(operation) if clock == "device" else ISSUE * (times + 1) / times
        costs.append(OperationCost(operation, times, seconds * times_as_long, 0.0))
    return Context(name, BATCH, "training", plan, tuple(costs), clock=clock)


def a_step(name: str, trace: Trace, plan: Plan, times_as_long: float = 1.0) -> NetworkPoint:
    seconds = times_as_long * max(issued_seconds(trace), computed_seconds(trace, BATCH))
    return NetworkPoint(name, BATCH, plan, Timing.from_samples([seconds] * 3), trace)


def points_of(plan: Plan) -> list[Point]:
    """Timed from outside, they are mostly issuing: a step is not made of them."""
    sizes = (("dispatch", 0.0, 0.0), ("matmul", 1e12, 1e8), ("matmul", 1e7, 1e4), ("bandwidth", 0.0, 1e9))
    rows = [(*size, FLOOR + max(size[1] / RATE, size[2] / BANDWIDTH)) for size in sizes]
    return [Point(name, plan, {}, flops, moved, Timing.from_samples([t] * 3)) for name, flops, moved, t in rows]


def a_card(plans: Sequence[Plan] = (GPU,), issued_under: Sequence[Plan] = (GPU,)) -> Profile:
    return replace(
        a_profile(()),
        points=tuple(point for plan in plans for point in points_of(plan)),
        networks=tuple(a_step(name, trace, plan) for plan in plans for name, trace in NETWORKS.items()),
        contexts=(
            *(a_context(name, trace, "host", plan) for plan in issued_under for name, trace in NETWORKS.items()),
            *(a_context(name, trace, "device", plan) for plan in plans for name, trace in NETWORKS.items()),
        ),
    )


CARD = a_card()


def model_on(profile: Profile, plan: Plan = GPU, mode: str = "training") -> PlanModel:
    model = model_of_plan(profile, plan, mode)
    assert model is not None
    return model


def predicted(trace: Trace, profile: Profile = CARD, plan: Plan = GPU) -> PredictedTime:
    found = predict(profile, plan, trace, None)
    assert found is not None
    return found


def test_a_step_that_issuing_limits_takes_what_issuing_takes_at_any_small_batch() -> None:
    trace = a_network(30, 1e5, 1e4)
    step = predicted(trace)
    for batch in (1, 4, 16):
        assert computed_seconds(trace, batch) < issued_seconds(trace)
        assert step.at(batch, "resident").median == pytest.approx(issued_seconds(trace), rel=0.1)
        assert (step.breakdown(batch, "resident").launch or 0.0) > 0


def test_a_step_that_computing_limits_takes_what_computing_takes() -> None:
    trace = a_network(10, 3e9, 2e6)
    step = predicted(trace)
    for batch in (4, 8, 32):
        assert computed_seconds(trace, batch) > issued_seconds(trace)
        assert step.at(batch, "resident").median == pytest.approx(computed_seconds(trace, batch), rel=0.1)
        assert step.breakdown(batch, "resident").launch == 0


def test_from_some_batch_on_the_device_is_the_limit() -> None:
    trace = a_network(20, 1e8, 1e5)
    batches = [2**power for power in range(12)]
    until = launch_bound_until(predicted(trace), None, batches)
    assert until is not None
    assert computed_seconds(trace, until) == pytest.approx(issued_seconds(trace), rel=1.0)
    assert computed_seconds(trace, until // 4) < issued_seconds(trace)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.floats(1e3, 1e10), st.floats(1e2, 1e8), st.integers(1, 512))
def test_a_step_of_a_known_card_lies_within_its_interval(layers: int, flops: float, moved: float, batch: int) -> None:
    trace = a_network(layers, flops, moved)
    step = predicted(trace)
    interval = step.at(batch, "resident")
    assert interval.low < max(issued_seconds(trace), computed_seconds(trace, batch)) < interval.high
    assert sum(breakdown_parts(step.breakdown(batch, "resident"))) == pytest.approx(interval.median)


def test_an_optimizer_that_works_on_lists_is_issued_as_often_however_many_tensors_there_are() -> None:
    prices = prices_for(CARD, GPU)
    assert prices is not None
    updates = [features_at(a_network(layers, 1e4, 1e3), prices, BATCH)[3] for layers in (5, 500)]
    assert updates[0] == updates[1] > 0


def odd_one() -> Profile:
    """One network more, of operations that no other has, which take fifty times the roof to compute."""
    trace = a_trace(row("sort", "gather", 10, 0.0, 1e7))
    slow = a_context("odd", trace, "device", GPU, times_as_long=50.0)
    step = replace(a_step("odd", trace, GPU), seconds=Timing.from_samples([slow.seconds] * 3))
    contexts = (*CARD.contexts, a_context("odd", trace, "host", GPU), slow)
    return replace(CARD, networks=(*CARD.networks, step), contexts=contexts)


def test_a_network_that_the_others_do_not_tell_of_is_missed_when_it_is_left_out_and_not_else() -> None:
    model = model_on(odd_one())
    assert model.fit.left_out["odd", BATCH] < math.log(1 / 5)
    assert max(abs(error) for (name, _), error in model.fit.left_out.items() if name != "odd") < 0.1
    odd = next(point for point in odd_one().networks if point.name == "odd")
    assert predicted(odd.trace, odd_one()).at(BATCH, "resident").median == pytest.approx(odd.seconds.median, rel=0.2)


def test_networks_that_others_do_not_tell_of_widen_every_interval() -> None:
    """Steps that took so many times as long as their operations were clocked to."""
    times_as_long = dict(zip(NETWORKS, (0.5, 2.0, 1.0, 0.6, 1.8, 1.0), strict=True))
    steps = [a_step(name, trace, GPU, times_as_long[name]) for name, trace in NETWORKS.items()]
    uneven = replace(CARD, networks=tuple(steps))
    assert model_on(uneven).fit.spread > 2 * model_on(CARD).fit.spread
    trace = NETWORKS["deep"]
    calm, wide = (predicted(trace, profile).at(BATCH, "resident") for profile in (CARD, uneven))
    assert wide.high / wide.low > calm.high / calm.low


def test_fewer_than_three_networks_tell_nothing_of_others() -> None:
    few = replace(CARD, networks=CARD.networks[:2])
    fit = model_on(few).fit
    assert (fit.spread, fit.left_out) == (UNFITTED_SPREAD, {})


def as_far_as_time_was_left(plan: Plan) -> Profile:
    """No large product, alone or inside a step; timed from outside each takes its issuing."""
    names = ("tiny", "deep", "narrow")
    small = [point for point in points_of(plan) if point.flops < 1e8]
    products = [
        Point("matmul", plan, {}, flops, 1e4, Timing.from_samples([ISSUE] * 3)) for flops in (1e5, 1e6, 1e7, 1e8)
    ]
    moves = [replace(point, bytes=1e6, seconds=Timing.from_samples([1e-6] * 3)) for point in small if point.bytes > 1e8]
    return replace(
        CARD,
        points=(*small, *products, *moves),
        networks=tuple(a_step(name, NETWORKS[name], plan) for name in names),
        contexts=tuple(a_context(name, NETWORKS[name], clock, plan) for name in names for clock in ("host", "device")),
    )


@pytest.mark.parametrize(("flops", "batch"), [(5e9, 8), (5e9, 128), (1e11, 128)])
def test_a_step_of_kernels_far_larger_than_all_that_were_clocked_lies_within_its_interval(
    flops: float, batch: int
) -> None:
    trace, true = a_network(20, flops, 1e5), computed_seconds(a_network(20, flops, 1e5), batch)
    known = predicted(trace).at(batch, "resident")
    assert known.low < true < known.high
    small = as_far_as_time_was_left(GPU)
    for profile in (small, replace(small, contexts=())):  # whether kernels were clocked or not
        unknown = predicted(trace, profile).at(batch, "resident")
        assert unknown.low < true < unknown.high
        assert unknown.high / unknown.low > 2 * known.high / known.low


def test_plans_that_issue_the_same_stand_for_each_other_and_others_do_not() -> None:
    profile = a_card((GPU, TF32, BF16))
    assert {name for name, _ in model_on(profile, TF32).fit.left_out} == NETWORKS.keys()
    under_autocast = model_on(profile, BF16).fit
    assert (under_autocast.factors, under_autocast.spread) == (CONTEXT_PRIORS, UNFITTED_SPREAD)
    clocked = a_card((GPU, TF32, BF16), issued_under=(GPU, BF16))
    assert {name for name, _ in model_on(clocked, BF16).fit.left_out} == NETWORKS.keys()


def test_without_the_devices_clock_issuing_is_priced_all_the_same() -> None:
    profile = replace(CARD, contexts=tuple(each for each in CARD.contexts if each.clock == "host"))
    model = model_on(profile)
    assert model.prices.kernels is None
    trace = a_network(30, 1e5, 1e4)
    assert predicted(trace, profile).at(BATCH, "resident").median == pytest.approx(issued_seconds(trace), rel=0.1)


def test_a_profile_without_a_devices_contexts_predicts_as_before() -> None:
    """By what operations take alone, and a dispatch each; contexts of a CPU and of another card change nothing."""
    before = a_profile((ONE, GPU))
    trace = trace_of_summary(a_workload())
    prices = prices_for(before, GPU)
    assert prices is not None
    assert (prices.issuing, prices.kernels) == (None, None)
    issued = sum(each.count for each in trace.operations if each.phase != "optimizer")
    assert features_at(trace, prices, BATCH)[2] == pytest.approx(prices.dispatch * issued)
    assert model_on(replace(before, networks=())).fit.factors == PRIORS
    elsewhere = [a_context("tiny", NETWORKS["tiny"], "host", plan) for plan in (ONE, Plan("cuda:1", "fp32"))]
    since = replace(before, contexts=tuple(elsewhere))
    assert predicted(trace, since).at(BATCH, "pinned") == predicted(trace, before).at(BATCH, "pinned")


def test_a_step_that_was_traced_as_a_device_runs_it_is_priced_as_that_on_a_device_alone() -> None:
    profile = replace(CARD, points=(*CARD.points, *a_profile((ONE,)).points), networks=CARD.networks)
    plain, other = a_network(10, 1e6, 1e4), a_network(40, 1e6, 1e4)
    both = replace(plain, device=other)
    assert predicted(both, profile).at(BATCH, "resident") == predicted(other, profile).at(BATCH, "resident")
    on_cpu = [predicted(trace, profile, ONE).at(BATCH, "resident") for trace in (both, plain, other)]
    assert on_cpu[0] == on_cpu[1] != on_cpu[2]


WORKSPACE = 64 * 2**20
# What a step asks an allocator for: the second, third and fourth of these, which it frees.
LOG = Log([3000, 100, 2000, 2000], 1, [0, 0, 3, 0, 4, 2])
IN_BLOCKS = pack((1, 2), LOG, LOG)


def test_libraries_keep_half_as_much_of_a_device_in_inference_and_nothing_on_a_cpu() -> None:
    profile = replace(CARD, workspace_bytes={"cuda:0": WORKSPACE})
    for mode, kept in (("training", WORKSPACE), ("inference", WORKSPACE // 2)):
        trace = trace_of_summary(a_workload(mode=mode))
        for plan, workspace in ((GPU, kept), (Plan("cuda:1", "fp32"), 0), (ONE, 0)):
            without, found = (estimate_memory(None, each, trace, [], plan) for each in (CARD, profile))
            assert found.workspace == workspace
            assert found.peak(BATCH) - without.peak(BATCH) == workspace
            assert found.allocated(BATCH) - without.allocated(BATCH) == workspace


@pytest.mark.parametrize("order", ["", IN_BLOCKS])
def test_workspaces_are_told_of_the_overhead_and_of_what_the_allocator_holds(order: str) -> None:
    trace = replace(trace_of_summary(a_workload()), allocations=order)
    without, found = (
        estimate_memory(None, profile, trace, [], GPU).parts(BATCH)
        for profile in (CARD, replace(CARD, workspace_bytes={"cuda:0": WORKSPACE}))
    )
    names: tuple[str, ...] = ("overhead_bytes", "peak_bytes", "allocated_peak_bytes")
    names += ("reserved_peak_bytes",) if order else ()
    assert {getattr(found, name) - getattr(without, name) for name in names} == {WORKSPACE}
    assert found.activations_bytes == without.activations_bytes


def test_memory_of_a_device_is_that_of_the_step_it_runs() -> None:
    plain = trace_of_summary(a_workload())
    both = replace(plain, device=replace(plain, activation_bytes=Affine(0.0, 7.0)))
    assert estimate_memory(None, CARD, both, [], GPU).activations_at(BATCH) == 7.0 * BATCH
    on_cpu = estimate_memory(None, CARD, both, [], ONE)
    assert on_cpu.activations_at(BATCH) == plain.activation_bytes.at(BATCH)


def narrow(trace: Trace, name: str) -> Trace:
    """All in numbers of that type."""
    return replace(trace, operations=tuple(replace(each, dtype=name) for each in trace.operations))


def test_weights_in_half_precision_run_without_autocast_where_the_plan_has_none() -> None:
    """Their kernels take what they take under the plan of their type, which casts beside them."""
    card = a_card((GPU, BF16), (GPU, BF16))
    half = {name: narrow(trace, "bfloat16") for name, trace in NETWORKS.items()}
    own = tuple(a_context(name, trace, clock, BF16) for name, trace in half.items() for clock in ("host", "device"))
    card = replace(card, contexts=(*(each for each in card.contexts if each.plan == GPU), *own))
    trace = half["moving"]
    casts = replace(row("_to_copy", "copy", 40, 0.0, 3e8), dtype="bfloat16")
    cast = replace(trace, autocast_operations=(*trace.operations, casts))
    plain, under = predicted(cast, card, GPU), predicted(cast, card, BF16)
    assert plain.model.plan == under.model.plan == BF16
    assert plain.at(BATCH, "resident") == predicted(trace, card, GPU).at(BATCH, "resident")
    assert under.at(BATCH, "resident").median > 2 * plain.at(BATCH, "resident").median
