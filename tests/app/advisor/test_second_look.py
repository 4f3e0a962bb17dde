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
