"""Further steps are run where they teach most: near the batch asked for, where times or the winner are known worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.curves.over_batches import crossover_of
from app.advisor.known import Known, gather
from app.advisor.probing import LEAST_SECONDS, Probe, choose_probe, contenders, doubt
from app.advisor.request import Request
from probes.hardware import Load
from probes.measurement import Measurement, Timing
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile, true_seconds

PLANS = (ONE, TWO, ONE_BF16, TWO_BF16)


def what_is_known(
    rows: Sequence[Measurement], batch_size: int = 16, profile: Profile | None = None, *, gpu: bool = False
) -> Known:
    survey = a_survey(gpus=[a_gpu()] if gpu else [], usable_bytes=200 * 10**9)
    return gather(survey, profile, None, rows, Request(a_workload(batch_size)))


def measured(plans: Sequence[Plan], batch_size: int = 16) -> list[Measurement]:
    workload = a_workload(batch_size)
    return [a_measurement(plan, batch_size, true_seconds(plan, workload, batch_size)) for plan in plans]


def probe_of(known: Known, seconds: float = 1000.0, to_begin: float = 0.0) -> Probe:
    probe = choose_probe(known, seconds, (), to_begin)
    assert probe is not None
    return probe


def probes_of(known: Known, seconds: float = 1000.0) -> list[Probe]:
    """One after the other, as if none of them taught anything."""
    found: list[Probe] = []
    while probe := choose_probe(known, seconds, [each.batch_size for each in found]):
        found.append(probe)
    return found


def test_the_two_best_plans_run_at_smaller_batches_and_at_larger_ones() -> None:
    probes = probes_of(what_is_known(measured(PLANS), profile=a_profile()))
    assert all(plan in probe.plans for probe in probes if probe.batch_size in (4, 64) for plan in (ONE, TWO))
    assert {4, 64} <= {probe.batch_size for probe in probes}
    assert 16 not in {probe.batch_size for probe in probes}


@pytest.mark.parametrize("slower", [0.8, 0.9, 1.1, 1.25])
def test_where_plans_cross_is_found_however_far_off_it_was_foretold(slower: float) -> None:
    """With two threads steps take so many times what the profile tells, at every batch."""

    def true_step(plan: Plan, size: int) -> float:
        return true_seconds(plan, a_workload(256), size) * (slower if plan == TWO else 1.0)

    rows = [a_measurement(plan, 256, true_step(plan, 256)) for plan in (ONE, TWO)]
    sizes: list[int] = []
    while probe := choose_probe(what_is_known(rows, 256, a_profile((ONE, TWO))), 1000.0, sizes):
        sizes.append(probe.batch_size)
        rows += [a_measurement(plan, probe.batch_size, true_step(plan, probe.batch_size)) for plan in probe.plans]
    known = what_is_known(rows, 256, a_profile((ONE, TWO)))
    told = crossover_of(known.batches(known.ranking(256, known.options(256))), ONE, TWO)
    true = next(size for size in range(1, 10**6) if true_step(TWO, size) < true_step(ONE, size))
    assert told is not None
    assert told.medians_cross_at == pytest.approx(true, rel=0.2, abs=1)
    assert len(sizes) < 15


def test_plans_that_are_not_the_best_run_where_they_cross() -> None:
    """At the batch asked for bf16 is far behind on one thread and on two; so it stays at every batch, and only the
    threads are in doubt."""
    known = what_is_known(measured(PLANS, 4), 4, a_profile())
    for probe in probes_of(known):
        if ONE_BF16 in probe.plans:
            both = (known.times[plan.key].at(probe.batch_size, known.workload.data) for plan in (ONE_BF16, TWO_BF16))
            assert doubt(list(both)) > 0.2


def test_without_a_profile_smaller_and_larger_batches_are_unknown_alike() -> None:
    assert {4, 64} <= {probe.batch_size for probe in probes_of(what_is_known(measured(PLANS)))}


def test_a_batch_where_another_plan_may_win_comes_before_one_where_that_is_plain() -> None:
    """The first plan's line is the same in both; the second meets it at four times the batch, or stays far above."""
    ours = [a_measurement(ONE, size, 0.125 * size) for size in (1, 4, 16, 32)]
    level = [a_measurement(TWO, size, 4 + 0.0625 * size) for size in (1, 4, 16, 32)]
    above = [a_measurement(TWO, size, 20 + 0.125 * size) for size in (1, 4, 16, 32)]
    assert probe_of(what_is_known([*ours, *level]), 1e6).batch_size == 64
    assert probe_of(what_is_known([*ours, *above]), 1e6).batch_size == 256


def test_a_batch_that_has_run_is_not_run_again() -> None:
    rows = [row for size in (4, 16, 64) for row in measured(PLANS, size)]
    assert not {4, 16, 64} & {probe.batch_size for probe in probes_of(what_is_known(rows, profile=a_profile()))}


@pytest.mark.parametrize(("percent", "again"), [(0.0, True), (98.0, False)])
def test_a_batch_that_ran_while_others_used_the_card_is_run_again_once_they_have_left(
    percent: float, *, again: bool
) -> None:
    alone, shared = (
        a_measurement(GPU, size, size / 1000, device_busy_fraction=busy) for size, busy in ((16, 0), (4, 0.97))
    )
    survey = a_survey(gpus=[a_gpu(utilization_percent=percent)], usable_bytes=200 * 10**9)
    known = gather(survey, a_profile((*PLANS, GPU)), None, [alone, shared], Request(a_workload(16)))
    assert (4 in {probe.batch_size for probe in probes_of(known)}) == again


