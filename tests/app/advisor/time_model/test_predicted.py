import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.advisor.operation_prices.prices import prices_for
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.features import FeatureCurve, features_at, work_in
from app.advisor.time_model.launch_bound import launch_bound_until
from app.advisor.time_model.predicted import breakdown_parts, predict
from probes.microtrain.tracing import trace_workload
from probes.profile import Profile
from probes.trace import Affine, Operation
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, TWO, TWO_BF16, a_summary, a_workload
from tests.app.advisor.machine import GPU, a_profile, true_seconds, truth_of

PROFILE = a_profile((ONE, TWO, TWO_BF16, GPU))

workloads = st.builds(
    lambda flops, activations, operations, batch: Workload(
        a_summary(
            parameters=100_000, flops_per_sample=flops, activation_bytes_per_sample=activations, operations=operations
        ),
        batch,
    ),
    st.floats(1e5, 1e10),
    st.floats(1e4, 1e8),
    st.integers(20, 200),  # as in the networks that the made-up profile was fitted to
    st.integers(1, 256),
)


@settings(max_examples=50)
@given(workloads, st.sampled_from([ONE, TWO, TWO_BF16, GPU]))
def test_a_workload_of_known_classes_is_predicted_within_the_interval_or_nearly(workload: Workload, plan: Plan) -> None:
    predicted = predict(PROFILE, plan, trace_of_summary(workload), None)
    assert predicted is not None
    interval = predicted.at(workload.batch_size, "resident")
    # An interval holds four cases of five; drawn examples find the fifth, which is not far off.
    assert interval.low / 1.1 <= true_seconds(plan, workload, workload.batch_size) <= interval.high * 1.1


@settings(max_examples=50)
@given(workloads, st.sampled_from([ONE, GPU]), st.sampled_from(["resident", "pageable", "pinned"]))
def test_the_parts_add_up_to_the_step(workload: Workload, plan: Plan, data: str) -> None:
    predicted = predict(PROFILE, plan, trace_of_summary(workload), 1)
    assert predicted is not None
    parts = breakdown_parts(predicted.breakdown(workload.batch_size, data))
    assert sum(parts) == pytest.approx(predicted.at(workload.batch_size, data).median)
    assert min(parts) >= 0


def test_an_operation_that_computes_far_more_than_it_moves_takes_no_less_than_a_product_of_as_much() -> None:
    inverse = Operation(
        "elementwise", "aten.linalg_inv_ex", "forward", "float32", 1, Affine(0, 1e7), Affine(0, 1e3), Affine(0, 1e3)
    )
    prices = prices_for(PROFILE, ONE)
    assert prices is not None
    seconds = prices.seconds(inverse, 8)
    assert seconds == prices.seconds(replace(inverse, kind="matmul"), 8)
    assert seconds > prices.seconds(replace(inverse, flops=Affine(0, 0)), 8)


def test_no_factor_brings_a_cpu_s_arithmetic_beyond_the_machine_s_roof() -> None:
    """A network that was met on a quiet morning may ask for half of what its operations took."""
    trace = trace_of_summary(replace(a_workload(), model=a_summary(flops_per_sample=1e10)))
    told = predict(PROFILE, ONE, trace, None)
    assert told is not None
    halved = replace(told.model, fit=replace(told.model.fit, factors=(0.5, *told.model.fit.factors[1:])))
    quicker = replace(told, model=halved)
    least = trace.flops(64) / told.model.prices.roof("matmul")
    assert quicker.at(64, "resident").median >= least
    assert told.breakdown(64, "resident").compute >= quicker.breakdown(64, "resident").compute >= least


@settings(max_examples=50)
@given(workloads, st.integers(1, 2000))
def test_between_powers_of_two_the_chord_is_close_to_the_price(workload: Workload, batch: int) -> None:
    trace = trace_of_summary(workload)
    prices = prices_for(PROFILE, ONE)
    assert prices is not None
    exact = sum(features_at(trace, prices, batch))
    assert sum(FeatureCurve(work_in(trace, "fp32"), prices).at(batch)) == pytest.approx(exact, rel=0.05)


