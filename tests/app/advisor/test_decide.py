import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor import InvalidRequest, Recommendation, Request, recommend
from app.advisor.plans import candidate_plans
from probes.measurement import Measurement, MemoryPeak, Overheads
from probes.microtrain.contest import Contest, Entry
from probes.workload.description import Plan
from tests.app.advisor.build import (
    GB,
    ONE,
    ONE_BF16,
    TWO,
    TWO_BF16,
    a_gpu,
    a_measurement,
    a_summary,
    a_survey,
    a_workload,
)
from tests.app.advisor.machine import GPU, a_profile, true_seconds

BASE = MemoryPeak(process_bytes=2 * GB, process_base_bytes=300 * 10**6)


def measured(**seconds: float) -> list[Measurement]:
    """At batches 4 and 16, seconds being those of 16; a third of them at 4."""
    plans = {"one": ONE, "two": TWO, "one_bf16": ONE_BF16, "two_bf16": TWO_BF16}
    return [
        a_measurement(plans[name], batch, middle * share, memory=BASE, startup_seconds=0.5)
        for name, middle in seconds.items()
        for batch, share in ((4, 1 / 3), (16, 1.0))
    ]


ALL_FOUR = {"one": 1.0, "two": 0.6, "one_bf16": 2.0, "two_bf16": 1.5}


def answer(rows: list[Measurement] | None = None, **changes: Any) -> Recommendation:
    survey = changes.pop("survey", a_survey())
    return recommend(survey, None, None, rows or [], Request(a_workload(**changes)))


def test_the_document_has_the_fields_that_were_promised() -> None:
    document = answer(measured(**ALL_FOUR)).to_json()
    assert set(document) == {
        "schema_version",
        "workload",
        "recommended",
        "verdict",
        "confidence",
        "options",
        "crossovers",
        "curves",
        "settings",
        "reasons",
        "snippet",
    }
    assert {"model", "batch_size", "mode", "parameters", "flops_per_step"} <= set(document["workload"])
    assert set(document["recommended"]) == {"device", "precision", "threads", "environment", "batch_size"}
    option = document["options"][0]
    assert {
        "device",
        "precision",
        "threads",
        "environment",
        "fits",
        "why_not",
        "basis",
        "step_seconds",
        "samples_per_second",
        "breakdown_seconds",
        "memory",
        "max_batch_size",
    } <= set(option)
    assert set(option["step_seconds"]) == {"median", "low", "high"}
    assert set(option["breakdown_seconds"]) == {"transfer", "launch", "compute", "synchronize"}
    assert set(option["memory"]) == {
        "weights_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "activations_bytes",
        "overhead_bytes",
        "peak_bytes",
        "available_bytes",
        "allocated_peak_bytes",
        "reserved_peak_bytes",
        "process_peak_bytes",
    }
    crossover = document["crossovers"][0]
    assert set(crossover) == {
        "from",
        "to",
        "data",
        "kind",
        "batch_size",
        "low",
        "high",
        "medians_cross_at",
        "launch_bound_until",
        "break_even_steps",
        "basis",
    }
    assert set(crossover["from"]) == {"device", "precision", "threads"}
    assert set(document["curves"]) == {"batch_sizes", "plans"}
    assert set(document["curves"]["plans"][0]) == {"device", "precision", "threads", "step_seconds"}
    assert set(document["reasons"][0]) == {"code", "text", "evidence"}
    json.dumps(document, allow_nan=False)


def test_the_fastest_measured_plan_is_recommended_with_its_time() -> None:
    found = answer(measured(**ALL_FOUR))
    assert found.recommended == TWO
    assert found.verdict.startswith("Train on the CPU with 2 threads: 600 ms a step, 1.7 times as fast as")
    assert found.confidence is not None
    assert found.confidence > 0.99
    assert found.options[0].basis == "measured"
    assert found.options[0].samples_per_second == pytest.approx(16 / 0.6)


