"""What lies between operations: read off whole steps and what issues them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.advisor.operation_prices.context_prices import undisturbed
from app.advisor.operation_prices.issue_prices import IssuedStep, IssuePrices, issue_prices
from app.advisor.operation_prices.prices import prices_for
from app.advisor.time_model.features import LEAST_LIGHT, features_of_context
from probes.context import Context, ContextOperation, OperationCost
from probes.issued import Issued
from probes.measurement import Timing
from probes.points import NetworkPoint
from probes.profile import Profile
from probes.trace import Affine, Trace
from tests.app.advisor.build import ONE
from tests.app.advisor.machine import a_profile

SHORTEST = 4e-7
TRUE = IssuePrices(3e-7, 1.5e-6, -1.1e-6)


def a_step(issued: Issued, clocked: float = 1e-4, faults: float = 0.0, wrong: float = 1.0) -> IssuedStep:
    return IssuedStep((clocked + faults + TRUE.seconds(issued)) * wrong, clocked, faults, issued)


def steps(source: random.Random) -> list[IssuedStep]:
    """As many as a calibration has, unlike each other."""
    return [
        a_step(
            Issued(source.randint(30, 800), source.choice((0, source.randint(9, 150))), source.choice((2, 20, 90))),
            clocked=source.uniform(5e-5, 1e-3),
            wrong=source.uniform(0.95, 1.05),
        )
        for _ in range(40)
    ]


def test_prices_are_found_from_whole_steps_in_spite_of_noise() -> None:
    found = issue_prices(steps(random.Random(3)), SHORTEST)
    assert found.call == pytest.approx(TRUE.call, rel=0.25)
    assert found.node == pytest.approx(TRUE.node, rel=0.35)
    assert found.nested == pytest.approx(TRUE.nested, rel=0.5)


def test_a_few_steps_that_a_neighbour_met_do_not_bend_them() -> None:
    calm = steps(random.Random(4))
    disturbed = [replace(step, seconds=3 * step.seconds) for step in calm[:3]]
    before, after = issue_prices(calm, SHORTEST), issue_prices([*calm[3:], *disturbed], SHORTEST)
    issued = Issued(300, 40, 40)
    assert after.seconds(issued) == pytest.approx(before.seconds(issued), rel=0.3)


def test_steps_that_are_faults_for_the_most_part_tell_nothing() -> None:
    calm = steps(random.Random(5))
    faulting = [replace(step, faults=step.seconds, seconds=5 * step.seconds) for step in calm]
    assert issue_prices([*calm, *faulting], SHORTEST) == issue_prices(calm, SHORTEST)


def test_without_steps_they_go_with_the_shortest_operation() -> None:
    one, other = issue_prices([], SHORTEST), issue_prices([], 3 * SHORTEST)
    assert other.seconds(Issued(9, 9, 9)) == pytest.approx(3 * one.seconds(Issued(9, 9, 9)))
    assert one.nested < 0 < one.call < one.node


def a_context(issued: Issued | None, each: float = 1.6e-6, times: int = 200) -> Context:
    operation = ContextOperation("aten.sigmoid", "elementwise", "", "float32", 0.0, 64.0, 64.0)
    view = ContextOperation("aten.view", "view", "", "float32", 0.0, 0.0, 0.0)
    costs = (OperationCost(operation, times, each, 0.1), OperationCost(view, 1, SHORTEST, 0.1))
    return Context("gru", 4, "inference", ONE, costs, issued)


def a_network(seconds: float) -> NetworkPoint:
    trace = Trace("k", "inference", "adamw", (16, 32), 1, 1, 4, 0, 0, 0, Affine(0, 1), Affine(0, 1), (), "2.13")
    return NetworkPoint("gru", 4, ONE, Timing(seconds, seconds, seconds, (seconds,)), trace)


def profile(context: Context, seconds: float) -> Profile:
    return replace(a_profile((ONE,)), networks=(a_network(seconds),), contexts=(context,))


def test_a_step_of_nested_operations_is_shorter_than_they_were_under_the_clock() -> None:
    nested, shared = Issued(40, 0, 195), 0.45
    context = a_context(nested)
    prices = prices_for(profile(context, shared * context.seconds), ONE, "inference")
    assert prices is not None
    assert prices.context is not None
    told = sum(features_of_context(context, prices.context))
    assert shared * context.seconds <= told < 0.7 * context.seconds
    called = sum(features_of_context(replace(context, issued=Issued(600, 0, 0)), prices.context))
    assert called > context.seconds


def test_nested_operations_never_cost_nothing() -> None:
    context = a_context(Issued(0, 0, 100_000))
    prices = prices_for(profile(context, context.seconds), ONE, "inference")
    assert prices is not None
    assert prices.context is not None
    heavy, light, between, *_ = features_of_context(context, prices.context)
    assert between == heavy == 0.0
    assert light == pytest.approx(LEAST_LIGHT * context.seconds, rel=0.05)


def test_what_is_nested_is_not_taken_for_disturbed() -> None:
    context = a_context(Issued(40, 0, 195))
    assert undisturbed(context, 0.5 * context.seconds, TRUE) == context
    assert undisturbed(context, 0.5 * context.seconds).seconds == pytest.approx(0.5 * context.seconds)
    assert undisturbed(context, 0.05 * context.seconds, TRUE).seconds < context.seconds


def test_a_profile_from_before_prices_what_lies_between_by_the_shortest_operation() -> None:
    context = a_context(None)
    prices = prices_for(profile(context, context.seconds), ONE, "inference")
    assert prices is not None
    assert prices.context is not None
    assert prices.context.issue is None
    _, light, between, *_ = features_of_context(context, prices.context)
    assert 0 < between < light
