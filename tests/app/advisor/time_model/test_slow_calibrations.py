"""A calibration among neighbours that only its steps show does not count where others tell of calmer minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.time_model.pooled import LEAST_NETWORKS, POOLED, SLOWER, counting_plans, pool
from benchmarks.retell import read_calibrations
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO
from tests.app.advisor.machine import GPU, a_profile
from tests.app.advisor.time_model.test_pooled import timed

SLIGHTLY, MUCH = 1 + (SLOWER - 1) / 2, 2 * SLOWER - 1
ALL_SIZES = Path("benchmarks/results/2026-11-28-amd-epyc-zen-4-2-cores/estimates_all_sizes.json")


def slowed(times: float, *plans: Plan, networks: int | None = None) -> Profile:
    """Steps of these plans took so many times as long; the first so many networks of each."""
    profile, keys = a_profile((ONE, TWO)), {plan.key for plan in plans or (ONE, TWO)}
    names = sorted({point.name for point in profile.networks})[:networks]
    return replace(
        profile,
        networks=tuple(
            replace(point, seconds=timed(point.seconds, times)) if point.plan.key in keys else point
            for point in profile.networks
            if point.name in names
        ),
    )


@pytest.mark.parametrize(
    ("times", "counting"),
    [
        ((MUCH, 1.0, SLIGHTLY), [False, True, True]),
        ((1.0, MUCH), [True, False]),
        ((SLIGHTLY, 1.0), [True, True]),
        ((MUCH, MUCH, 1.0), [True, True, True]),  # of most: the machine is so
        ((MUCH, 1.0, MUCH, 1.0), [False, True, False, True]),
    ],
)
def test_one_that_took_longer_than_the_others_does_not_count(times: tuple[float, ...], counting: list[bool]) -> None:
    calibrations = [slowed(each) for each in times]
    assert [bool(plans) for plans in counting_plans(calibrations)] == counting
    assert pool(calibrations).calibrations == sum(counting)


def test_only_of_the_plans_that_did() -> None:
    found = counting_plans([slowed(MUCH, TWO), slowed(1.0), slowed(1.0)])
    assert found == [{ONE.key}, {ONE.key, TWO.key}, {ONE.key, TWO.key}]


def test_an_older_one_takes_its_place() -> None:
    found = counting_plans([slowed(MUCH), *[slowed(1.0)] * (POOLED + 1)])
    assert [bool(plans) for plans in found] == [False, *[True] * POOLED, False]


def test_few_networks_tell_nothing() -> None:
    few = LEAST_NETWORKS - 1
    assert pool([slowed(MUCH, networks=few), slowed(1.0, networks=few)]).calibrations == 2


def test_of_a_run_whose_first_calibration_was_the_worst_by_far_its_plans_on_two_threads_do_not_count() -> None:
    """Its time of two threads was 1.16 to 1.22 times the quickest one's, and nothing else showed that."""
    calibrations = read_calibrations(ALL_SIZES)
    first, *others = counting_plans(list(reversed(calibrations)))[::-1]
    everything = {point.plan.key for point in calibrations[0].networks}
    two = {point.plan.key for point in calibrations[0].networks if point.plan.threads == 2}
    assert two
    assert everything - first == two
    assert all(everything <= plans for plans in others)


def test_of_a_device_all_count() -> None:
    """On both cards that were at hand the mean of all was nearer to what steps took there."""
    calm = a_profile((ONE, GPU))
    long = replace(calm, networks=tuple(replace(each, seconds=timed(each.seconds, MUCH)) for each in calm.networks))
    assert counting_plans([long, calm, calm]) == [{GPU.key}, {ONE.key, GPU.key}, {ONE.key, GPU.key}]