def test_what_cannot_be_told_apart_goes_to_the_cheaper_plan() -> None:
    found = answer(measured(**{**ALL_FOUR, "one": 0.605}))
    assert found.recommended == ONE
    assert "too close to call against the CPU with 2 threads" in found.verdict
    assert "too-close-to-call" in {reason.code for reason in found.reasons}


def test_a_batch_between_measured_ones_is_probed() -> None:
    found = answer(measured(**ALL_FOUR), batch_size=8)
    assert {option.basis for option in found.options} == {"probed"}


def test_without_calibration_and_measurement_no_time_is_made_up() -> None:
    found = answer()
    assert found.recommended is None
    assert found.confidence is None
    assert found.snippet is None
    assert all(option.step_seconds is None and option.basis is None for option in found.options)
    assert not found.nothing_fits
    assert "crosspoint calibrate" in found.verdict
    assert [reason.code for reason in found.reasons] == ["no-calibration"]
    assert found.curve_batch_sizes == ()


def test_a_plan_that_was_not_measured_leaves_the_confidence_open_and_is_named() -> None:
    found = answer(measured(one=1.0, two=0.6))
    assert found.recommended == TWO
    assert found.confidence is None
    (reason,) = [reason for reason in found.reasons if reason.code == "no-calibration"]
    assert "cpu bf16, 2 threads" in reason.text


def test_what_does_not_fit_says_how_much_is_missing_and_which_batch_would() -> None:
    survey = a_survey(usable_bytes=1 * GB)
    found = answer(survey=survey)
    assert found.nothing_fits
    assert found.recommended is None
    assert "Nothing here is big enough for batch size 16" in found.verdict
    head = found.options[0]
    assert head.why_not is not None
    largest = head.max_batch_size
    assert largest is not None
    assert f"A batch of {largest} would fit" in head.why_not
    assert "are missing" in head.why_not
    assert answer(survey=survey, batch_size=largest).options[0].fits is not False


@pytest.mark.parametrize(
    ("usable", "optimizer", "remedy"),
    [
        (450 * 10**6, "adamw", "with the optimizer sgd"),
        (250 * 10**6, "adamw", "inference of one would"),
        (250 * 10**6, "sgd", "inference of one would"),
        (50 * 10**6, "adamw", "weights alone take 100 MB"),
    ],
)
def test_when_not_one_sample_fits_something_else_is_offered(usable: int, optimizer: str, remedy: str) -> None:
    request = Request(a_workload(optimizer=optimizer), precision="fp32")
    found = recommend(a_survey(usable_bytes=usable), None, None, [], request)
    assert found.options[0].max_batch_size == 0
    assert remedy in (found.options[0].why_not or "")


def test_what_ran_out_of_memory_here_does_not_fit_whatever_was_estimated() -> None:
    rows = [*measured(one=1.0), a_measurement(TWO, 16, 1.0, outcome="out-of-memory", step=None)]
    found = answer(rows)
    two = next(option for option in found.options if option.plan == TWO)
    assert two.fits is False
    assert two.max_batch_size == 15
    assert "ran out of memory here at batch size 16" in (two.why_not or "")
    assert found.recommended == ONE


def test_what_ran_here_fits_whatever_was_estimated() -> None:
    peak = MemoryPeak(process_bytes=1_500_000_000, process_base_bytes=300 * 10**6)
    rows = [replace(row, memory=peak) for row in measured(**ALL_FOUR)]
    found = answer(rows, survey=a_survey(usable_bytes=1_600_000_000))
    assert found.recommended == TWO
    estimated = answer(survey=a_survey(usable_bytes=1_600_000_000)).options
    assert next(option for option in estimated if option.plan == TWO).fits is False


