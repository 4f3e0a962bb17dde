"""The ratio of two plans over the batch, by all that was measured of them: a slow moment at one batch moves no
crossover far, and what holds at several batches is believed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.curves.pair_ratio import PairRatio, ratio_of
from app.advisor.known import gather
from app.advisor.recommendation import Crossover
from probes.hardware import Load
from probes.measurement import Measurement
from probes.workload.description import Plan, Workload
from tests.app.advisor.build import ONE, TWO, a_gpu, a_measurement, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile, true_seconds

MODEL = a_summary(parameters=1000, flops_per_sample=1e7, activation_bytes_per_sample=1e5, operations=40)
WORKLOAD = replace(a_workload(64), model=MODEL)
PROFILE = a_profile((ONE, TWO, GPU))
SIZES = (4, 16, 64, 256)


def rows(slower: dict[int, float] | None = None, sizes: tuple[int, ...] = SIZES) -> list[Measurement]:
    """As the machine is; slower: by batch, so many times as long as two threads take."""
    found = [a_measurement(ONE, size, true_seconds(ONE, WORKLOAD, size)) for size in sizes]
    factors = slower or {}
    found += [a_measurement(TWO, size, true_seconds(TWO, WORKLOAD, size) * factors.get(size, 1.0)) for size in sizes]
    return found


def ratio(measurements: list[Measurement], workload: Workload = WORKLOAD, to: Plan = TWO) -> PairRatio | None:
    known = gather(a_survey(gpus=[a_gpu()]), PROFILE, None, measurements, Request(workload, "fp32"))
    return ratio_of(known.times[ONE.key], known.times[to.key], workload.data)


def between_threads(measurements: list[Measurement]) -> Crossover:
    found = recommend(a_survey(), PROFILE, None, measurements, Request(WORKLOAD, "fp32"))
    (crossover,) = (row for row in found.crossovers if (row.start, row.to) == (ONE, TWO))
    return crossover


TRUTH = next(size for size in range(1, 5000) if true_seconds(TWO, WORKLOAD, size) < true_seconds(ONE, WORKLOAD, size))


def test_a_slow_moment_at_one_batch_moves_no_crossover_far() -> None:
    """By lines through what was measured two threads would be told behind up to that batch."""
    for size in SIZES[1:]:
        told = between_threads(rows({size: 1.8}))
        assert told.medians_cross_at is not None
        assert TRUTH / 1.5 <= told.medians_cross_at <= TRUTH * 1.5


def test_what_several_batches_say_is_believed() -> None:
    """Each of two threads' steps takes as much longer than is predicted."""
    slower = 1.3
    told = between_threads(rows(dict.fromkeys(SIZES, slower)))
    crossing = next(
        size
        for size in range(1, 5000)
        if slower * true_seconds(TWO, WORKLOAD, size) < true_seconds(ONE, WORKLOAD, size)
    )
    assert crossing > 1.5 * TRUTH
    assert told.medians_cross_at == pytest.approx(crossing, rel=0.3)


def test_the_more_batches_ran_and_the_nearer_they_are_the_better_it_is_known() -> None:
    few, many = ratio(rows(sizes=(64,))), ratio(rows(sizes=(32, 64, 128)))
    assert few is not None
    assert many is not None
    assert many.spread(64) < few.spread(64) < few.spread(4096)
    assert few.spread(4096) <= few.prior * 1.29


def test_a_reading_that_lies_apart_counts_for_little() -> None:
    plain, shaken, hardly = (
        found.log_ratio(64) if (found := ratio(measured)) is not None else None
        for measured in (rows(), rows({64: 2.0}), rows({64: 1.05}))
    )
    assert plain is not None
    assert shaken is not None
    assert hardly is not None
    assert 0 < plain - hardly < 0.05
    assert 0 < plain - shaken < 0.35  # of a logarithm of 0.69


def test_without_both_plans_at_one_batch_or_on_a_device_nothing_is_smoothed() -> None:
    one, two = (a_measurement(plan, size, 0.1) for plan, size in ((ONE, 16), (TWO, 64)))
    assert ratio([one, two]) is None
    on_card = [a_measurement(plan, 16, 0.1) for plan in (ONE, GPU)]
    assert ratio(on_card, to=GPU) is None
    assert ratio([]) is None


