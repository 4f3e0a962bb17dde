"""The experiment everybody has run, for real and short."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from probes.microtrain.experiment import run_experiment
from probes.microtrain.iris_experiment.iris import read_iris, split_iris
from probes.microtrain.iris_experiment.iris_network import count_correct, make_learner
from probes.microtrain.iris_experiment.variants import (
    LEAST_SLICES,
    ROUNDS,
    Slice,
    Variant,
    extra_per_reading,
    take_turns,
)
from probes.microtrain.step import applied
from probes.workload.description import Plan

EPOCHS = 120
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As the experiment itself runs: two threads on a crowded machine wait for each other."""
    with applied(Plan("cpu", "fp32", 1)):
        yield


@pytest.fixture(scope="module")
def progress() -> list[tuple[float, str]]:
    return []


@pytest.fixture(scope="module")
def result(progress: list[tuple[float, str]]) -> dict[str, Any]:
    def note(fraction: float, message: str) -> None:
        progress.append((fraction, message))

    return run_experiment("iris", EPOCHS, [1, 10, 100, 10 * EPOCHS, None], ["cpu"], note)  # two are never


def test_every_way_of_reading_has_its_number_of_readings(result: dict[str, Any]) -> None:
    variants = result["devices"][0]["variants"]
    assert {variant["log_every"]: variant["readings"] for variant in variants} == {1: 120, 10: 12, 100: 1, None: 0}


def test_reading_changes_nothing_about_what_is_learnt(result: dict[str, Any]) -> None:
    assert len({variant["final_loss"] for variant in result["devices"][0]["variants"]}) == 1


def test_the_loss_falls(result: dict[str, Any]) -> None:
    curve = result["devices"][0]["loss_curve"]
    assert curve[0][0] == 1
    assert curve[-1][0] == EPOCHS
    assert curve[-1][1] < curve[0][1]


def test_the_shares_of_a_run_add_up(result: dict[str, Any]) -> None:
    for variant in result["devices"][0]["variants"]:
        assert sum(variant["shares"].values()) == pytest.approx(1)
        assert all(0 <= share <= 1 for share in variant["shares"].values())


def test_accuracy_is_counted_on_the_held_out_rows(result: dict[str, Any]) -> None:
    for variant in result["devices"][0]["variants"]:
        assert variant["accuracy"] == variant["correct"] / 30


def test_the_first_step_and_one_reading_are_reported_apart(result: dict[str, Any]) -> None:
    device = result["devices"][0]
    assert device["startup_seconds"] > 0
    assert device["reading_seconds"]["median"] > 0
    assert device["overheads"]["transfer_seconds"] is None  # nothing is copied to a CPU


def test_the_result_is_json_and_tells_its_story(result: dict[str, Any]) -> None:
    json.dumps(result, allow_nan=False)
    assert any("does not follow the number of readings" in sentence for sentence in result["explanation"])


def test_progress_rises_to_the_end(result: dict[str, Any], progress: list[tuple[float, str]]) -> None:
    fractions = [fraction for fraction, _ in progress]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert f"of {EPOCHS} epochs" in progress[-1][1]


def test_the_network_learns_iris() -> None:
    split = split_iris(read_iris())
    learner = make_learner(CPU, split.training)
    for _ in range(3000):
        learner()
    assert count_correct(learner, split.held_out) >= 25


def test_variants_take_turns_and_each_begins_as_often() -> None:
    split = split_iris(read_iris())
    order: list[int | None] = []

    class Noted(Variant):
        def run_slice(self, epochs: int, device: torch.device) -> None:
            order.append(self.log_every)
            super().run_slice(epochs, device)

    variants = [Noted(every, make_learner(CPU, split.training, every)) for every in (1, None)]
    take_turns(variants, 2 * ROUNDS, CPU, lambda fraction: None)
    assert order[:4] == [1, None, None, 1]
    assert [variant.epochs for variant in variants] == [2 * ROUNDS, 2 * ROUNDS]
    assert all(len(variant.slices) == ROUNDS for variant in variants)


def test_a_run_that_reads_no_more_than_the_other_has_no_cost_to_show() -> None:
    split = split_iris(read_iris())
    never, rarely = (Variant(every, make_learner(CPU, split.training, every)) for every in (None, 1000))
    take_turns([never, rarely], 10, CPU, lambda fraction: None)
    assert extra_per_reading(rarely, never) is None


@pytest.mark.parametrize("slices", [1, LEAST_SLICES - 1, LEAST_SLICES])
def test_a_few_epochs_do_not_tell_what_a_reading_adds(slices: int) -> None:
    """Of one or two there is no spread, and whatever they differ by would count as what readings cost."""
    rows = split_iris(read_iris()).training
    often, never = (
        Variant(every, make_learner(CPU, rows, every), slices=[Slice(1, readings, seconds)] * slices)
        for every, readings, seconds in ((1, 1, 7e-3), (None, 0, 7e-4))
    )
    assert (extra_per_reading(often, never) is not None) == (slices == LEAST_SLICES)


def test_a_run_without_any_reading_still_has_a_loss_curve() -> None:
    result = run_experiment("iris", 5, [None], ["cpu"], lambda fraction, message: None)
    assert len(result["devices"][0]["loss_curve"]) == 5
    assert result["explanation"]


@pytest.mark.parametrize(
    ("name", "epochs", "log_every", "devices"),
    [
        ("mnist", 10, [1], []),
        ("iris", 0, [1], []),
        ("iris", 10**12, [1], []),
        ("iris", 10, [], []),
        ("iris", 10, [0], []),
        ("iris", 10, [1], ["cuda:99"]),
        ("iris", 10, [1], ["meta"]),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    name: str, epochs: int, log_every: list[int | None], devices: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:
        run_experiment(name, epochs, log_every, devices, lambda fraction, message: None)
    assert str(caught.value).endswith(".")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_learns_the_same_and_its_costs_are_known() -> None:
    result = run_experiment("iris", EPOCHS, [1, None], ["cpu", "cuda:0"], lambda fraction, message: None)
    cpu, gpu = result["devices"]
    assert gpu["outcome"] == "ok"
    assert gpu["overheads"]["transfer_seconds"] > 0
    assert gpu["variants"][0]["final_loss"] == pytest.approx(cpu["variants"][0]["final_loss"], rel=1e-3)