def test_what_ran_here_once_does_not_fit_into_less_memory_than_it_took() -> None:
    rows = [a_measurement(TWO, 16, 1.0, memory=BASE), a_measurement(TWO, 4, 0.3)]
    found = answer(rows, survey=a_survey(usable_bytes=19 * 10**8))
    two = next(option for option in found.options if option.plan == TWO)
    assert two.fits is False
    assert not two.cannot_run
    assert "At batch size 16 it took 2.0 GB here, and 1.9 GB are free on cpu now" in (two.why_not or "")
    assert two.max_batch_size is not None
    assert 4 <= two.max_batch_size < 16
    assert answer(rows, survey=a_survey(usable_bytes=3 * GB)).recommended == TWO


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
    assert reason.text.endswith("on cpu fp32, 2 threads.")
    head = found.options[0].step_seconds
    assert head is not None
    assert reason.evidence == {
        "steps": steps,
        "seconds": pytest.approx(steps * head.median + 0.5),
        "epochs": dataset.get("epochs", 1),
        "dataset_samples": dataset["dataset_samples"],
    }


def test_nothing_is_said_of_a_run_whose_data_set_or_step_is_not_known() -> None:
    for found in (answer(measured(**ALL_FOUR), epochs=20), answer(dataset_samples=1000)):
        assert "run-time" not in {reason.code for reason in found.reasons}


def test_the_peak_of_what_ran_is_the_measured_one() -> None:
    memory = answer(measured(**ALL_FOUR)).options[0].memory
    assert memory.peak_bytes == 2 * GB
    parts = (
        memory.weights_bytes,
        memory.gradients_bytes,
        memory.optimizer_bytes,
        memory.activations_bytes,
        memory.overhead_bytes,
    )
    assert sum(part or 0 for part in parts) == 2 * GB


def test_what_torch_refused_is_not_recommended_and_says_why() -> None:
    refused = a_measurement(TWO_BF16, 16, 1.0, outcome="unsupported", step=None, reason="bf16 has no kernel for it.")
    found = answer([*measured(one=1.0, two=0.6, one_bf16=2.0), refused])
    assert found.confidence is not None
    (reason,) = [reason for reason in found.reasons if reason.code == "cannot-run"]
    assert "bf16 has no kernel for it" in reason.text


def test_a_plan_that_was_not_reached_in_time_is_neither_refused_nor_forgotten() -> None:
    first, entry = (Entry(name, lambda executions: None) for name in ("first", "second"))
    Contest([first, entry], deadline=0.0, clock=lambda: 1.0).run()  # the words are the contest's own
    rows = [*measured(one=1.0), a_measurement(TWO, 16, 1.0, outcome="failed", step=None, reason=str(entry.error))]
    without = answer(rows)
    assert without.recommended == ONE
    assert without.confidence is None
    assert "not-reached" in {reason.code for reason in without.reasons}
    predicted = recommend(a_survey(), a_profile(), None, rows, Request(a_workload(), precision="fp32"))
    two = next(option for option in predicted.options if option.plan == TWO)
    assert two.basis == "predicted"
    assert not two.cannot_run
    assert "not measured" in (two.note or "")


def test_threads_that_hurt_are_said_to_hurt_with_both_times() -> None:
    found = answer(measured(one=0.010, two=0.2, one_bf16=0.05, two_bf16=0.3))
    assert found.recommended == ONE
    (reason,) = [reason for reason in found.reasons if reason.code == "threads-hurt"]
    assert "200 ms with 2 threads" in reason.text
    assert "10 ms with one" in reason.text


def test_the_crossover_between_one_thread_and_two_is_found_from_measurements() -> None:
    rows = [
        a_measurement(plan, batch, t)
        for plan, line in (
            (ONE, (0.001, 0.001)),
            (TWO, (0.008, 0.0005)),
        )
        for batch in (1, 32, 64)
        if (t := line[0] + line[1] * batch)
    ]
    found = answer(rows, batch_size=32)
    (crossover,) = [c for c in found.crossovers if (c.start, c.to) == (ONE, TWO)]
    assert crossover.kind == "at"
    assert crossover.low is not None
    assert crossover.batch_size is not None
    assert crossover.low <= 14 <= crossover.batch_size <= 20
    assert crossover.basis == "probed"
    assert found.recommended == TWO


