"""Where others hold cores, the plan that suffers least is preferred, and the answer says so."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor import Recommendation, Request, recommend
from app.advisor.crowding import WORST_OF_MANY, crowd_of, in_company
from app.advisor.recommendation import Interval
from probes.hardware import Cpu, Load, Survey
from probes.measurement import Measurement
from probes.workload.description import Plan
from tests.app.advisor.build import GB, ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

CALM = Load(load_average=0.2, steal_fraction=0.0, busy_fraction=0.02, interval_seconds=1.0, own_busy_fraction=0.0)
HALF = replace(CALM, busy_fraction=0.5)  # one of two cores
CROWD = replace(CALM, busy_fraction=1.0)


def a_machine(load: Load, cores: int = 2) -> Survey:
    return replace(a_survey(usable_cores=cores, physical_cores=cores), load=load)


def answer(load: Load, rows: list[Measurement] | None = None, batch_size: int = 64) -> Recommendation:
    profile = None if rows else a_profile()
    return recommend(a_machine(load), profile, None, rows or [], Request(a_workload(batch_size)))


def codes(found: Recommendation) -> set[str]:
    return {reason.code for reason in found.reasons}


@pytest.mark.parametrize("load", [Load(), Load(load_average=9.0), CALM, replace(CALM, busy_fraction=0.1)])
def test_a_calm_machines_answer_is_unchanged(load: Load) -> None:
    calm = answer(Load(busy_fraction=0.0, own_busy_fraction=0.0))
    assert replace(answer(load), load=calm.load) == calm
    assert "crowded" not in codes(answer(load))


def test_every_answer_tells_who_else_computes() -> None:
    met = answer(replace(CALM, busy_fraction=0.5, steal_fraction=0.1, cpu_pressure_percent=3.0)).load
    assert met is not None
    assert (met.usable_cores, met.others_cores) == (2, pytest.approx(1.2))
    assert (met.steal_fraction, met.cpu_pressure_percent) == (0.1, 3.0)
    unread = answer(Load()).load
    assert unread is not None
    assert (unread.others_cores, unread.steal_fraction) == (None, None)
    assert "crowded" not in codes(answer(CALM))
    assert answer(CALM).to_json()["load"]["others_cores"] == pytest.approx(0.04)


def test_two_threads_are_predicted_to_be_faster_on_a_calm_machine() -> None:
    assert answer(CALM).recommended == TWO


@pytest.mark.parametrize(
    "load",
    [HALF, replace(CALM, steal_fraction=0.5), replace(CALM, busy_fraction=1.0), Load(cpu_pressure_percent=80.0)],
    ids=["others", "hypervisor", "all", "pressure"],
)
def test_one_thread_is_preferred_where_others_hold_the_other_core(load: Load) -> None:
    found, calm = answer(load), answer(CALM)
    assert found.recommended == ONE
    assert found.confidence is not None
    assert calm.confidence is not None
    assert found.confidence < calm.confidence
    (reason,) = (reason for reason in found.reasons if reason.code == "crowded")
    assert reason.evidence["plans"]


def test_plans_that_suffer_alike_are_told_apart_as_on_a_calm_machine() -> None:
    def kinds(load: Load) -> dict[tuple[str, str], str]:
        return {(row.start.label, row.to.label): row.kind for row in answer(load).crossovers}

    busy, calm = kinds(HALF), kinds(CALM)
    for pair in ((ONE, ONE_BF16), (TWO, TWO_BF16)):
        names = (pair[0].label, pair[1].label)
        assert busy[names] == calm[names] != "undecided"
    assert busy[ONE.label, TWO.label] != calm[ONE.label, TWO.label]


def test_the_reason_carries_what_was_read() -> None:
    (reason,) = (r for r in answer(replace(HALF, steal_fraction=0.04)).reasons if r.code == "crowded")
    assert reason.evidence["others_cores"] == pytest.approx(1.08)
    assert reason.evidence["free_cores"] == pytest.approx(2 - 1.08 + 0.29)
    assert reason.evidence["steal_fraction"] == 0.04
    assert "others hold 1.1 of 2 cores" in reason.text
    assert "0.3 of them taken for what always runs, and 1.2 of 2 usable ones are free." in reason.text


@given(cores=st.integers(2, 16))
def test_with_others_on_all_but_one_core_one_thread_suffers_least(cores: int) -> None:
    crowd = crowd_of(a_machine(replace(CALM, busy_fraction=(cores - 1) / cores), cores))
    assert crowd is not None
    assert crowd.exposure(Plan("cpu", "fp32", 1)) == 0
    ideal = Interval(1.0 / cores, 0.95 / cores, 1.05 / cores)
    many = in_company(ideal, Plan("cpu", "fp32", cores), crowd.exposure(Plan("cpu", "fp32", cores)))
    assert many.low == ideal.low
    assert many.low < many.median < many.high
    if cores <= WORST_OF_MANY**0.5:
        assert many.high > 1.0


@given(others=st.floats(0, 1), cores=st.integers(1, 128))
def test_more_threads_never_suffer_less_and_a_fuller_machine_never_frees_cores(others: float, cores: int) -> None:
    crowd, fuller = (
        crowd_of(a_machine(replace(CALM, busy_fraction=busy), cores)) for busy in (others, min(1.0, others + 0.1))
    )
    assert crowd is not None
    assert fuller is not None
    exposures = [crowd.exposure(Plan("cpu", "fp32", threads)) for threads in range(1, cores + 1)]
    assert all(0 <= fewer <= more <= 1 for fewer, more in pairwise(exposures))
    assert all(fuller.exposure(Plan("cpu", "fp32", t + 1)) >= exposure for t, exposure in enumerate(exposures))
    assert crowd.exposure(GPU) == 0


def test_our_own_measurement_is_no_crowd() -> None:
    busy = replace(CALM, busy_fraction=1.0, own_busy_fraction=0.98)
    ours, calm = answer(busy), answer(CALM)
    assert replace(ours, load=calm.load) == calm
    assert ours.load is not None
    assert ours.load.others_cores == pytest.approx(0.04)


def test_others_on_the_cores_of_a_host_leave_a_small_quota_alone() -> None:
    cpu = Cpu(physical_cores=64, logical_cores=64, usable_cores=2.0, usable_cores_limit="cgroup")
    crowd = crowd_of(replace(a_survey(), cpu=cpu, load=replace(CALM, busy_fraction=0.5)))
    assert crowd is not None
    assert crowd.free == 2.0


@pytest.mark.parametrize(("limit", "free"), [("cgroup", 2.0 - (1.5 - 0.29)), ("affinity", 2.0)])
def test_others_within_our_own_quota_hold_cores_of_it(limit: str, free: float) -> None:
    """On a host with 62 idle cores: what a neighbour in this container uses, this process cannot."""
    cpu = Cpu(physical_cores=64, logical_cores=64, usable_cores=2.0, usable_cores_limit=limit)
    load = replace(CALM, busy_fraction=1.5 / 64, quota_others_cores=1.5)
    crowd = crowd_of(replace(a_survey(), cpu=cpu, load=load))
    assert crowd is not None
    assert crowd.free == pytest.approx(free)
    assert crowd.exposure(TWO) == pytest.approx(min(1.0, 2.0 - free))
    assert crowd.exposure(ONE) == pytest.approx(max(0.0, 1.0 - free))
    assert crowd.exposure(TWO, crowd.others) == 0.0  # measured among as many


@pytest.mark.parametrize(("usable", "online", "inside", "free"), [(1.0, 2, 1.0, 0.27), (12.0, 96, 12.0, 0.49)])
def test_others_on_the_very_cpus_that_affinity_leaves_hold_them(
    usable: float, online: int, inside: float, free: float
) -> None:
    """Pinned to the same CPUs as we are, on a machine whose others idle."""
    cpu = Cpu(
        logical_cores=online, usable_cores=usable, usable_cores_limit="affinity", allowed_logical_cores=int(usable)
    )
    load = replace(CALM, busy_fraction=inside / online, allowed_others_cores=inside)
    crowd = crowd_of(replace(a_survey(), cpu=cpu, load=load))
    assert crowd is not None
    assert crowd.free == pytest.approx(free)
    assert crowd.free == pytest.approx(usable - inside + crowd.background)  # as the reason says
    elsewhere = crowd_of(replace(a_survey(), cpu=cpu, load=replace(load, allowed_others_cores=0.0)))
    assert elsewhere is not None
    assert elsewhere.free == usable


def test_what_was_measured_meanwhile_contains_it() -> None:
    rows = [a_measurement(plan, 64, seconds, others_cores=1.0) for plan, seconds in ((ONE, 1.0), (TWO, 0.6))]
    found = answer(HALF, rows)
    assert found.recommended == TWO
    assert "crowded" in codes(found)
    assert not any(option.crowded for option in found.options)


def test_what_was_measured_when_it_was_calm_says_nothing_of_a_crowd() -> None:
    rows = [a_measurement(plan, 64, seconds, others_cores=0.0) for plan, seconds in ((ONE, 1.0), (TWO, 0.6))]
    assert answer(CALM, rows).recommended == TWO
    assert answer(HALF, rows).recommended == ONE


def test_a_measurement_that_does_not_say_what_it_met_is_believed() -> None:
    rows = [a_measurement(plan, 64, seconds) for plan, seconds in ((ONE, 1.0), (TWO, 0.6))]
    assert answer(HALF, rows).recommended == TWO


def test_another_machine_is_no_matter_of_this_ones_load() -> None:
    request = Request(a_workload(64), profile="made-up")
    profile = a_profile(fingerprint="another")
    calm, crowded = (recommend(a_machine(load), profile, None, [], request) for load in (CALM, HALF))
    assert calm == crowded


def test_load_that_moves_by_little_between_two_measurements_is_no_crowd() -> None:
    rows = [a_measurement(plan, 64, seconds, others_cores=0.3) for plan, seconds in ((ONE, 1.0), (TWO, 0.6))]
    found = answer(replace(CALM, busy_fraction=0.19), rows)
    assert "crowded" not in codes(found)
    assert found.recommended == TWO


def test_a_winner_measured_in_the_crowd_is_not_told_to_suffer_or_to_suffer_least() -> None:
    rows = [a_measurement(plan, 64, seconds, others_cores=1.0) for plan, seconds in ((ONE, 1.0), (TWO, 0.6))]
    (reason,) = (reason for reason in answer(HALF, rows).reasons if reason.code == "crowded")
    assert reason.text.endswith("The times here were measured among them, and contain it as far as it could be told.")


def test_where_no_time_is_known_a_crowd_is_told_without_what_it_did_to_times() -> None:
    found = recommend(a_machine(HALF), None, None, [], Request(a_workload(64)))
    (reason,) = (reason for reason in found.reasons if reason.code == "crowded")
    assert reason.text.endswith("usable ones are free.")


@pytest.mark.parametrize(("usable_bytes", "told"), [(8 * GB, True), (10**6, False)])
def test_a_card_s_time_is_not_said_to_be_measured_among_those_who_hold_cores(usable_bytes: int, *, told: bool) -> None:
    """Where the CPU's plans have no time, or do not fit."""
    survey = replace(a_survey(gpus=[a_gpu()], usable_bytes=usable_bytes), load=replace(CALM, busy_fraction=1.0))
    found = recommend(survey, a_profile((GPU,)), None, [], Request(a_workload(64), "fp32"))
    assert found.recommended == GPU
    crowded = [reason.text for reason in found.reasons if reason.code == "crowded"]
    assert bool(crowded) is told
    assert all(text.endswith("usable ones are free.") for text in crowded)


