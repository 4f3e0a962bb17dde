"""Resident data lie where they are computed on: all of the data set, not the batch alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.memory_model.rooms import Room
from app.advisor.recommendation import Option
from app.advisor.summary import trace_of_summary
from app.advisor.tried import tried
from probes.measurement import Measurement, MemoryPeak
from probes.trace import Affine
from probes.workload.description import DATA, Data, ModelDescription, Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import GB, ONE, a_gpu, a_measurement, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile
from tests.app.advisor.memory_model.test_memory import sum_of_parts

IRIS = parse_model("iris-mlp")


def found(
    samples: int | None,
    data: Data = "resident",
    rows: tuple[Measurement, ...] = (),
    batch_size: int = 16,
    free: int = 23 * GB,
    usable: int = 23 * GB,
    model: ModelDescription = IRIS,
) -> Recommendation:
    """Of samples of a megabyte, whose activations take fifty; the rest takes less than a GB."""
    workload = Workload(model, batch_size, data=data, dataset_samples=samples)
    plain = trace_of_summary(a_workload(batch_size))
    trace = replace(plain, input_bytes=Affine(8.0, 1e6), activation_peaks=(Affine(0.0, 50e6),))
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=free)], usable_bytes=usable)
    return recommend(survey, a_profile((ONE, GPU)), trace, list(rows), Request(workload, precision="fp32"))


def option_of(answer: Recommendation, plan: Plan = GPU) -> Option:
    return next(option for option in answer.options if option.plan == plan)


def peak_of(answer: Recommendation, plan: Plan = GPU) -> int:
    peak = option_of(answer, plan).memory.peak_bytes
    assert peak is not None
    return peak


def on_card(batch_size: int, gigabytes: int, data: str = "resident") -> Measurement:
    """One batch of the data lay there."""
    memory = MemoryPeak(allocated_bytes=gigabytes * GB, reserved_bytes=(gigabytes + 1) * GB)
    return a_measurement(GPU, batch_size, 0.01, memory=memory, data=data)


@pytest.mark.parametrize("plan", [GPU, ONE], ids=["on a card", "in the host's memory"])
def test_the_whole_data_set_lies_there_beside_the_batch(plan: Plan) -> None:
    alone, told = (option_of(found(samples), plan) for samples in (None, 10_000))
    for name in ("peak_bytes", "activations_bytes", "allocated_peak_bytes"):
        assert getattr(told.memory, name) == getattr(alone.memory, name) + 10 * GB
    assert sum_of_parts(told.memory) == told.memory.peak_bytes
    assert told.fits
    assert alone.max_batch_size is not None
    assert told.max_batch_size == pytest.approx(alone.max_batch_size - 200, abs=1)


@pytest.mark.parametrize("plan", [GPU, ONE])
def test_a_data_set_that_does_not_fit_need_not_lie_there(plan: Plan) -> None:
    answer = found(30_000)
    option = option_of(answer, plan)
    assert (option.fits, option.max_batch_size) == (False, 0)
    advice = "Not even one sample fits beside 30 GB of resident data; with pageable data one would."
    assert advice in (option.why_not or "")
    reasons = [reason for reason in answer.reasons if reason.code == "does-not-fit"]
    assert len(reasons) == 2  # of the card and of the CPU
    for reason in reasons:
        remedies = {remedy["change"]: remedy for remedy in reason.evidence["remedies"]}
        assert (remedies["pageable data"]["saves_bytes"], remedies["pageable data"]["fits"]) == (30 * GB, True)
    assert option_of(found(30_000, "pageable"), plan).fits


def test_where_the_data_set_is_not_resident_or_not_known_only_the_batch_counts() -> None:
    alone = peak_of(found(None))
    assert alone == peak_of(found(None, "pageable")) == peak_of(found(10_000, "pageable"))
    assert peak_of(found(None, "pinned")) == peak_of(found(10_000, "pinned")) == alone + 16 * 10**6 + 8
    assert peak_of(found(10_000, model=a_summary())) == alone  # of a summary nobody knows how large a sample is


def test_what_ran_with_a_few_batches_takes_the_data_set_as_well() -> None:
    told = option_of(found(10_000, rows=(on_card(16, 2),)))
    assert told.fits
    assert told.memory.peak_bytes == 12 * GB + 500_000_000  # with the context
    assert (told.memory.reserved_peak_bytes, told.memory.allocated_peak_bytes) == (13 * GB, 12 * GB)
    assert sum_of_parts(told.memory) == told.memory.peak_bytes
    larger = option_of(found(22_000, rows=(on_card(16, 2),)))
    assert larger.fits is False
    said = "At batch size 16 it took 2.5 GB, its data set takes 22 GB, and 23 GB are free on cuda:0."
    assert said in (larger.why_not or "")


def test_what_ran_in_the_host_s_memory_takes_the_data_set_as_well() -> None:
    row = a_measurement(ONE, 16, 1.0, memory=MemoryPeak(process_bytes=2 * GB), data="resident")
    told = option_of(found(10_000, rows=(row,)), ONE)
    assert told.memory.peak_bytes == told.memory.process_peak_bytes == 12 * GB
    assert sum_of_parts(told.memory) == 12 * GB
    assert option_of(found(22_000, rows=(row,)), ONE).fits is False


def test_what_a_step_took_beyond_its_estimate_is_no_part_of_the_data_set() -> None:
    """Twice the batch takes twice of it, and the data set once."""
    rows = (on_card(16, 6, "pageable"),)
    peaks = [peak_of(found(10_000, data, rows, batch_size=32)) for data in ("resident", "pageable")]  # type: ignore[arg-type]
    assert peaks[1] > 9 * GB
    assert peaks[0] - peaks[1] == pytest.approx(10 * GB, abs=2)


@pytest.mark.parametrize(("samples", "fits"), [(10_000, True), (16_000, True), (18_000, False)])
def test_what_ran_out_of_memory_does_again_where_the_data_set_leaves_no_more(samples: int, fits: bool) -> None:
    """5 GB were free then, and 23 are now, of which the data set leaves 13, 7 and 5."""
    row = a_measurement(GPU, 16, 1.0, outcome="out-of-memory", step=None, data="resident")
    assert option_of(found(samples, rows=(replace(row, available_bytes=5 * GB),))).fits is fits


@pytest.mark.parametrize("asked", DATA)
@pytest.mark.parametrize("room", [{"free": 3 * GB}, {"usable": 3 * GB}], ids=["a full card", "a full host"])
def test_a_crossover_of_resident_data_is_looked_at_as_far_as_they_leave_room(asked: Data, room: dict[str, int]) -> None:
    rows = found(1_000, asked, **room).crossovers  # type: ignore[arg-type]
    looked_at = {row.data: row.looked_at for row in rows if (row.start, row.to) == (ONE, GPU)}
    for data in DATA:
        answer = found(1_000, data, **room)  # type: ignore[arg-type]
        largest = [option_of(answer, plan).max_batch_size or 0 for plan in (ONE, GPU)]
        assert looked_at[data] == (1, min(largest))
    assert looked_at["resident"][1] < looked_at["pageable"][1]


def test_what_ran_in_nobody_knows_how_much_is_asked_for_what_the_data_set_leaves() -> None:
    """4 GB were free then; of 23 that are now it leaves 2, and then 5."""
    row = a_measurement(GPU, 16, 1.0, data="resident", available_bytes=4 * GB)
    ran = [tried([row], a_workload(16), Room(23 * GB, 0, size * GB)).ran for size in (21, 18)]
    assert ran == [None, 16]