def test_reading_the_loss_every_step_is_told_with_its_cost() -> None:
    gpu = Plan("cuda:0", "fp32")
    overheads = Overheads(0.0, 0.004, 0.003, 0.003, 0.3)
    rows = [a_measurement(gpu, 16, 0.010, overheads=overheads)]
    request = Request(a_workload(log_every=1), precision="fp32", devices=("cuda:0",))
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, rows, request)
    (reason,) = [reason for reason in found.reasons if reason.code == "reading-the-loss"]
    assert "3.0 ms a step here, 30 %" in reason.text
    assert found.options[0].breakdown_seconds.synchronize == pytest.approx(0.003)


def test_a_gpu_beside_the_cpu_is_compared_for_every_way_of_feeding_it() -> None:
    gpu = Plan("cuda:0", "fp32")
    rows = [
        *[a_measurement(TWO, batch, 0.002 * batch, startup_seconds=0.1) for batch in (1, 64)],
        *[
            a_measurement(
                gpu,
                batch,
                0.020 + 0.0001 * batch,
                startup_seconds=3.1,
                overheads=Overheads(0.0001 * batch, 0.01, 0.0, 0.01, 0.5),
            )
            for batch in (1, 64)
        ],
    ]
    request = Request(a_workload(batch_size=64), precision="fp32")
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, rows, request)
    assert found.recommended == gpu
    crossovers = {c.data: c for c in found.crossovers if (c.start, c.to) == (TWO, gpu)}
    assert crossovers["pageable"].kind == "at"
    assert crossovers["pageable"].batch_size is not None
    assert 10 <= crossovers["pageable"].batch_size <= 13
    assert crossovers["pageable"].break_even_steps == math.ceil(3.0 / (0.128 - 0.0264))
    assert "cuda:0 in fp32" in found.verdict


def test_a_device_that_is_not_here_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest):
        recommend(a_survey(), None, None, [], Request(a_workload(), devices=("cuda:0",)))


@given(
    seconds=st.lists(st.none() | st.floats(1e-5, 100), min_size=12, max_size=12),
    spread=st.floats(0, 0.9),
    batch=st.sampled_from([1, 2, 3, 7, 16, 64, 1000]),
    usable=st.sampled_from([None, 0, 10**8, 10**9, 10**12]),
    cores=st.sampled_from([None, 0.5, 1.0, 2.0, 3.0, 64.0]),
    mode=st.sampled_from(["training", "inference"]),
    data=st.sampled_from(["resident", "pageable", "pinned"]),
    gpu=st.booleans(),
    calibrated=st.booleans(),
    log_every=st.sampled_from([None, 1, 100]),
)
def test_whatever_was_measured_the_answer_is_whole(
    seconds: list[float | None],
    spread: float,
    batch: int,
    usable: int | None,
    cores: float | None,
    mode: str,
    data: str,
    gpu: bool,
    calibrated: bool,
    log_every: int | None,
) -> None:
    survey = a_survey(usable_cores=cores, usable_bytes=usable, gpus=[a_gpu()] if gpu else [])
    request = Request(a_workload(batch_size=batch, mode=mode, data=data, log_every=log_every))
    profile = a_profile((ONE, TWO, GPU)) if calibrated else None
    plans = candidate_plans(survey, request)
    rows = [
        a_measurement(plan, size, middle, spread)
        for plan, size, middle in zip(plans * 3, [batch, 2 * batch, 5] * 4, seconds, strict=False)
        if middle is not None
    ]
    found = recommend(survey, profile, None, rows, request)
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert found.verdict.endswith(".")
    assert {option.plan.key for option in found.options} == {plan.key for plan in plans}
    if found.recommended is not None:
        head = found.options[0]
        assert found.recommended == head.plan
        assert head.fits is not False
        assert document["snippet"]
    for option in found.options:
        if option.step_seconds is not None:
            assert option.step_seconds.low <= option.step_seconds.median <= option.step_seconds.high
        if option.fits is False:
            assert option.step_seconds is None
            assert option.why_not
    for text in (found.verdict, *(reason.text for reason in found.reasons)):
        assert text.endswith(".")
        assert not {"None", "nan", "inf"} & set(re.findall(r"\w+", text))
    for crossover in found.crossovers:
        assert (crossover.batch_size is not None) == (crossover.kind == "at")
        if crossover.low is not None and crossover.high is not None and crossover.batch_size is not None:
            assert crossover.low <= crossover.batch_size <= crossover.high


