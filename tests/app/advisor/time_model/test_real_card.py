"""Steps on a real card, by the calibrations that were made on it."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

import benchmarks
from app.advisor.time_model.features import CONTEXT_PRIORS, features_at
from app.advisor.time_model.fitting import LEAST_FACTOR, MOST_FACTOR, UNFITTED_SPREAD
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.predicted import casts_of
from probes.context import Context
from probes.profile import Profile
from probes.trace import Affine, Operation, Trace
from probes.workload.description import MODES, Mode, Plan, Precision
from tests.app.advisor.time_model.test_device_steps import a_network, a_trace, model_on, predicted

RESULTS = Path(benchmarks.__file__).parent / "results"
H200, H100 = (RESULTS / f"2026-11-26-nvidia-{name}-xeon-16-cores" for name in ("h200", "h100"))
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
REAL_PLANS = [Plan("cuda:0", precision) for precision in PRECISIONS]


@pytest.fixture(scope="module")
def h200() -> Profile:
    newest_first = sorted(H200.glob("profile_*.json.gz"), reverse=True)
    return pool([Profile.from_json(json.loads(gzip.decompress(path.read_bytes()))) for path in newest_first])


@pytest.fixture(scope="module")
def h100_in_haste() -> Profile:
    """Whose time was up before any large product was timed."""
    return Profile.from_json(json.loads(gzip.decompress((H100 / "profile_2.json.gz").read_bytes())))


def test_a_calibration_without_large_products_puts_no_precision_first_at_large_ones(h100_in_haste: Profile) -> None:
    """Products of 2,048 by 4,096 by 4,096 forty times, which take a second for 48 TFLOP in fp32 by the calibration that
    had time for some."""
    flops = 2.0 * 2048 * 4096 * 4096
    trace = a_network(40, flops, 1e6)
    told = [predicted(trace, h100_in_haste, plan).at(1, "resident") for plan in REAL_PLANS]
    assert told[0].low < 40 * flops / 48e12 < told[0].high
    assert all(one.low < other.high for one in told for other in told)


def made_again(context: Context) -> Trace:
    """Of what the clock saw, under autocast or not: a profile keeps no operations of its networks' traces."""
    operations = []
    for o, times, _, _ in context.costs:
        flops, read, written = (Affine(size, 0.0) for size in (o.flops, o.read_bytes, o.written_bytes))
        operations.append(
            Operation(o.kind, o.name, "forward", o.dtype, times, flops, read, written, (), o.variant, o.grain)
        )
    trace = a_trace(*operations, mode=context.mode)
    return replace(trace, autocast_operations=trace.operations)


def test_fp16_is_told_by_kernels_on_its_own_numbers_though_traced_to_bf16(h200: Profile) -> None:
    plan = Plan("cuda:0", "fp16")
    prices = model_on(h200, plan).prices
    contexts = [each for each in h200.contexts if each.plan.key == plan.key and each.clock == "device"]
    assert len(contexts) > 10
    for clocked in map(made_again, contexts):
        traced = [replace(each, dtype="bfloat16") if each.dtype == "float16" else each for each in clocked.operations]
        trace = replace(clocked, autocast_operations=tuple(traced))
        assert trace != clocked
        assert features_at(trace, prices, 1) == features_at(clocked, prices, 1)


def test_a_real_cards_plans_are_known(h200: Profile) -> None:
    measured = {each.plan.key for each in h200.networks if each.plan.device == "cuda:0"}
    assert measured == {plan.key for plan in REAL_PLANS}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plan", REAL_PLANS, ids=lambda plan: plan.precision)
def test_a_real_cards_operations_have_prices_that_hold_in_its_steps(h200: Profile, plan: Plan, mode: Mode) -> None:
    model = model_on(h200, plan, mode)
    prices, fit = model.prices, model.fit
    assert prices.issuing is not None
    assert prices.kernels is not None
    own = [each for each in h200.contexts if each.plan.key == plan.key and each.clock == "device"]
    operations = {cost.operation for each in own for cost in each.costs if cost.operation.kind != "view"}
    assert operations
    for operation in operations:
        assert 0 < prices.kernels.seconds(operation) < 1
        assert 0 < prices.issuing.seconds({(operation.name, operation.kind): 1}) < 1
    for factor, prior in zip(fit.factors, CONTEXT_PRIORS, strict=True):
        assert LEAST_FACTOR * prior <= factor <= MOST_FACTOR * prior
    assert len(fit.left_out) >= 3
    assert fit.spread < UNFITTED_SPREAD  # they tell more than nothing does


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plan", REAL_PLANS, ids=lambda plan: plan.precision)
def test_a_real_cards_steps_are_met_when_they_are_made_again(h200: Profile, plan: Plan, mode: Mode) -> None:
    steps = {
        (each.name, each.batch_size): each.seconds.median
        for each in h200.networks
        if each.plan.key == plan.key and each.trace.mode == mode
    }
    errors = []
    for context in h200.contexts:
        if context.plan.device != plan.device or context.clock != "host" or context.mode != mode:
            continue
        interval = predicted(made_again(context), h200, plan).at(context.batch_size, "resident")
        assert 0 < interval.low < interval.median < interval.high < math.inf
        step = steps.get((context.network, context.batch_size))
        if step is not None and casts_of(context.plan) == casts_of(plan):
            errors.append(abs(math.log(interval.median / step)))
    assert len(errors) >= 10
    assert median(errors) < math.log(1.3)
