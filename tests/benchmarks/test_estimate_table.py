import statistics
from dataclasses import replace

import pytest

from app.advisor.summary import trace_of_summary
from benchmarks.estimate_table import describe_table, is_met, make_table, quantile
from benchmarks.estimates import split, true_times
from benchmarks.rules_of_thumb import roofline
from benchmarks.workloads import WORKLOADS
from probes.measurement import Timing
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, a_measurement, a_workload
from tests.app.advisor.machine import a_profile

TRUTH = {"a": {"median": 1.0}, "b": {"median": 2.0}}


def a_row(factor: float, named: str = "a", **more: object) -> dict[str, object]:
    options = {
        label: {"median": factor * truth["median"], "low": 0.9 * truth["median"], "high": 1.1 * truth["median"]}
        for label, truth in TRUTH.items()
    }
    instant = {"recommended": named, "options": options}
    baselines = {label: {"roofline": truth["median"] / 4, "operations alone": None} for label, truth in TRUTH.items()}
    row = {"family": "dense", "mode": "training", "truth": TRUTH, "instant": instant, "quick": None, "default": "b"}
    return {**row, "baselines": baselines, "shares": {"light": 0.7, "arithmetic": 0.3}, **more}


def test_errors_count_the_same_in_both_directions() -> None:
    table = make_table([a_row(1.25), a_row(0.8)])
    assert table["advisers"]["instant"]["median error"] == pytest.approx(0.25)
    assert table["advisers"]["instant"]["bias"] == pytest.approx(0.0)


def test_regret_is_what_the_named_plan_takes_longer_than_the_best() -> None:
    table = make_table([a_row(1.0), a_row(1.0, named="b")])
    instant = table["advisers"]["instant"]
    assert instant["mean regret"] == pytest.approx(0.5)
    assert instant["worst regret"] == pytest.approx(1.0)
    assert instant["within 5 % of the best"] == 0.5
    assert table["baselines"]["torch default"]["mean regret"] == pytest.approx(1.0)


def test_rules_of_thumb_stand_beside() -> None:
    table = make_table([a_row(1.0)])
    assert table["baselines"]["roofline"]["median error"] == pytest.approx(3.0)
    assert table["baselines"]["operations alone"]["median error"] is None


def test_a_profile_without_a_bandwidth_has_no_roofline() -> None:
    profile, trace = a_profile(), trace_of_summary(a_workload())
    rate_alone = replace(profile, points=tuple(p for p in profile.points if p.constant == "matmul"))
    assert (roofline(profile, ONE, trace, 16) or 0.0) > 0
    assert roofline(rate_alone, ONE, trace, 16) is None


def test_a_cache_s_bandwidth_is_not_taken_for_memory_s() -> None:
    profile, trace = a_profile(), trace_of_summary(a_workload())
    copied = [point for point in profile.points if point.constant == "bandwidth" and point.plan == ONE]
    largest = max(copied, key=lambda point: point.bytes)
    quick = Timing.from_samples([largest.seconds.median / 1e6])
    cached = replace(largest, bytes=largest.bytes / 1e4, seconds=quick)  # a hundred times as fast
    beside = replace(profile, points=(*profile.points, cached))
    plain, in_memory = roofline(profile, ONE, trace, 16), roofline(beside, ONE, trace, 16)
    in_cache = roofline(beside, ONE, trace, 16, cached=True)
    assert plain is not None
    assert in_cache is not None
    assert in_memory == plain > in_cache


def test_what_failed_and_what_was_missed_is_shown() -> None:
    rows = [a_row(1.5), {"name": "broken", "family": "text", "error": "ValueError: no", "truth": TRUTH}]
    text = describe_table(make_table(rows))
    assert "broken: ValueError: no" in text
    assert "50.0% (missed)" in text
    assert "| dense |" in text


def test_a_share_is_met_from_its_target_on_and_an_error_up_to_it() -> None:
    assert is_met("median error", "instant", 0.08)
    assert not is_met("median error", "instant", 0.081)
    assert is_met("within 5 % of the best", "quick", 0.96)
    assert not is_met("interval holds", "quick", 0.95)
    assert is_met("interval holds", "quick", None) is None


def test_a_quantile_is_a_value_that_was_there() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.9) == 3.0
    assert quantile([], 0.9) is None


def row_of(processes: list[float]) -> dict[str, object]:
    truth = {"cpu": {"median": statistics.median(processes), "processes": processes}}
    return {"family": "dense", "mode": "training", "truth": truth}


def test_a_process_is_judged_by_the_others_and_not_by_what_it_is_part_of() -> None:
    rows = [row_of([0.9, 1.0, 1.25])]
    differ = make_table(rows)["processes differ by"]
    off = [1.125 / 0.9 - 1, 1.075 / 1.0 - 1, 1.25 / 0.95 - 1]
    assert differ["median error"] == pytest.approx(off[0])
    assert differ["90th percentile error"] == pytest.approx(off[2])
    assert "another process" in describe_table(make_table(rows))


