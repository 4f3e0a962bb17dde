"""Jobs for the micro-training, and what its answers say of the machine."""

from dataclasses import replace

import pytest

from app.labjobs import calibrate_job, describe_machine, load_meanwhile, without_own
from probes.hardware import Load, Torch
from tests.app.advisor.build import a_gpu, a_survey

BEFORE = Load(busy_fraction=0.9, own_busy_fraction=0.1, cpu_pressure_percent=3.0)
SURVEY = replace(a_survey(usable_cores=4, physical_cores=4), load=BEFORE)


def test_the_load_while_steps_ran_is_others_alone() -> None:
    load = load_meanwhile(SURVEY, {"others_cores": 1.0, "steal_fraction": 0.02, "load_average": 5.0})
    assert (load.busy_fraction, load.own_busy_fraction, load.steal_fraction) == (0.25, 0.0, 0.02)
    assert load.cpu_pressure_percent == 3.0


def test_what_the_job_took_for_others_and_is_ours_is_no_load_and_in_a_plans_way_only_where_it_is_much() -> None:
    """A trace for another question holds cores as any program does."""
    result = {"noise": {"others_cores": 1.5}, "measurements": [{"others_cores": 1.7}, {"others_cores": None}]}
    for own, busy, then in ((0.1, 0.35, 1.6), (0.5, 0.25, 1.45), (2.0, 0.0, 1.45)):
        told = without_own(result, own)
        assert load_meanwhile(SURVEY, told["noise"]).busy_fraction == busy
        assert told["measurements"] == [{"others_cores": pytest.approx(then)}, {"others_cores": None}]
    assert without_own({"measurements": None}, 1.0) == {"noise": {}, "measurements": None}


def test_where_steps_did_not_say_the_survey_stands() -> None:
    assert load_meanwhile(SURVEY, {}) == BEFORE
    assert load_meanwhile(SURVEY, {"others_cores": None}) == BEFORE


@pytest.mark.parametrize(
    ("name", "vendor", "told"),
    [("NVIDIA A10", "NVIDIA", "NVIDIA A10"), (None, "NVIDIA", "unnamed NVIDIA GPU"), (None, None, "unnamed GPU")],
)
def test_a_machine_is_described_without_what_names_one_card_in_the_world(
    name: str | None, vendor: str | None, told: str
) -> None:
    said = describe_machine(a_survey(gpus=[a_gpu(id="GPU-5f3c-1", name=name, vendor=vendor)]))
    assert said.endswith(f", {told}")
    assert "5f3c" not in said


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (23.4 * 2**30, "23 GiB"),
        (8 * 2**30, "8 GiB"),
        (9.96 * 2**30, "10 GiB"),
        (1.4 * 2**30, "1.4 GiB"),
        (512 * 2**20, "512 MiB"),
        (4096, "1 MiB"),
    ],
)
def test_little_memory_is_told_in_units_that_tell_it(size: float, told: str) -> None:
    limited = replace(SURVEY, memory=replace(SURVEY.memory, limit_bytes=int(size)))
    assert describe_machine(limited).endswith(f", {told}")


def test_what_is_calibrated_is_what_torch_can_use_and_of_like_cards_one_or_what_was_asked_for() -> None:
    cards = [a_gpu(), a_gpu(id="GPU-2", torch_device="cuda:1"), a_gpu(id="GPU-3", torch_device="cuda:2", usable=False)]
    survey = a_survey(gpus=cards)
    assert calibrate_job(survey, "quick", (), "mine")["devices"] == ["cpu", "cuda:0"]
    assert calibrate_job(survey, "quick", ("cuda:1",), "mine")["devices"] == ["cuda:1"]


def test_where_torch_s_word_on_a_card_is_not_known_the_measuring_process_finds_out() -> None:
    survey = a_survey(gpus=[a_gpu(), a_gpu(id="GPU-2", torch_device="cuda:1", usable=None)])
    assert calibrate_job(survey, "quick", (), "mine")["devices"] == []
    assert calibrate_job(survey, "quick", ("cuda:1",), "mine")["devices"] == ["cuda:1"]


def test_a_torch_that_may_show_cards_and_was_not_asked_finds_out_which() -> None:
    survey = a_survey()
    torch = Torch("2.13.0+rocm7.0", hip_version="7.0")
    unasked = replace(survey, software=replace(survey.software, torch=torch))
    assert calibrate_job(unasked, "quick", (), "mine")["devices"] == []
    heard = replace(survey, software=replace(survey.software, torch=replace(torch, cuda_available=False)))
    assert calibrate_job(heard, "quick", (), "mine")["devices"] == ["cpu"]