@pytest.mark.parametrize(("others", "again"), [(2.0, True), (0.0, False)])
def test_a_batch_that_ran_while_others_held_the_cores_is_run_again_once_they_have_left(
    others: float, *, again: bool
) -> None:
    calm = replace(a_survey(usable_bytes=200 * 10**9), load=Load(busy_fraction=0.0, own_busy_fraction=0.0))
    rows = [*measured(PLANS), *(replace(row, others_cores=others) for row in measured(PLANS, 4))]
    known = gather(calm, a_profile(), None, rows, Request(a_workload(16)))
    assert (4 in {probe.batch_size for probe in probes_of(known)}) == again


@pytest.mark.parametrize(("slow_share", "again"), [(1.0, True), (0.5, False)])
def test_a_batch_that_met_slow_cores_alone_is_run_again(slow_share: float, *, again: bool) -> None:
    slowdown = None if slow_share == 1.0 else 1.3
    rows = [replace(row, slow_share=slow_share, slowdown=slowdown) for row in measured(PLANS, 4)]
    known = what_is_known([*measured(PLANS), *rows], profile=a_profile())
    assert (4 in {probe.batch_size for probe in probes_of(known)}) == again


@pytest.mark.parametrize("to_begin", [0.5, 2.0])
def test_a_probe_has_time_to_build_the_model_and_none_is_chosen_where_that_takes_all(to_begin: float) -> None:
    known = what_is_known([a_measurement(plan, 16, 1e-4) for plan in PLANS])
    least = choose_probe(known, to_begin + LEAST_SECONDS, (), to_begin)
    assert least is not None
    assert least.seconds == to_begin + LEAST_SECONDS
    assert choose_probe(known, to_begin + 0.9 * LEAST_SECONDS, (), to_begin) is None
    two = probe_of(known, 1000.0, to_begin)
    assert two.seconds >= to_begin * len(two.plans)  # each in a process of its own


def test_the_best_plan_of_each_device_is_compared_where_there_are_two() -> None:
    known = what_is_known(measured([*PLANS, GPU]), profile=a_profile((*PLANS, GPU)), gpu=True)
    assert {plan.device for plan in probe_of(known).plans} == {"cpu", "cuda:0"}


def test_beside_a_slow_device_the_best_plan_alone_is_run_at_larger_batches() -> None:
    """All that both would take the time for is smaller; what the fast one takes at more is what is asked next."""
    slow = [a_measurement(ONE, 32, 1.0), a_measurement(GPU, 32, 0.02)]
    found = probes_of(what_is_known(slow, 32, a_profile((*PLANS, GPU)), gpu=True), seconds=4.5)
    larger = [probe for probe in found if probe.batch_size > 32]
    assert larger
    assert all(probe.plans == (GPU,) for probe in larger)


def test_what_takes_longer_than_the_time_left_is_left_out_and_the_shorter_runs() -> None:
    known = what_is_known(measured(PLANS), profile=a_profile())
    step = sum(true_seconds(plan, a_workload(4), 4) for plan in (ONE, TWO))
    probes = probes_of(known, seconds=max(1.0, 12 * step))
    assert probes
    assert max(probe.batch_size for probe in probes) < 16
    assert choose_probe(known, 0.5) is None


def test_no_batch_is_tried_that_does_not_fit() -> None:
    rows = measured(PLANS)
    survey = a_survey(usable_bytes=6 * 10**9)
    known = gather(survey, a_profile(), None, rows, Request(a_workload(16)))
    room = min(option.max_batch_size or 0 for option in known.options(16))
    assert 16 < room < 256
    assert all(probe.batch_size <= room for probe in probes_of(known))


def test_where_nothing_ran_nothing_more_is_tried() -> None:
    assert choose_probe(what_is_known([], profile=a_profile()), 1000.0) is None
    failed = [Measurement(plan, 16, "pageable", "out-of-memory", "Too large.") for plan in PLANS]
    assert choose_probe(what_is_known(failed, profile=a_profile()), 1000.0) is None


@pytest.mark.parametrize(
    "varied",
    [
        replace(TWO, environment={"MALLOC_TRIM_THRESHOLD_": "1"}),
        replace(TWO, channels_last=True),
        replace(TWO, compiled=True),
        replace(TWO, flush_denormal=True),
    ],
)
def test_a_variant_runs_in_no_process_of_plain_plans(varied: Plan) -> None:
    among = a_measurement(varied, 16, 0.001, control=Timing.from_samples([1.0] * 5), startup_seconds=0.1)
    options = what_is_known([*measured(PLANS), among]).options(16)
    assert varied.key in {option.plan.key for option in options}
    assert varied.key not in {option.plan.key for option in contenders(options)}


@given(st.integers(1, 10**6), st.floats(0.1, 60))
def test_whatever_the_batch_a_probe_is_of_others_once_each(batch: int, seconds: float) -> None:
    probes = probes_of(what_is_known(measured(PLANS, batch), batch), seconds)
    sizes = [probe.batch_size for probe in probes]
    assert batch not in sizes
    assert len(set(sizes)) == len(sizes)
    assert all(1 <= size <= 16 * batch for size in sizes)
    assert all(len({plan.key for plan in probe.plans}) == len(probe.plans) for probe in probes)
    assert all(probe.seconds <= seconds for probe in probes)
