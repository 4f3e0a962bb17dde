"""How the benchmark of crossovers finds and judges them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.advisor.request import Request
from app.errors import CrosspointError
from benchmarks import crossovers
from benchmarks.crossover_scores import (
    LEAST_CALM,
    NARROW,
    Truth,
    cost_of_following,
    describe_scores,
    of_calm,
    score,
    told_batch,
    truth_of,
    wanted,
)
from benchmarks.crossovers import Bench, Measured, is_doubtful
from benchmarks.crossovers_again import times_of
from benchmarks.workloads import WORKLOADS, Row
from probes.measurement import Measurement
from probes.workload.description import Plan, Workload
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_measurement


@pytest.mark.parametrize(
    ("signs", "bracket"),
    [
        ({1: -1, 8: -1, 64: 1, 512: 1}, ("at", 8, 64)),
        ({1: 1, 8: 1}, ("always", 1, 1)),
        ({1: -1, 8: -1}, ("never", 8, math.inf)),
        ({1: 1, 8: -1, 64: 1}, ("at", 8, 64)),
        ({1: 1, 8: -1}, ("never", 8, math.inf)),
        ({1: -1, 8: 0, 64: 1}, ("at", 1, 64)),
        ({1: 0, 8: 1}, ("at", 1, 8)),
        ({1: -1, 8: 0}, ("undecided", 1, math.inf)),
        ({1: 0, 8: 0}, ("undecided", 1, math.inf)),
    ],
)
def test_the_bracket_reaches_from_where_one_is_ahead_to_where_the_other_stays_ahead(
    signs: dict[int, int], bracket: tuple[str, int, float]
) -> None:
    truth = Truth(signs)
    assert (truth.kind, truth.low, truth.high) == bracket


def test_plans_within_three_per_cent_are_a_tie_and_one_odd_process_decides_nothing() -> None:
    times = {1: ([1.0], [1.02]), 8: ([1.2, 1.0, 1.2], [1.0, 1.9, 1.0]), 64: ([1.0], [1.1]), 512: ([1.0], [])}
    assert truth_of(times).signs == {1: 0, 8: 1, 64: -1}


@given(st.floats(1.5, 4000), st.floats(1.0, 1.4))
@example(2.5, 1.25)  # two whole sizes are ties
def test_bisection_ends_in_a_narrow_bracket_around_the_crossing(crossing: float, tie: float) -> None:
    def sign(size: int) -> int:
        return -1 if size < crossing / tie else 1 if size > crossing * tie else 0

    signs = {size: sign(size) for size in (1, 8, 64, 512, 4096)}
    for _ in range(20):
        size = wanted(Truth(signs))
        if size is None:
            break
        assert size not in signs
        signs[size] = sign(size)
    truth = Truth(signs)
    assert truth.low <= crossing * tie
    if truth.kind == "at":
        tied = sorted(size for size in signs if sign(size) == 0)
        for left, right in ((truth.low, [*tied, truth.high][0]), ([truth.low, *tied][-1], truth.high)):
            assert right <= max(left + 1, NARROW * left)


def test_what_was_told_is_right_within_the_factor() -> None:
    truth = Truth({1: -1, 40: -1, 50: 1, 4096: 1})
    assert [truth.holds(batch, 2.0) for batch in (45, 21, 99, 19, 101, math.inf, 1)] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_both_ends_of_the_range_are_batches_like_others() -> None:
    always, never = Truth({1: 1, 64: 1}), Truth({1: -1, 64: -1})
    assert [always.holds(batch, 2.0) for batch in (1, 2, 3, math.inf)] == [True, True, False, False]
    assert [never.holds(batch, 2.0) for batch in (math.inf, 65, 40, 20, 1)] == [True, None, None, False, False]


def test_a_batch_beyond_what_ran_is_judged_where_the_crossover_ran() -> None:
    truth = Truth({1: -1, 2048: -1, 4096: 1})
    assert [truth.holds(batch, 2.0) for batch in (5000, 8192, 8193, math.inf)] == [True, True, False, False]


def told(kind: str, high: int | None = None, medians: int | None = None) -> dict[str, Any]:
    batch_size = medians if kind == "at" else None
    return {"kind": kind, "batch_size": batch_size, "high": high, "medians_cross_at": medians}


@pytest.mark.parametrize(
    ("signs", "is_a_tie"),
    [
        ({1: 0, 8: 0}, True),
        ({1: -1, 8: 0}, True),
        ({1: -1, 8: -1}, False),
        ({1: 0, 8: 1}, False),
        ({8: -1}, False),
        ({}, True),
    ],
)
def test_a_pair_of_which_anything_could_be_said_is_not_judged(signs: dict[int, int], is_a_tie: bool) -> None:
    assert Truth(signs).is_a_tie is is_a_tie


def test_every_kind_that_is_told_is_a_batch_but_undecided() -> None:
    assert told_batch(told("always"), "batch_size") == 1
    assert told_batch(told("never"), "batch_size") == math.inf
    assert told_batch(told("at", 9, 7), "batch_size") == 7
    assert told_batch(told("at", 9, 7), "high") == 9
    assert told_batch(told("undecided", None, 12), "high") is None
    assert told_batch(told("undecided", None, 12), "batch_size") is None
    assert told_batch(told("undecided", None, 12), "medians_cross_at") == 12
    assert told_batch(told("never"), "medians_cross_at") == math.inf


@pytest.mark.parametrize(
    ("ratios", "doubtful"),
    [
        ((1.05, 1.2, 1.08), True),
        ((1.11, 1.21, 0.80), True),
        ((1.12, 1.21, 0.98), False),
        ((1.2, 1.3, 1.25), False),
        ((0.8, 0.7, 0.85), False),
        ((), False),
    ],
)
def test_more_processes_are_asked_where_plans_are_close_or_processes_disagree(
    ratios: tuple[float, ...], doubtful: bool
) -> None:
    assert is_doubtful(ratios, [1.0] * len(ratios)) is doubtful


# Seconds over the batch: the second overtakes the first at 20, the third is far behind both.
LAWS: dict[str, Callable[[int], float]] = {
    ONE.label: lambda size: 1e-4 * size,
    TWO.label: lambda size: 1e-3 + 0.5e-4 * size,
    ONE_BF16.label: lambda size: 1e-2 * size,
}


async def measure_by_law(_asked: Any, workload: Workload, plans: Sequence[Plan], _seconds: float) -> list[Measurement]:
    size = workload.batch_size
    return [a_measurement(plan, size, LAWS[plan.label](size)) for plan in plans]


def test_the_ladder_is_gone_up_as_far_as_a_pair_s_own_steps_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossovers, "measure_plans", measure_by_law)
    nobody: Any = None
    measured = Measured(nobody, WORKLOADS[0], (ONE, TWO, ONE_BF16), 1.0)
    both, slow = (ONE.label, TWO.label), (ONE.label, ONE_BF16.label)
    truths = asyncio.run(measured.bisect([both, slow]))
    ran = {label: [size for size, times in measured.times.items() if times[label]] for label in LAWS}
    assert max(ran[ONE_BF16.label]) == 64  # where it took more than a tenth of a second
    assert max(ran[ONE.label]) == max(ran[TWO.label]) == 4096
    assert truths[both].low <= 20 <= truths[both].high
    assert truths[slow].kind == "never"


@pytest.mark.parametrize(
    ("signs", "contradicted"),
    [
        ({1: 1, 8: 1, 38: -1, 64: 1}, [38]),
        ({1: -1, 8: 0, 38: -1, 64: 1}, [8]),
        ({1: -1, 8: 1, 38: -1, 64: 1}, [8, 38]),
        ({1: 1, 8: -1}, []),
        ({1: 1, 8: 0, 64: 1}, [8]),
        ({1: 1, 8: 0, 38: 0, 64: 1}, [8, 38]),
        ({1: -1, 8: 0, 64: 1}, []),
        ({1: 0, 8: 1}, []),
    ],
)
def test_a_batch_is_contradicted_by_what_lies_on_both_sides_of_it(
    signs: dict[int, int], contradicted: list[int]
) -> None:
    assert Truth(signs).contradicted == contradicted


BOTH = (ONE.label, TWO.label)


def bisected(
    monkeypatch: pytest.MonkeyPatch, second: Callable[[int, int], float], slow: Callable[[int, int], bool]
) -> tuple[Measured, Truth, list[int]]:
    """With the sizes that were asked for. second: milliseconds a sample of the second plan, where the first takes 1, by
    the size and how often it was asked for; slow: likewise, whether no core was calm."""
    asked: list[int] = []

    async def measure(_asked: Any, workload: Workload, plans: Sequence[Plan], _seconds: float) -> list[Measurement]:
        size = workload.batch_size
        asked.append(size)
        at = (size, asked.count(size))
        rows = [a_measurement(ONE, size, 1e-3 * size), a_measurement(TWO, size, 1e-3 * size * second(*at))]
        return [replace(row, slow_share=float(slow(*at)), slowdown=None if slow(*at) else 1.0) for row in rows]

    monkeypatch.setattr(crossovers, "measure_plans", measure)
    nobody: Any = None
    measured = Measured(nobody, WORKLOADS[0], (ONE, TWO), 1.0)
    return measured, asyncio.run(measured.bisect([BOTH]))[BOTH], asked


def at_first_of_eight(size: int, count: int) -> bool:
    return size == 8 and count <= crossovers.MOST_PROCESSES


def test_a_batch_that_met_slow_seconds_is_measured_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second plan is ahead everywhere, but for the first time that it is asked at eight samples."""
    _, truth, asked = bisected(
        monkeypatch, lambda *at: 1.08 if at_first_of_eight(*at) else 0.5, slow=lambda _size, _count: False
    )
    assert asked.count(8) > crossovers.MOST_PROCESSES
    assert truth.signs[8] == 1
    assert truth.kind == "always"