def test_a_summary_answers_for_its_totals() -> None:
    found = answer(measured(**ALL_FOUR))
    assert found.parameters == 25_000_000
    assert found.flops_per_step == pytest.approx(3 * 16 * 4.1e9)
    small = replace(a_workload(), model=a_summary(operations=1, flops_per_sample=0))
    assert recommend(a_survey(), None, None, [], Request(small)).flops_per_step == 0


def test_instant_answers_from_profile_and_trace_without_measuring() -> None:
    found = recommend(a_survey(), a_profile(), None, [], Request(a_workload()))
    assert found.recommended == TWO
    assert {option.basis for option in found.options} == {"predicted"}
    head = found.options[0].step_seconds
    assert head is not None
    assert head.low <= true_seconds(TWO, a_workload(), 16) <= head.high
    assert "about" in found.verdict
    assert {"predicted", "compute-bound", "threads-help"} <= {reason.code for reason in found.reasons}
    assert len(found.curve_batch_sizes) >= 8
    assert all(len(curve.step_seconds) == len(found.curve_batch_sizes) for curve in found.curves)


def test_a_network_too_small_for_threads_is_bound_by_dispatch() -> None:
    model = a_summary(parameters=1000, flops_per_sample=1e3, activation_bytes_per_sample=1e3, operations=20)
    found = recommend(a_survey(), a_profile(), None, [], Request(replace(a_workload(), model=model)))
    assert found.recommended == ONE
    assert "dispatch-bound" in {reason.code for reason in found.reasons}


def test_the_crossover_that_is_predicted_is_where_the_truth_crosses() -> None:
    model = a_summary(parameters=1000, flops_per_sample=1e7, activation_bytes_per_sample=1e5, operations=40)
    workload = replace(a_workload(), model=model)
    found = recommend(a_survey(gpus=[a_gpu()]), a_profile((ONE, TWO, GPU)), None, [], Request(workload, "fp32"))
    truth = next(b for b in range(1, 5000) if true_seconds(TWO, workload, b) < true_seconds(ONE, workload, b))
    (threads,) = [c for c in found.crossovers if (c.start, c.to) == (ONE, TWO)]
    assert threads.kind == "at"
    assert threads.low is not None
    assert threads.high is not None
    assert threads.low / 1.5 <= truth <= threads.high
    device = [c for c in found.crossovers if c.to == GPU]
    assert {c.data for c in device} == {"resident", "pageable", "pinned"}
    assert all(c.launch_bound_until is not None for c in device)
    assert all(c.break_even_steps is None for c in device)


def test_another_machines_profile_answers_for_its_plans_and_not_for_this_memory() -> None:
    request = Request(a_workload(), profile="made-up")
    found = recommend(a_survey(usable_bytes=1), a_profile((ONE, GPU), fingerprint="elsewhere"), None, [], request)
    assert [option.plan for option in found.options] == [GPU, ONE]
    assert all(option.fits is None for option in found.options)
    assert found.recommended == GPU
    with pytest.raises(InvalidRequest, match="calibrated for: cpu"):
        recommend(
            a_survey(),
            a_profile((ONE,), fingerprint="elsewhere"),
            None,
            [],
            Request(a_workload(), devices=("cuda:0",), profile="made-up"),
        )
