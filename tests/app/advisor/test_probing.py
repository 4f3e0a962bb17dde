"""Further steps are run where they teach most: near the batch asked for, where times or the winner are known worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.known import Known, gather
from app.advisor.probing import Probe, choose_probe, contenders
from app.advisor.request import Request
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


def probe_of(known: Known, seconds: float = 1000.0) -> Probe:
    probe = choose_probe(known, seconds)
    assert probe is not None
    return probe


def test_the_two_best_plans_run_at_smaller_batches_and_at_larger_ones() -> None:
    probe = probe_of(what_is_known(measured(PLANS), profile=a_profile()))
    assert probe.plans == (TWO, ONE)
    assert {4, 64} <= set(probe.batch_sizes)
    assert 16 not in probe.batch_sizes


def test_without_a_profile_smaller_and_larger_batches_are_unknown_alike() -> None:
    assert {4, 64} <= set(probe_of(what_is_known(measured(PLANS))).batch_sizes)


def test_a_batch_where_another_plan_may_win_comes_before_one_where_that_is_plain() -> None:
    """The first plan's line is the same in both; the second meets it at four times the batch, or stays far above."""
    ours = [a_measurement(ONE, size, 0.125 * size) for size in (1, 4, 16, 32)]
    level = [a_measurement(TWO, size, 4 + 0.0625 * size) for size in (1, 4, 16, 32)]
    above = [a_measurement(TWO, size, 20 + 0.125 * size) for size in (1, 4, 16, 32)]
    assert probe_of(what_is_known([*ours, *level]), 1e6).batch_sizes[0] == 64
    assert probe_of(what_is_known([*ours, *above]), 1e6).batch_sizes[0] == 256


def test_a_batch_that_has_run_is_not_run_again() -> None:
    rows = [row for size in (4, 16, 64) for row in measured(PLANS, size)]
    probe = choose_probe(what_is_known(rows, profile=a_profile()), 1000.0)
    assert probe is None or not {4, 16, 64} & set(probe.batch_sizes)


def test_the_best_plan_of_each_device_is_compared_where_there_are_two() -> None:
    known = what_is_known(measured([*PLANS, GPU]), profile=a_profile((*PLANS, GPU)), gpu=True)
    assert {plan.device for plan in probe_of(known).plans} == {"cpu", "cuda:0"}


def test_what_takes_longer_than_the_time_left_is_left_out_and_the_shorter_runs() -> None:
    known = what_is_known(measured(PLANS), profile=a_profile())
    step = sum(true_seconds(plan, a_workload(4), 4) for plan in (ONE, TWO))
    probe = probe_of(known, seconds=max(1.0, 12 * step))
    assert probe.batch_sizes
    assert max(probe.batch_sizes) < 16
    assert choose_probe(known, 0.5) is None


def test_no_batch_is_tried_that_does_not_fit() -> None:
    rows = measured(PLANS)
    survey = a_survey(usable_bytes=6 * 10**9)
    known = gather(survey, a_profile(), None, rows, Request(a_workload(16)))
    room = min(option.max_batch_size or 0 for option in known.options(16))
    assert 16 < room < 256
    assert all(size <= room for size in probe_of(known).batch_sizes)


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
    probe = choose_probe(what_is_known(measured(PLANS, batch), batch), seconds)
    if probe is not None:
        assert batch not in probe.batch_sizes
        assert len(set(probe.batch_sizes)) == len(probe.batch_sizes)
        assert all(1 <= size <= 16 * batch for size in probe.batch_sizes)
