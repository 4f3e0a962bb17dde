"""What a whole run over a data set takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from probes.hardware import Load
from tests.app.advisor.answered import ALL_FOUR, answer, measured
from tests.app.advisor.build import a_survey, a_workload
from tests.app.advisor.machine import a_profile


@pytest.mark.parametrize(
    ("dataset", "steps", "words"),
    [
        (
            {"dataset_samples": 50_000, "epochs": 20},
            62_500,
            "50,000 rows in batches of 16, 20 times over: 62,500 steps",
        ),
        ({"dataset_samples": 50_000}, 3125, "50,000 rows in batches of 16: 3,125 steps"),
        ({"dataset_samples": 17}, 2, "17 rows in batches of 16: 2 steps"),
        ({"dataset_samples": 1}, 1, "1 row in batches of 16: 1 step,"),
    ],
)
def test_what_the_whole_run_takes_is_said_where_the_data_set_is_known(
    dataset: dict[str, int], steps: int, words: str
) -> None:
    found = answer(measured(**ALL_FOUR), **dataset)
    (reason,) = [reason for reason in found.reasons if reason.code == "run-time"]
    assert words in reason.text
    begun = ", its start of 500 ms included" if steps < 10 else ""  # of an hour it is nothing
    assert reason.text.endswith(f"on cpu fp32, 2 threads{begun}.")
    head = found.options[0].step_seconds
    assert head is not None
    assert reason.evidence == {
        "steps": steps,
        "seconds": pytest.approx(steps * head.median + 0.5),
        "epochs": dataset.get("epochs", 1),
        "dataset_samples": dataset["dataset_samples"],
        "startup_seconds": 0.5,
    }


def test_nothing_is_said_of_a_run_whose_data_set_or_step_is_not_known() -> None:
    for found in (answer(measured(**ALL_FOUR), epochs=20), answer(dataset_samples=1000)):
        assert "run-time" not in {reason.code for reason in found.reasons}


def test_a_run_among_others_takes_from_the_least_to_the_most_that_they_make_of_it() -> None:
    load = Load(steal_fraction=0.0, busy_fraction=1.0, own_busy_fraction=0.0)
    workload = a_workload(64, dataset_samples=640_000)
    found = recommend(replace(a_survey(), load=load), a_profile(), None, [], Request(workload, "fp32"))
    (reason,) = [reason for reason in found.reasons if reason.code == "run-time"]
    head = found.options[0]
    assert head.crowded
    assert head.step_seconds is not None
    assert "about" not in reason.text
    assert " to " in reason.text
    assert reason.evidence["low"] == pytest.approx(10_000 * head.step_seconds.low, rel=0.01)
    assert reason.evidence["high"] == pytest.approx(10_000 * head.step_seconds.high, rel=0.01)