def test_a_plan_that_was_not_calibrated_is_not_predicted() -> None:
    assert predict(a_profile((ONE,)), TWO, trace_of_summary(a_workload()), None) is None


def test_no_rate_beyond_the_best_measured_is_ever_assumed() -> None:
    prices = prices_for(PROFILE, ONE)
    assert prices is not None
    for flops in (1e3, 1e6, 1e9, 1e15):
        assert flops / prices.heavy_seconds("matmul", flops, flops / 100) <= truth_of(ONE).rate * 1.01


def test_reading_the_loss_costs_a_synchronisation_each_time() -> None:
    trace = trace_of_summary(a_workload())
    never, always, seldom = (predict(PROFILE, GPU, trace, every) for every in (None, 1, 100))
    assert never is not None
    assert always is not None
    assert seldom is not None
    assert never.breakdown(4, "resident").synchronize == 0
    assert always.breakdown(4, "resident").synchronize == pytest.approx(20e-6)
    assert seldom.breakdown(4, "resident").synchronize == pytest.approx(20e-8)


def test_resident_data_costs_no_copy_and_pinned_data_less_than_pageable() -> None:
    workload = replace(a_workload(), model=a_summary(operations=2, flops_per_sample=1e6))
    predicted = predict(PROFILE, GPU, trace_of_summary(workload), None)
    assert predicted is not None
    resident, pageable, pinned = (
        predicted.breakdown(64, data).transfer or 0.0 for data in ("resident", "pageable", "pinned")
    )
    assert resident == 0 < pinned < pageable


def test_a_small_batch_is_bound_by_launching_until_the_device_is_busy() -> None:
    workload = replace(a_workload(), model=a_summary(flops_per_sample=1e8, activation_bytes_per_sample=1e6))
    predicted = predict(PROFILE, GPU, trace_of_summary(workload), None)
    assert predicted is not None
    until = launch_bound_until(predicted, None, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    assert until is not None
    assert until > 1
    assert (predicted.breakdown(until, "resident").launch or 0.0) == 0
    assert (predicted.breakdown(1, "resident").launch or 0.0) > 0
    assert launch_bound_until(predicted, None, [1]) is None
    assert launch_bound_until(predicted, None, [until, 2 * until]) == 1  # at every batch looked at


@pytest.mark.parametrize("plan", [ONE, GPU], ids=lambda plan: plan.label)
@pytest.mark.parametrize("data", ["resident", "pageable"])
def test_a_step_that_the_profile_has_no_price_for_has_no_time(plan: Plan, data: str) -> None:
    nothing = replace(trace_of_summary(a_workload()), operations=())
    predicted = predict(PROFILE, plan, nothing, None)
    assert predicted is not None
    assert predicted.at(16, data) is None


RESULTS = Path(__file__).parents[4] / "benchmarks/results/2026-11-26-amd-epyc-zen-4-2-cores"


@pytest.fixture(scope="module")
def calibrated() -> Profile:
    """What a real machine's operations took inside steps."""
    return Profile.from_json(json.loads((RESULTS / "estimates_added_up_profile_1.json").read_text()))


@pytest.mark.parametrize("plan", [ONE, TWO], ids=lambda plan: plan.label)
def test_a_step_of_next_to_nothing_goes_into_dispatching_and_a_large_one_does_not(
    calibrated: Profile, plan: Plan
) -> None:
    """The iris network's was measured to spend 54 % on dispatching there (README)."""
    for name, batch_size, low, high in (("iris-mlp", 120, 0.3, 0.9), ("mnist-cnn", 256, 0.0, 0.05)):
        workload = Workload(parse_model(name), batch_size)
        predicted = predict(calibrated, plan, trace_workload(workload, plainly=True), None)
        assert predicted is not None
        parts = predicted.breakdown(batch_size, "pageable")
        step = predicted.at(batch_size, "pageable").median
        assert sum(breakdown_parts(parts)) == pytest.approx(step)
        assert low <= (parts.launch or 0.0) / step <= high
