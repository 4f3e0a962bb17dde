import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.ranking import WORTH_OF_CHEAPNESS, Ranking, cost_order, probability_of_best, rank_options
from app.advisor.recommendation import Breakdown, Interval, MemoryParts, Option
from app.advisor.time_model.intervals import Z, interval_around, scale
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16

GPU = Plan("cuda:0")


def an_option(plan: Plan, seconds: Interval | None, fits: bool | None = True) -> Option:
    return Option(plan, fits, None, "measured", seconds, None, Breakdown(), MemoryParts(), None)


options = st.lists(
    st.builds(
        an_option,
        st.sampled_from([ONE, TWO, ONE_BF16, TWO_BF16, GPU]),
        st.none() | st.builds(interval_around, st.floats(1e-4, 10), st.floats(0.01, 0.5)),
        st.sampled_from([True, True, False, None]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda option: option.plan.key,
)


@given(options)
def test_what_fits_and_is_fast_comes_first_and_what_does_not_fit_comes_last(rows: list[Option]) -> None:
    ranking = rank_options(rows)
    assert {option.plan.key for option in ranking.options} == {option.plan.key for option in rows}
    groups = [2 if o.fits is False else 1 if o.step_seconds is None else 0 for o in ranking.options]
    assert groups == sorted(groups)
    times = [o.step_seconds.median for o in ranking.options[1:] if o.fits is not False and o.step_seconds]
    assert times == sorted(times)


@given(options)
def test_what_does_not_fit_is_never_best(rows: list[Option]) -> None:
    best = rank_options(rows).best
    assert best is None or best.fits is not False


@given(options)
def test_the_head_is_the_cheapest_of_those_that_overlap_the_fastest_nearby(rows: list[Option]) -> None:
    ranking = rank_options(rows)
    if ranking.best is None or ranking.best.step_seconds is None:
        return
    timed = [o for o in ranking.options if o.fits is not False and o.step_seconds is not None]
    fastest = min(timed, key=lambda o: o.step_seconds.median)  # type: ignore[union-attr]
    assert fastest.step_seconds is not None
    most = WORTH_OF_CHEAPNESS * fastest.step_seconds.median
    times = [(o, o.step_seconds) for o in timed if o.step_seconds is not None]
    near = [o for o, time in times if time.low <= fastest.step_seconds.high and time.median <= most]
    assert cost_order(ranking.best.plan) == min(cost_order(o.plan) for o in near)
    assert {o.plan.key for o in ranking.close} == ({o.plan.key for o in near} if len(near) > 1 else set())


def test_of_what_costs_the_same_the_quickest_is_the_head_whatever_it_is_called() -> None:
    """Which of two unlike cards costs less is not known."""
    first, second = an_option(GPU, interval_around(1.01, 0.2)), an_option(Plan("cuda:1"), interval_around(1.0, 0.2))
    ranking = rank_options([first, second])
    assert (ranking.best, ranking.as_cheap) == (second, (first,))
    halved = an_option(Plan("cuda:1", "bf16"), interval_around(0.99, 0.2))
    ranking = rank_options([first, second, halved])
    assert (ranking.best, ranking.as_cheap) == (second, (first,))
    assert not rank_options([second, halved]).as_cheap


def test_noise_does_not_make_a_much_slower_plan_the_cheaper_choice() -> None:
    noisy = [an_option(ONE, interval_around(2.0, 1.5)), an_option(TWO, interval_around(1.0, 1.5))]
    ranking = rank_options(noisy)
    assert ranking.best == noisy[1]
    assert not ranking.close
    assert ranking.confidence is not None
    assert ranking.confidence < 0.9


def test_a_crowded_plan_is_no_cheaper_choice_where_its_worst_or_its_median_is_far_off() -> None:
    """The first of two is the one that suffers least, and may have the longer median."""

    def ranked(one: Interval, two: Interval) -> Ranking:
        return rank_options([replace(an_option(*each), crowded=True) for each in ((ONE, one), (TWO, two))])

    suffers_less, quicker_on_average = Interval(8e-3, 6e-3, 10e-3), Interval(7e-3, 1e-3, 100e-3)
    for one, two, first in (
        (quicker_on_average, suffers_less, TWO),
        (suffers_less, quicker_on_average, ONE),
        (Interval(21e-3, 17e-3, 26e-3), Interval(3e-3, 0.3e-3, 26.1e-3), ONE),  # at their worst alike
    ):
        ranking = ranked(one, two)
        assert (ranking.options[0].plan, ranking.close) == (first, ())
    near = ranked(suffers_less, scale(suffers_less, 0.98))
    assert (near.options[0].plan, len(near.close)) == (ONE, 2)


def test_a_plan_without_a_time_leaves_the_confidence_unknown() -> None:
    known = an_option(ONE, interval_around(1.0, 0.1))
    assert rank_options([known, an_option(TWO, None)]).confidence is None
    assert rank_options([known, an_option(TWO, None, fits=False)]).confidence == 1.0


def test_confidence_agrees_with_drawing_the_times_at_random() -> None:
    head, others = interval_around(1.0, 0.2), [interval_around(1.1, 0.1), interval_around(0.98, 0.3)]
    source = random.Random(7)

    def draw(interval: Interval) -> float:
        return source.lognormvariate(math.log(interval.median), math.log(interval.high / interval.low) / (2 * Z))

    hits = 0
    for _ in range(20_000):
        time = draw(head)
        hits += all(draw(other) >= 0.95 * time for other in others)
    assert probability_of_best(head, others) == pytest.approx(hits / 20_000, abs=0.015)


@given(st.floats(1e-4, 10), st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_a_rival_ten_times_slower_is_no_rival_and_one_ten_times_faster_is_certain(
    middle: float, spread: float, other: float
) -> None:
    head = interval_around(middle, spread)
    assert probability_of_best(head, [interval_around(10 * middle, other)]) > 0.99
    assert probability_of_best(head, [interval_around(middle / 10, other)]) < 0.01


def test_the_cheaper_plan_has_fewer_threads_then_no_gpu_then_fp32() -> None:
    assert sorted([GPU, TWO_BF16, TWO, ONE_BF16, ONE], key=cost_order) == [ONE, ONE_BF16, TWO, TWO_BF16, GPU]


def test_what_has_to_be_compiled_is_the_dearest_and_an_environment_is_one_setting() -> None:
    compiled, channels_last = replace(ONE, compiled=True), replace(ONE, channels_last=True)
    assert sorted([compiled, GPU, TWO_BF16, channels_last], key=cost_order) == [channels_last, TWO_BF16, GPU, compiled]
    exported = replace(ONE, environment={"MALLOC_MMAP_THRESHOLD_": "1", "MALLOC_TRIM_THRESHOLD_": "1"})
    assert cost_order(ONE) < cost_order(exported) == cost_order(channels_last)


def test_a_ratio_that_is_known_better_than_the_times_decides() -> None:
    one, two = an_option(ONE, interval_around(1.0, 0.5)), an_option(TWO, interval_around(0.98, 0.5))
    assert rank_options([one, two]).best == one
    ranking = rank_options([one, two], lambda *_: 0.01)
    assert ranking.best == two
    assert not ranking.close
    assert ranking.confidence is not None
    assert ranking.confidence > 0.99


def test_a_rival_whose_ratio_is_not_known_leaves_what_is_known_of_the_others() -> None:
    """As a card beside two plans of the CPU, or a plan that was not reached beside measured ones."""
    first, second = interval_around(100e-6, 0.1), interval_around(110e-6, 0.1)
    on_cpu = [an_option(ONE, first), an_option(TWO, second)]

    def confidence(*seconds: Interval) -> float:
        def of_cpu(one: Option, other: Option) -> float | None:
            return 0.06 if one.plan.is_cpu and other.plan.is_cpu else None

        found = rank_options([*on_cpu, *(an_option(GPU, each) for each in seconds)], of_cpu).confidence
        assert found is not None
        return found

    assert confidence() > 0.99 > 0.95 > probability_of_best(first, [second])
    assert confidence(interval_around(2e-3, 0.4)) == confidence()
    near = interval_around(120e-6, 0.4)
    assert confidence(near) == pytest.approx(confidence() * probability_of_best(first, [near]), abs=0.001)