def test_slow_blocks_are_told_beside_the_calm_machine_s_times() -> None:
    row = row_of([1.0, 1.0])
    one = {"median": 1.1, "processes": [1.1, 1.1], "slow_share": [0.0, 0.0], "slowdown": [1.0, 1.0]}
    two = {"median": 1.0, "processes": [1.0, 1.0], "slow_share": [0.5, 0.5], "slowdown": [1.8, 1.8]}
    row |= {"truth": {"cpu fp32, 1 thread": one, "cpu fp32, 2 threads": two}}
    row["instant"] = {"recommended": "cpu fp32, 2 threads", "options": {}}
    table = make_table([row])
    assert table["advisers"]["instant"]["mean regret"] == 0.0
    assert table["baselines"]["instant, slow blocks among them"]["mean regret"] == pytest.approx(1.4 / 1.1 - 1)
    assert table["slow blocks"] == {"share": {"one thread": 0.0, "more threads": 0.5}, "slowdown": 1.8}
    assert "50% on more threads and 0% on one thread; they took 1.80 times as long" in describe_table(table)
    assert make_table([row_of([1.0])])["slow blocks"] == {}  # of a run in which nobody read it


def test_two_processes_are_off_by_all_that_lies_between_them() -> None:
    assert make_table([row_of([1.0, 1.2])])["processes differ by"]["median error"] == pytest.approx(0.2)


def test_one_process_says_nothing_of_what_another_would_take() -> None:
    assert make_table([row_of([1.0])])["processes differ by"]["median error"] is None


def test_truth_is_the_median_of_processes() -> None:
    rows = [a_measurement(Plan("cpu", "fp32", 1), 8, seconds) for seconds in (2.0, 1.0, 9.0)]
    truth = true_times({"cpu": rows})["cpu"]
    assert (truth["median"], truth["low"], truth["high"]) == (2.0, 1.0, 9.0)


def test_what_the_last_calibration_alone_told_stands_beside() -> None:
    first, second = a_row(3.0)["instant"], a_row(1.5)["instant"]
    table = make_table([a_row(1.0, **{"block": 1, "instant of each calibration alone": [first, second, first]})])
    assert table["one calibration alone"]["median error"] == pytest.approx(0.5)
    assert table["one calibration alone"]["estimates"] == len(TRUTH)
    assert table["advisers"]["instant"]["median error"] == pytest.approx(0.0)
    assert "| instant of the last calibration alone | 50.0% | 50.0% |" in describe_table(table)


def test_blocks_take_models_in_their_order_and_about_as_many_batch_sizes() -> None:
    blocks = split(WORKLOADS, 4)
    assert [row for block in blocks for row in block] == list(WORKLOADS)
    sizes = [sum(len(row.batch_sizes) for row in block) for block in blocks]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 3
    assert split(WORKLOADS[:1], 4) == [list(WORKLOADS[:1])]


def test_an_answer_without_a_plan_that_ran_is_not_near_the_best() -> None:
    nothing = a_row(1.0)
    nothing["instant"] = {"recommended": None, "options": {}}
    rows = [a_row(1.0), a_row(1.0, named="b"), a_row(1.0, named="cuda:0 fp16"), nothing]
    instant = make_table(rows)["advisers"]["instant"]
    assert instant["within 5 % of the best"] == 0.25
    assert instant["mean regret"] == pytest.approx(0.5)  # of the two that are known
    assert (instant["decisions"], instant["unnamed"]) == (4, 2)
    assert (instant["estimates"], instant["untold"]) == (3 * len(TRUTH), len(TRUTH))
    text = describe_table(make_table(rows))
    assert "| estimates; plans that ran and were told no time | 6; 2 |" in text
    assert "| decisions; without a plan that ran | 4; 2 |" in text


def test_torch_s_default_stands_beside_quick_where_quick_was_asked() -> None:
    small, large = a_row(1.0, default="b"), a_row(1.0, default="a")
    large["quick"] = large["instant"]
    table = make_table([small, large])
    assert table["baselines"]["torch default"]["mean regret"] == pytest.approx(0.5)
    beside = table["baselines"]["torch default, where quick was asked"]
    assert (beside["mean regret"], beside["decisions"]) == (0.0, 1)
    assert "| torch default, where quick was asked |  |  | 0.0% | 0.0% |  | 1 |" in describe_table(table)


def test_a_range_is_held_against_single_processes_too() -> None:
    row = row_of([0.8, 1.0, 1.0, 1.2])
    row["instant"] = {"recommended": "cpu", "options": {"cpu": {"median": 1.0, "low": 0.9, "high": 1.1}}}
    instant = make_table([row])["advisers"]["instant"]
    assert instant["interval holds"] == 1.0
    assert instant["interval holds a process"] == 0.5
    assert "| interval holds a single process | 50.0% |" in describe_table(make_table([row]))
