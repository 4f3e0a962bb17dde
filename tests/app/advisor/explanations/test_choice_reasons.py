"""Why this plan: never by the median of one that needs cores which others hold, a guess between extremes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from probes.hardware import Load
from probes.workload.description import Plan, Precision
from tests.app.advisor.build import ONE, ONE_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU

EIGHT = Plan("cpu", "fp32", 8)
CALM = Load(load_average=0.2, steal_fraction=0.0, busy_fraction=0.02, interval_seconds=1.0, own_busy_fraction=0.0)
FULL = replace(CALM, busy_fraction=1.0)


def answer(load: Load, *seconds: tuple[Plan, float], precision: Precision | None = "fp32") -> Recommendation:
    """Of eight cores and a card, from steps that were taken while nobody else was there."""
    gpus = [a_gpu()] if any(not plan.is_cpu for plan, _ in seconds) else []
    survey = replace(a_survey(usable_cores=8, physical_cores=8, gpus=gpus), load=load)
    rows = [a_measurement(plan, 16, step, others_cores=0.0) for plan, step in seconds]
    return recommend(survey, None, None, rows, Request(a_workload(), precision or "auto"))


def codes(found: Recommendation) -> set[str]:
    return {reason.code for reason in found.reasons}


def test_a_card_that_is_preferred_for_the_crowd_is_not_told_to_take_longer() -> None:
    found = answer(FULL, (ONE, 0.65e-3), (EIGHT, 0.4e-3), (GPU, 1.0e-3))
    assert found.recommended == GPU
    assert "while others hold cores" in found.verdict
    assert "device" not in codes(found)
    (told,) = [reason for reason in answer(CALM, (ONE, 1.3e-3), (GPU, 1.0e-3)).reasons if reason.code == "device"]
    assert told.evidence["ratio"] == pytest.approx(1.3)


def test_threads_that_help_on_a_calm_machine_are_not_said_to_help_where_one_is_named_for_the_crowd() -> None:
    rows = ((ONE, 10e-3), (EIGHT, 2e-3))
    found = answer(FULL, *rows)
    assert found.recommended == ONE
    assert {option.crowded for option in found.options if option.step_seconds is not None} == {True}
    assert not codes(found) & {"threads-help", "threads-hurt", "threads-equal"}
    assert "threads-help" in codes(answer(CALM, *rows))


FOUR = Plan("cpu", "fp32", 4)


@pytest.mark.parametrize(
    ("seconds", "code", "said"),
    [
        ((450e-6, 420e-6, 580e-6), "threads-help", "faster up to 4, and slower beyond: a step takes 580 µs with 8"),
        (
            (40e-6, 35e-6, 36e-6),
            "threads-help",
            "36 µs with 8 threads, 35 µs with 4 threads, 40 µs with one, 1.1 times",
        ),
        ((430e-6, 420e-6, 580e-6), "threads-hurt", "580 µs with 8 threads, 420 µs with 4 threads, 430 µs with one."),
        ((430e-6, 420e-6, 430e-6), "threads-equal", "420 µs with 4 threads"),
        ((420e-6, 450e-6, 580e-6), "threads-hurt", "580 µs with 8 threads, 420 µs with one."),
    ],
)
def test_of_threads_the_recommended_number_is_told(seconds: tuple[float, ...], code: str, said: str) -> None:
    """Of two, recommended of sixteen and one, it was said that more threads are slower."""
    found = answer(CALM, *zip((ONE, FOUR, EIGHT), seconds, strict=True))
    (reason,) = [reason for reason in found.reasons if reason.code.startswith("threads-")]
    assert reason.code == code
    assert said in reason.text
    assert (reason.evidence["ratio"] < 0.95) is (code == "threads-help")


@pytest.mark.parametrize(("fp32", "is_told"), [(1.04, False), (1.06, True)])
def test_a_precision_pays_by_as_much_as_another_does_not(fp32: float, is_told: bool) -> None:
    found = answer(CALM, (ONE, fp32), (ONE_BF16, 1.0), precision=None)
    assert found.recommended == ONE_BF16
    assert ("precision-gain" in codes(found)) is is_told


def test_no_precision_pays_by_guesses() -> None:
    survey = replace(a_survey(usable_cores=8, physical_cores=8), load=CALM)
    rows = [a_measurement(plan, 16, step, others_cores=8.0) for plan, step in ((ONE, 20.0), (ONE_BF16, 1.0))]
    found = recommend(survey, None, None, rows, Request(a_workload()))
    assert all(option.relieved for option in found.options if option.step_seconds is not None)
    assert not codes(found) & {"precision-gain", "precision-hurts"}


def test_a_precision_measured_in_the_crowd_is_not_held_against_one_that_was_not() -> None:
    survey = replace(a_survey(usable_cores=8, physical_cores=8), load=FULL)
    rows = [a_measurement(ONE, 16, 1.0, others_cores=0.0), a_measurement(ONE_BF16, 16, 3.0, others_cores=8.0)]
    found = recommend(survey, None, None, rows, Request(a_workload()))
    assert {option.plan.precision: option.crowded for option in found.options if option.step_seconds is not None} == {
        "fp32": True,
        "bf16": False,
    }
    assert not codes(found) & {"precision-gain", "precision-hurts"}


def test_a_card_that_takes_about_as_long_is_not_told_to_take_one_time_as_long() -> None:
    (told,) = [r for r in answer(CALM, (ONE, 0.38e-3), (GPU, 0.373e-3)).reasons if r.code == "device"]
    assert told.text.endswith(": about as long.")


def test_a_card_of_which_nothing_is_known_is_named_beside_what_is_recommended() -> None:
    survey = a_survey(gpus=[a_gpu()])
    found = recommend(survey, None, None, [a_measurement(ONE, 16, 1.0)], Request(a_workload(), "fp32"))
    assert found.recommended == ONE
    assert "No time is known yet of cuda:0, which may be quicker." in found.verdict
    both = [a_measurement(ONE, 16, 1.0), a_measurement(GPU, 16, 2.0)]
    assert "No time is known" not in recommend(survey, None, None, both, Request(a_workload(), "fp32")).verdict
