"""The verdict names what the answer may be wrong by, whichever device that is on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.curves.winners import without_plan
from app.advisor.explanations.advice import Advice
from app.advisor.explanations.verdict import say_verdict
from app.advisor.ranking import rank_options
from app.advisor.recommendation import Breakdown, Interval, MemoryParts, Option
from app.advisor.request import Request
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, a_workload
from tests.app.advisor.machine import GPU


def option(plan: Plan, milliseconds: float, spread: float) -> Option:
    seconds = Interval(milliseconds / 1e3, milliseconds / 1e3 / spread, milliseconds / 1e3 * spread)
    return Option(plan, True, None, "predicted", seconds, None, Breakdown(), MemoryParts(), None)


@pytest.mark.parametrize(
    ("one", "spread", "said"),
    [
        (4.5, 1.4, ", 1.1 times as fast as the CPU with one thread and 2.5 times as fast as cuda:0 in fp32."),
        (4.16, 1.4, ", about as fast as the CPU with one thread and 2.5 times as fast as cuda:0 in fp32."),
        (4.5, 1.01, ", 2.5 times as fast as cuda:0 in fp32."),
        (12.0, 1.4, ", 2.5 times as fast as cuda:0 in fp32."),
    ],
)
def test_a_runner_up_that_cannot_be_told_from_the_best_is_named_beside_the_other_device(
    one: float, spread: float, said: str
) -> None:
    ranking = rank_options([option(TWO, 4.0, spread), option(ONE, one, spread), option(GPU, 10.0, 1.1)])
    assert say_verdict(ranking, Request(a_workload()), Advice(""), True).endswith(said)


def test_by_their_ratio_where_that_is_known() -> None:
    """Predictions of one profile err together: their own ranges overlap far beyond what is hard to tell."""
    options = [option(TWO, 4.0, 2.0), option(ONE, 5.0, 2.0), option(GPU, 10.0, 1.1)]
    for spread, is_told in ((0.1, False), (0.4, True)):
        ranking = rank_options(options, lambda one, other, spread=spread: spread)
        said = say_verdict(ranking, Request(a_workload()), Advice(""), True)
        assert ("1.2 times as fast as the CPU with one thread and 2.5" in said) is is_told


def test_the_card_that_has_no_time_is_the_one_that_is_held_against_the_best_that_has_one() -> None:
    """Another plan of that one's card takes less without copies, but those to it are within what was measured."""
    half, other = Plan("cuda:0", "bf16"), Plan("cuda:1", "fp32")
    lacking = [
        replace(option(plan, 1.0, 1.1), step_seconds=None, basis=None, uncopied_seconds=seconds)
        for plan, seconds in ((half, 2e-3), (other, 4e-3))
    ]
    ranking = rank_options([option(GPU, 10.0, 1.1), *lacking])
    said = say_verdict(ranking, Request(a_workload()), Advice(""), True)
    assert "Without a copy one takes about 4.0 ms on cuda:1 fp32" in said
    assert ". cuda:0 in fp32 takes about 10 ms, which is less only if" in said
    assert said.endswith("more than 6.0 ms.")
    notes = [replace(each, note=f"no copies to {each.plan.device}") for each in lacking]
    told = rank_options([option(GPU, 10.0, 1.1), *notes])
    assert without_plan(8, told.options, told.untold).why_not == "no copies to cuda:1"