def test_turns_on_calm_cores_count_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second plan is ahead everywhere, but at eight samples for the first seven times, when no core was calm."""
    measured, truth, _ = bisected(
        monkeypatch, lambda *at: 1.5 if at_first_of_eight(*at) else 0.5, slow=at_first_of_eight
    )
    assert truth.signs[8] == 1
    assert truth.kind == "always"
    kept = measured.document(BOTH)
    assert kept["calm"][8][0] == [False] * crossovers.MOST_PROCESSES + [True] * LEAST_CALM
    assert len(kept["times"][8][1]) == len(kept["calm"][8][1])
    assert set(measured.at(8, BOTH)[1]) == {0.5e-3 * 8}


def test_all_turns_count_where_hardly_one_was_calm_and_where_nobody_knows() -> None:
    first, second = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]
    assert of_calm(first, second, ([True, False, True], [True, True, True])) == ([1.0, 3.0], [4.0, 6.0])
    assert of_calm(first, second, ([True, False, True], [False, True, True])) == (first, second)
    assert of_calm(first, second, None) == (first, second)


def test_a_batch_of_no_calm_turn_is_measured_anew_though_no_other_contradicts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, asked = bisected(
        monkeypatch, lambda *_: 0.5, slow=lambda size, count: size == 1 and count <= crossovers.PROCESSES
    )
    assert asked.count(1) == 2 * crossovers.PROCESSES
    assert asked.count(8) == crossovers.PROCESSES


def test_turns_of_a_run_that_says_nothing_of_them_give_way_to_calm_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _, _ = bisected(monkeypatch, lambda *_: 0.5, slow=lambda _size, _count: False)
    measured.times, measured.calm = {8: {ONE.label: [8e-3] * 3, TWO.label: [12e-3] * 3}}, {}
    asyncio.run(measured.measure(8, [BOTH]))
    assert len(measured.at(8, BOTH)[0]) == 4, "one calm turn is too few"
    asyncio.run(measured.measure(8, [BOTH]))
    assert measured.at(8, BOTH) == ([8e-3] * 2, [4e-3] * 2)


def test_the_times_of_a_kept_run_s_model_are_those_of_all_its_pairs() -> None:
    rows = [
        {"from": "a", "to": "b", "times": {"8": [[1.0], [2.0]]}},
        {"from": "a", "to": "c", "times": {"8": [[1.0], [3.0, 4.0]]}},
    ]
    assert times_of(rows) == {8: {"a": [1.0], "b": [2.0], "c": [3.0, 4.0]}}


def test_every_model_s_rows_are_kept_as_it_is_done_and_none_is_begun_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked:
        async def recommend(self, request: Request) -> None: ...

    async def one_row(_bench: Bench, row: Row, _instant: Any) -> list[dict[str, Any]]:
        if row.name == "digits":
            raise CrosspointError("measure-failed", "The child was killed.")
        return [{"model": row.name}]

    monkeypatch.setattr(Bench, "_model", one_row)
    asked: Any = Asked()
    kept: list[int] = []
    bench = Bench(asked, asked, 1.0, lambda _line: None, lambda rows: kept.append(len(rows)))
    rows = asyncio.run(bench.rows(["tabular", "digits", "lstm"]))
    assert kept == [1, 2, 3]
    assert [row.get("error") for row in rows] == [None, "The child was killed.", None]
    late = Bench(asked, asked, 1.0, lambda _line: None, lambda rows: None, until=0.0)
    assert asyncio.run(late.rows(["tabular"])) == [{"model": "tabular", "error": "not begun: the time was over"}]


def a_row(instant: dict[str, Any], ratios: dict[int, float], to: str = "cpu bf16, 1 thread") -> dict[str, Any]:
    times = {size: ([1.0], [1.0 / ratio]) for size, ratio in ratios.items()}
    return {"from": "cpu fp32, 1 thread", "to": to, "times": times, "truth": truth_of(times).to_json(),
            "instant": instant, "quick": None}  # fmt: skip


def test_the_table_counts_what_is_decided_what_is_right_and_what_does_cross() -> None:
    rows = [
        a_row(told("at", 40, 10), {1: 0.5, 8: 0.8, 12: 1.3, 64: 2.0}),
        a_row(told("undecided", None, None), {1: 0.5, 8: 0.8, 12: 1.3, 64: 2.0}),
        a_row(told("always", None, 1), {1: 1.5, 64: 2.0}, to="cpu fp32, 2 threads"),
        a_row(told("always", None, 1), {1: 1.0, 64: 1.01}),
        {"model": "broken", "error": "It could not run."},
    ]
    rows = json.loads(json.dumps(rows))
    table = {(row["adviser"], row["figure"]): row for row in score(rows)}
    told_ones, likely = table["instant", "batch_size"], table["instant", "medians_cross_at"]
    assert (told_ones["pairs"], told_ones["decided"], told_ones["right"], told_ones["crossing"]) == (3, 2, 2, 1)
    assert (table["instant", "high"]["decided"], table["instant", "high"]["right"]) == (2, 1)
    assert (likely["decided"], likely["right"], likely["crossing_right"]) == (3, 2, 1)
    assert table["quick", "batch_size"]["pairs"] == 0
    assert table["torch default", "all threads, fp32"]["right"] == 1
    assert "2 of 3" in describe_scores(list(table.values()))


def test_what_was_told_beyond_the_batches_that_ran_is_counted_apart() -> None:
    never = {1: 0.5, 8: 0.8, 64: 0.8}
    rows = json.loads(json.dumps([a_row(told("at", 900, 200), never), a_row(told("never"), never)]))
    row = next(row for row in score(rows) if (row["adviser"], row["figure"]) == ("instant", "batch_size"))
    assert (row["decided"], row["beyond"], row["right"]) == (2, 1, 1)
    assert "| 2 of 2 | 1 | 100% (1 of 1) |" in describe_scores([row])


def test_following_a_wrong_crossover_costs_what_the_slower_plan_takes_longer() -> None:
    """The second plan is behind by half, a tenth ahead, and a quarter ahead."""
    times = {1: ([1.0], [1.5]), 8: ([1.1], [1.0]), 64: ([1.25], [1.0]), 512: ([2.0], [])}
    assert cost_of_following(8, times) == 0
    assert cost_of_following(1, times) == pytest.approx(0.5 / 3)
    assert cost_of_following(9, times) == pytest.approx(0.1 / 3)
    assert cost_of_following(math.inf, times) == pytest.approx((0.1 + 0.25) / 3)
    assert cost_of_following(1, {}) == 0
