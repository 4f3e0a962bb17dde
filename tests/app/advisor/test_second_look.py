"""What took longer than everything else bears out is run once more, and counts where it was quicker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.advisor.known import Known, gather
from app.advisor.request import Request
from app.advisor.second_look import better_than_before, choose_second_look
from probes.measurement import Measurement
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile, true_seconds

PLANS = (ONE, TWO, ONE_BF16, TWO_BF16)


def known_of(slower: Mapping[str, float], *, calibrated: bool = True, size: int = 16) -> Known:
    """All plans ran at this batch, some of them so many times as long as they would on a calm machine."""
    workload = a_workload(size)
    plans = (*PLANS, GPU) if GPU.label in slower else PLANS
    rows = [
        a_measurement(plan, size, slower.get(plan.label, 1.0) * true_seconds(plan, workload, size)) for plan in plans
    ]
    survey = a_survey(gpus=[a_gpu()] if GPU in plans else [], usable_bytes=200 * 10**9)
    return gather(survey, a_profile(plans) if calibrated else None, None, rows, Request(workload))


@pytest.mark.parametrize(
    ("slower", "again"),
    [
        ({TWO.label: 1.8}, [TWO]),
        ({TWO.label: 1.8, TWO_BF16.label: 1.7}, [TWO]),
        ({plan.label: 1.8 for plan in PLANS}, []),  # the model is told wrong, which every plan says
        ({TWO.label: 1.05}, []),
        ({TWO_BF16.label: 4.0}, []),  # it is the slower plan without what it met, and cannot be named
        ({TWO_BF16.label: 40.0}, []),  # nor can this one, which is as steady as a plan that is told wrong
        ({GPU.label: 3.0}, []),  # what a device's plans err by together is not known
    ],
)
def test_what_the_others_do_not_bear_out_is_run_again_beside_what_it_is_judged_by(
    slower: Mapping[str, float], again: list[Plan]
) -> None:
    look = choose_second_look(known_of(slower), 1000.0, [16])
    if not again:
        assert look is None
        return
    assert look is not None
    assert look.batch_size == 16
    assert all(plan in look.plans for plan in again)
    assert len(look.plans) > len(again)
    assert {plan.key for plan in again} <= look.surprising < {plan.key for plan in look.plans}


def test_a_variant_that_is_a_share_of_what_took_too_long_is_no_rival() -> None:
    """Its time is too long by as much, and would be the quickest all the same."""
    workload = a_workload(16)
    compiled = replace(TWO, compiled=True)
    seconds = {plan.key: true_seconds(plan, workload, 16) for plan in PLANS}
    rows = [a_measurement(plan, 16, seconds[plan.key] * (1.8 if plan == TWO else 1.0)) for plan in PLANS]
    control = a_measurement(TWO, 16, 1.0).step
    rows.append(a_measurement(compiled, 16, 0.3, control=control, startup_seconds=20.0))
    known = gather(a_survey(usable_bytes=200 * 10**9), a_profile(PLANS), None, rows, Request(workload))
    assert compiled.key in known.times
    look = choose_second_look(known, 1000.0, [16])
    assert look is not None
    assert look.surprising == {TWO.key}


def test_only_what_ran_just_now_and_only_where_there_is_time() -> None:
    known = known_of({TWO.label: 1.8})
    assert choose_second_look(known, 1000.0, []) is None
    assert choose_second_look(known, 1000.0, [8]) is None
    assert choose_second_look(known, 0.1, [16]) is None


def test_without_a_profile_nothing_surprises() -> None:
    assert choose_second_look(known_of({TWO.label: 5.0}, calibrated=False), 1000.0, [16]) is None


def documents(*rows: Measurement) -> list[dict[str, Any]]:
    return [row.to_json() for row in rows]


def test_of_a_second_look_what_was_quicker_counts_of_what_had_taken_too_long() -> None:
    """The plans that it is judged by had their turn, as all others: the luckier of two would be told too short."""
    stands = [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 1.8)]
    failed = Measurement(TWO, 16, "pageable", "failed", "It was killed.")
    judge, surprising = a_measurement(ONE, 16, 0.9), a_measurement(TWO, 16, 0.7)
    assert better_than_before(documents(judge, surprising), stands, {TWO.key}) == documents(surprising)
    assert better_than_before(documents(a_measurement(TWO, 16, 1.9)), stands, {TWO.key}) == []
    assert better_than_before(documents(failed), stands, {TWO.key}) == []


@pytest.mark.parametrize("surprising", [set(), {ONE.key}], ids=["the judge", "what had taken too long"])
def test_what_met_calm_cores_counts_before_what_was_reckoned_however_long_it_took(
    surprising: set[tuple[object, ...]],
) -> None:
    reckoned = a_measurement(ONE, 16, 0.75, slow_share=1.0)
    calm = a_measurement(ONE, 16, 0.97, slow_share=0.2, slowdown=1.4)
    assert better_than_before(documents(calm), [reckoned], surprising) == documents(calm)
    assert better_than_before(documents(reckoned), [calm], surprising) == []


SPELL = 0.9  # relative spread of samples that were held up now and then


def in_a_spell(times: Mapping[str, float], *, size: int = 16) -> Known:
    """As known_of, but that what took longer did so unsteadily."""
    workload = a_workload(size)
    rows = [
        a_measurement(
            plan,
            size,
            times.get(plan.label, 1.0) * true_seconds(plan, workload, size),
            SPELL if plan.label in times else 0.01,
        )
        for plan in PLANS
    ]
    return gather(a_survey(usable_bytes=200 * 10**9), a_profile(PLANS), None, rows, Request(workload))


def test_the_worse_a_spell_was_the_second_look_takes_no_longer() -> None:
    seconds = {}
    for times in (2.0, 40.0, 4000.0):
        look = choose_second_look(in_a_spell({TWO.label: times}), 1000.0, [16])
        assert look is not None
        assert TWO.key in look.surprising
        seconds[times] = look.seconds
    assert seconds[4000.0] <= 1.05 * seconds[2.0]


def test_where_the_time_does_not_do_for_all_that_surprises_the_shortest_is_looked_at() -> None:
    known = in_a_spell({TWO.label: 40.0, TWO_BF16.label: 40.0})
    both = choose_second_look(known, 1000.0, [16])
    assert both is not None
    assert both.surprising == {TWO.key, TWO_BF16.key}
    shorter = next(
        look
        for seconds in (1000.0 * 0.9**power for power in range(80))
        if (look := choose_second_look(known, seconds, [16])) is not None and look.surprising != both.surprising
    )
    assert shorter.surprising == {TWO.key}


def test_what_a_spell_made_grossly_longer_is_looked_at_though_it_could_not_be_named_and_at_earlier_batches() -> None:
    known = in_a_spell({TWO_BF16.label: 40.0})
    for look in (choose_second_look(known, 1000.0, [16]), choose_second_look(known, 1000.0, [], before=[16])):
        assert look is not None
        assert look.surprising == {TWO_BF16.key}
    assert choose_second_look(in_a_spell({TWO.label: 2.0}), 1000.0, [], before=[16]) is None  # not gross


def test_what_took_far_less_counts_though_no_block_was_calm() -> None:
    """Slow cores make no step shorter: the earlier one met what nobody saw."""
    calm = a_measurement(TWO, 16, 0.155, slow_share=0.0, slowdown=1.0)
    reckoned = a_measurement(TWO, 16, 0.0046, slow_share=1.0)
    assert better_than_before(documents(reckoned), [calm], set()) == documents(reckoned)