@pytest.mark.parametrize("load", [HALF, replace(CALM, busy_fraction=1.0)], ids=["one-crowded", "both"])
def test_the_verdict_does_not_compare_with_a_guess_between_extremes(load: Load) -> None:
    rows = [a_measurement(plan, 64, seconds, others_cores=0.0) for plan, seconds in ((ONE, 1.0), (TWO, 0.2))]
    found = answer(load, rows)
    assert found.recommended == ONE
    assert "preferred to the CPU with 2 threads while others hold cores" in found.verdict
    assert not codes(found) & {"threads-help", "threads-hurt", "threads-equal"}


@pytest.mark.parametrize(
    ("then", "now", "two", "said"),
    [
        (2.0, CALM, 0.1, "at least 4.6 times as fast as the CPU with 2 threads"),  # not 22, by the medians
        (0.0, replace(CALM, busy_fraction=1.0), 1.5e-3, "preferred to the CPU with 2 threads while others hold"),
    ],
    ids=["relieved", "crowded"],
)
def test_the_verdict_tells_of_guesses_what_their_extremes_do(then: float, now: Load, two: float, said: str) -> None:
    """The slower plan's median is a guess, too."""
    rows = [a_measurement(ONE, 64, 1e-3, others_cores=0.0), a_measurement(TWO, 64, two, others_cores=then)]
    found = answer(now, rows)
    assert found.recommended == ONE
    assert said in found.verdict


def test_plans_with_as_many_threads_are_told_apart_by_their_ratio_as_on_a_calm_machine() -> None:
    """Others hold up both alike, and are no reason to prefer one of them."""
    rows = [a_measurement(plan, 64, seconds, others_cores=0.0) for plan, seconds in ((ONE, 1.0), (ONE_BF16, 1.4))]
    found = answer(replace(CALM, busy_fraction=1.0), rows)
    assert found.recommended == ONE
    assert all(option.crowded for option in found.options if option.step_seconds is not None)
    assert "1.4 times as fast as the CPU in bf16 with one thread" in found.verdict


def test_what_is_faster_than_a_crowd_leaves_any_plan_is_not_told_as_preferred_for_the_crowd() -> None:
    rows = [a_measurement(plan, 64, 1.0, others_cores=0.0) for plan in (ONE, TWO)]
    rows.append(a_measurement(GPU, 64, 0.03))
    survey = replace(a_survey(usable_cores=2, physical_cores=2, gpus=[a_gpu()]), load=replace(CALM, busy_fraction=1.0))
    found = recommend(survey, None, None, rows, Request(a_workload(64), "fp32"))
    assert found.recommended == GPU
    assert "while others hold cores" not in found.verdict
    assert "at least" in found.verdict