@pytest.mark.parametrize(("slower", "sizes"), [(1.9, (64,)), (3.0, (16, 64, 256))])
def test_nothing_is_certain_against_what_ran_at_the_batch_that_was_asked_for(
    slower: float, sizes: tuple[int, ...]
) -> None:
    """One thread is recommended there, by what both took."""
    found = recommend(a_survey(), PROFILE, None, rows({64: slower}, sizes), Request(WORKLOAD, "fp32"))
    assert found.recommended == ONE
    (told,) = (row for row in found.crossovers if (row.start, row.to) == (ONE, TWO))
    assert told.high is None or told.high > 64


def test_of_few_readings_nobody_knows_which_met_a_slow_moment() -> None:
    """One that is hardly believed makes it less certain, not as certain as if there were none."""
    plain, shaken = ratio(rows(sizes=(64,))), ratio(rows({64: 1.5}, (64,)))
    assert plain is not None
    assert shaken is not None
    assert shaken.spread(64) > plain.spread(64) + 0.2
    assert shaken.log_ratio(64) - shaken.spread(64) < plain.log_ratio(64) - math.log(1.5) + 0.1
    assert shaken.spread(64) > shaken.spread(4096) > plain.spread(4096)


def test_measurements_of_different_days_are_no_turns_of_one() -> None:
    def measured_at(*times: float) -> float:
        both = (replace(row, measured_at=time) for row, time in zip(rows(sizes=(64,)), times, strict=True))
        found = ratio(list(both))
        assert found is not None
        return found.spread(64)

    assert measured_at(1e9, 1e9 + 60) == pytest.approx(ratio_spread_of(rows(sizes=(64,))))
    assert measured_at(1e9, 1e9 + 1e6) > 1.05 * measured_at(1e9, 1e9)


def ratio_spread_of(measurements: list[Measurement]) -> float:
    found = ratio(measurements)
    assert found is not None
    return found.spread(64)


def test_the_other_way_round_it_is_the_other_sign() -> None:
    known = gather(a_survey(), PROFILE, None, rows({16: 1.4}), Request(WORKLOAD, "fp32"))
    there, back = (
        ratio_of(known.times[one.key], known.times[other.key], WORKLOAD.data) for one, other in ((ONE, TWO), (TWO, ONE))
    )
    assert there is not None
    assert back is not None
    for size in (1, 3, 16, 100, 4096):
        assert there.log_ratio(size) == pytest.approx(-back.log_ratio(size))
        assert there.spread(size) == pytest.approx(back.spread(size))
        assert there.sign(size) == -back.sign(size)


@pytest.mark.parametrize(("one", "two"), [(1e300, 1e-300), (1e-300, 1e300), (1e-9, 1e6)])
def test_times_that_nothing_can_have_taken_are_no_reason_to_fail(one: float, two: float) -> None:
    taken = [a_measurement(ONE, 64, one), a_measurement(TWO, 64, two)]
    found = ratio(taken)
    assert found is None or math.isfinite(found.log_ratio(64))
    assert between_threads(taken).kind in ("at", "always", "never", "undecided")


def test_where_others_hold_cores_now_times_are_told_as_they_make_them() -> None:
    """Who was there while this was measured, and is still: what ran contains them, other batches do not."""
    crowded = replace(a_survey(), load=Load(busy_fraction=0.5, own_busy_fraction=0.0))
    held = [replace(row, others_cores=1.0) for row in rows()]
    known = gather(crowded, PROFILE, None, held, Request(WORKLOAD, "fp32"))
    slowed = [known.times[TWO.key].at(size, WORKLOAD.data) for size in (64, 4096)]
    assert [estimate is not None and estimate.slowed > 1 for estimate in slowed] == [False, True]
    (told,) = recommend(crowded, PROFILE, None, held, Request(WORKLOAD, "fp32")).crossovers
    assert (told.kind, told.medians_cross_at) == ("undecided", None)
    assert between_threads(held).kind == "at"
