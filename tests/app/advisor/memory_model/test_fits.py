"""Whether a workload fits: by what was estimated, by what ran here, and by what is free now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.recommendation import MemoryParts, Option
from app.advisor.summary import trace_of_summary
from probes.bounds import MAX_BATCH_SIZE
from probes.measurement import Measurement, MemoryPeak
from probes.trace import Affine, Knot
from tests.app.advisor.answered import ALL_FOUR, BASE, answer, measured
from tests.app.advisor.build import (
    GB,
    ONE,
    TWO,
    a_gpu,
    a_measurement,
    a_survey,
    a_workload,
)
from tests.app.advisor.machine import GPU, a_profile
from tests.app.advisor.test_tried import not_run


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
        (50 * 10**6, "adamw", "weights alone take 100 MB: it takes a smaller model, or a larger machine"),
    ],
)
def test_when_not_one_sample_fits_something_else_is_offered(usable: int, optimizer: str, remedy: str) -> None:
    request = Request(a_workload(optimizer=optimizer), precision="fp32")
    found = recommend(a_survey(usable_bytes=usable), None, None, [], request)
    assert found.options[0].max_batch_size == 0
    assert remedy in (found.options[0].why_not or "")


def test_what_an_optimizer_holds_in_its_step_goes_with_it_on_a_cpu_too() -> None:
    """Of a large table at a batch of one: with sgd it fits where it was said that inference alone would."""
    workload = a_workload(1)
    trace = replace(trace_of_summary(workload), update_peaks=(Affine(600e6, 0.0),))
    found = recommend(a_survey(usable_bytes=450 * 10**6), None, trace, [], Request(workload, precision="fp32"))
    assert "with the optimizer sgd one would" in (found.options[0].why_not or "")


@pytest.mark.parametrize("asked", [{"devices": ("cuda",)}, {"precision": "fp32", "devices": ("cuda:0",)}])
def test_a_card_that_is_too_small_says_nothing_of_what_was_not_asked_for(asked: dict[str, Any]) -> None:
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=50 * 10**6)], usable_bytes=100 * GB)
    found = recommend(survey, None, None, [], Request(a_workload(), **asked))
    assert found.nothing_fits
    assert found.verdict.startswith("No plan that was asked for has room for batch size 16. ")
    assert "it takes a smaller model, or a device with more memory" in found.verdict
    everything = recommend(survey, None, None, [], Request(a_workload()))
    assert not everything.nothing_fits
    texts = [option.why_not for option in everything.options if option.fits is False]
    assert texts
    assert not any("machine" in str(text) for text in texts)


@pytest.mark.parametrize("data", ["pageable", "pinned"])
@pytest.mark.parametrize(
    ("free", "remedy"),
    [
        (295 * 10**6, "with the optimizer sgd one would"),
        (195 * 10**6, "inference of one would"),
        (150 * 10**6, "Not even one sample fits: it takes a smaller model, or a device with more memory."),
    ],
)
def test_what_a_device_s_optimizer_holds_at_once_goes_with_it(free: int, remedy: str, data: str) -> None:
    """100 MB each of weights, gradients, two moments and their roots; 90 of activations: 500 MB beside the context. A
    batch more, from pinned memory, is half a megabyte."""
    context = 50 * 10**6
    profile = replace(a_profile((GPU,)), context_bytes={GPU.device: context})
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=context + free)])
    request = Request(a_workload(1, data=data), devices=("cuda",), precision="fp32")
    found = recommend(survey, profile, None, [], request)
    assert remedy in (found.options[0].why_not or "")


@pytest.mark.parametrize(
    ("beyond_weights", "remedy"),
    [(500_000, "it takes smaller inputs, a smaller model, or"), (0, "it takes a smaller model, or")],
)
def test_smaller_inputs_are_told_where_they_could_be_small_enough(beyond_weights: int, remedy: str) -> None:
    """100 MB of weights beside the context, and 1.1 of activations."""
    profile = a_profile((GPU,))
    assert profile.context_bytes is not None
    fixed = profile.context_bytes[GPU.device] + 100 * 10**6
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=fixed + beyond_weights)])
    request = Request(a_workload(1, mode="inference"), devices=("cuda",), precision="fp32")
    found = recommend(survey, profile, None, [], request)
    assert f"Not even one sample fits: {remedy}" in (found.options[0].why_not or "")


def on_a_card(batch: int, rows: Sequence[Measurement] = (), **card: Any) -> Recommendation:
    survey = a_survey(gpus=[a_gpu(**card)], usable_bytes=200 * GB)
    return recommend(survey, a_profile((ONE, GPU)), None, rows, Request(a_workload(batch), precision="fp32"))


def option_on_a_card(batch: int, rows: Sequence[Measurement] = (), **card: Any) -> Option:
    return next(option for option in on_a_card(batch, rows, **card).options if option.plan == GPU)


def test_of_a_card_of_which_nobody_knows_what_is_free_nobody_says_that_it_fits() -> None:
    found = on_a_card(16, memory_free_bytes=None)
    option = found.options[0]
    assert option.plan == found.recommended == GPU
    assert (option.fits, option.max_batch_size, option.memory.available_bytes) == (None, None, None)
    assert option.memory.peak_bytes is not None
    assert "fits" not in found.verdict
    (reason,) = [reason for reason in found.reasons if reason.code == "free-memory-unknown"]
    assert reason.evidence == {"device": "cuda:0", "peak_bytes": option.memory.peak_bytes}
    assert not [reason for reason in on_a_card(16).reasons if reason.code == "free-memory-unknown"]


@pytest.mark.parametrize(
    ("total", "batch", "told"),
    [
        (24 * GB, 1000, "of which nobody knows how much is free: at least 67 GB are missing. A smaller batch may fit."),
        (820 * 10**6, 1, "Not even one sample fits; with the optimizer sgd one may."),
        (720 * 10**6, 1, "Not even one sample fits in training; inference of one may."),
        (90 * 10**6, 1, "The weights alone take 100 MB: "),
    ],
)
def test_what_a_card_could_not_hold_with_nothing_else_on_it_does_not_fit(total: int, batch: int, told: str) -> None:
    option = option_on_a_card(batch, memory_total_bytes=total, memory_free_bytes=None)
    assert option.fits is False
    assert told in (option.why_not or "")
    assert option.max_batch_size == (0 if batch == 1 else None)


def test_what_ran_out_of_memory_on_a_card_tells_the_largest_batch_whatever_is_free() -> None:
    rows = [a_measurement(GPU, 64, 1.0, outcome="out-of-memory", step=None)]
    assert option_on_a_card(16, rows, memory_free_bytes=None).max_batch_size == 63
    assert option_on_a_card(64, rows, memory_free_bytes=None).fits is False


def test_curves_end_where_a_card_of_which_nobody_knows_what_is_free_has_no_more() -> None:
    untold, all_free = (on_a_card(16, memory_free_bytes=free) for free in (None, 24 * GB))
    assert untold.curves == all_free.curves
    assert untold.crossovers == all_free.crossovers
    (curve,) = [curve for curve in untold.curves if curve.plan == GPU]
    assert None in curve.step_seconds


def with_a_gap(batch: int, rows: Sequence[Measurement] = (), a_sample: float = 1e6, times: int = 1) -> Recommendation:
    """The heap holds more at some 200 samples than at 400, or so many times as many: 0.3 GB of weights and libraries,
    and 1 MB a sample."""
    workload = a_workload(batch, mode="inference")
    sizes = ((1, 0), (100 * times, 0), (200 * times, 700 * 10**6), (400 * times, 0), (2**17 * times, 0))
    held = tuple(Knot(*each) for each in sizes)
    plain = replace(trace_of_summary(workload), activation_peaks=(Affine(0.0, a_sample),))
    trace = replace(plain, heap_surplus=held, autocast_heap_surplus=held)
    survey = a_survey(usable_bytes=GB)
    return recommend(survey, a_profile((ONE, TWO)), trace, rows, Request(workload, precision="fp32", devices=("cpu",)))


def test_where_more_is_taken_at_a_smaller_batch_no_part_of_the_answer_has_it_run() -> None:
    (small, between, large) = (with_a_gap(batch) for batch in (64, 200, 450))
    assert [each.options[0].fits for each in (small, between, large)] == [True, False, True]
    option = between.options[0]
    largest, up_to = option.max_batch_size, option.fits_up_to
    assert largest is not None
    assert up_to is not None
    assert up_to < 200 < largest
    assert {(o.max_batch_size, o.fits_up_to) for each in (small, large) for o in each.options} == {(largest, up_to)}
    first = next(size for size in range(200, 450) if size in option.held)
    assert f"A batch of {up_to}, or of {first} to {largest}, would fit." in (option.why_not or "")
    (reason,) = [reason for reason in between.reasons if reason.code == "does-not-fit"]
    changes = {remedy["change"]: remedy["fits"] for remedy in reason.evidence["remedies"]}
    assert changes[f"a batch of {up_to}"] is True
    assert f"a batch of {up_to + 1}" not in changes


@pytest.mark.parametrize(("times", "is_askable"), [(1, True), (2**18, False)])
def test_a_gap_is_told_where_larger_batches_have_no_end(times: int, *, is_askable: bool) -> None:
    """None that is larger than may be asked for."""
    option = with_a_gap(64, a_sample=0.0, times=times).options[0]
    assert option.max_batch_size is None
    assert option.fits_up_to is not None
    assert option.fits_up_to in option.held
    assert (option.fits_up_to + 1 not in option.held) is is_askable
    assert (option.fits_up_to == MAX_BATCH_SIZE) is not is_askable


def test_no_curve_nor_crossover_goes_by_batches_in_such_a_gap() -> None:
    found = with_a_gap(64)
    held = found.options[0].held
    for curve in found.curves:
        for size, seconds in zip(found.curve_batch_sizes, curve.step_seconds, strict=True):
            assert (seconds is not None) is (size in held)
    assert found.curves
    assert {256, 1024}.isdisjoint(found.curve_batch_sizes)
    assert all(crossover.batch_size is None or crossover.batch_size in held for crossover in found.crossovers)


def test_what_ran_in_such_a_gap_fits() -> None:
    peak = MemoryPeak(process_bytes=900 * 10**6, process_base_bytes=300 * 10**6)
    (option, _) = with_a_gap(200, [a_measurement(ONE, 200, 1.0, memory=peak)]).options
    assert (option.plan, option.fits) == (ONE, True)
    assert 200 in option.held


@pytest.mark.parametrize("rows", [[], measured(**ALL_FOUR)])
def test_no_batch_is_told_that_may_not_be_asked_for(rows: list[Measurement]) -> None:
    found = answer(rows, survey=a_survey(usable_bytes=10**18))
    assert {option.max_batch_size for option in found.options} == {MAX_BATCH_SIZE}


def test_what_ran_out_of_memory_here_does_not_fit_whatever_was_estimated() -> None:
    rows = [*measured(one=1.0), a_measurement(TWO, 16, 1.0, outcome="out-of-memory", step=None)]
    found = answer(rows)
    two = next(option for option in found.options if option.plan == TWO)
    assert two.fits is False
    assert two.max_batch_size == 15
    assert "ran out of memory at batch size 16" in (two.why_not or "")
    assert found.recommended == ONE


def test_what_ran_here_fits_whatever_was_estimated() -> None:
    peak = MemoryPeak(process_bytes=1_500_000_000, process_base_bytes=300 * 10**6)
    rows = [replace(row, memory=peak) for row in measured(**ALL_FOUR)]
    found = answer(rows, survey=a_survey(usable_bytes=1_600_000_000))
    assert found.recommended == TWO
    estimated = answer(survey=a_survey(usable_bytes=1_600_000_000)).options
    assert next(option for option in estimated if option.plan == TWO).fits is False


def test_a_first_step_does_not_tell_that_the_next_one_fits() -> None:
    """During it the optimizer has no state yet."""
    rows = [replace(row, steps=1, startup_seconds=None, memory=MemoryPeak()) for row in measured(**ALL_FOUR)]
    estimated = answer(survey=a_survey(usable_bytes=1_600_000_000)).options
    found = answer(rows, survey=a_survey(usable_bytes=1_600_000_000)).options
    assert {option.plan.key: option.fits for option in found} == {option.plan.key: option.fits for option in estimated}
    assert not all(option.fits for option in found)


def test_what_ran_here_once_does_not_fit_into_less_memory_than_it_took() -> None:
    rows = [a_measurement(TWO, 16, 1.0, memory=BASE), a_measurement(TWO, 4, 0.3)]
    found = answer(rows, survey=a_survey(usable_bytes=19 * 10**8))
    two = next(option for option in found.options if option.plan == TWO)
    assert two.fits is False
    assert not two.cannot_run
    assert "At batch size 16 it took 2.0 GB, and 1.9 GB are free on cpu" in (two.why_not or "")
    assert two.max_batch_size is not None
    assert 4 <= two.max_batch_size < 16
    assert answer(rows, survey=a_survey(usable_bytes=3 * GB)).recommended == TWO


@pytest.mark.parametrize("took", [2 * GB, 7 * GB // 10])
def test_the_peak_of_what_ran_is_the_measured_one(took: int) -> None:
    """Also where a small network took less than its libraries are reckoned with."""
    rows = [replace(row, memory=replace(BASE, process_bytes=took)) for row in measured(**ALL_FOUR)]
    memory = answer(rows).options[0].memory
    assert memory.peak_bytes == took
    parts = (
        memory.weights_bytes,
        memory.gradients_bytes,
        memory.optimizer_bytes,
        memory.activations_bytes,
        memory.overhead_bytes,
        memory.fragmentation_bytes,
    )
    assert sum(part or 0 for part in parts) == took


def added(memory: MemoryParts) -> int:
    names = ("weights", "gradients", "optimizer", "activations", "overhead", "fragmentation")
    return sum(getattr(memory, f"{name}_bytes") or 0 for name in names)


def test_a_batch_takes_no_more_than_a_larger_one_that_ran() -> None:
    """What fits because that one ran is not told to take more than is free."""
    seen = a_measurement(ONE, 4, 0.3, memory=BASE)  # what a process takes beside is known by it
    estimated = next(option for option in answer([seen]).options if option.plan == TWO).memory
    assert estimated.peak_bytes is not None
    took = estimated.peak_bytes - 10**8
    rows = [seen, a_measurement(TWO, 32, 1.0, memory=replace(BASE, process_bytes=took))]
    (two,) = [option for option in answer(rows).options if option.plan == TWO]
    assert two.fits
    assert two.memory.peak_bytes == two.memory.process_peak_bytes == added(two.memory) == took
    assert two.memory.allocated_peak_bytes is not None
    assert two.memory.allocated_peak_bytes + (two.memory.overhead_bytes or 0) <= took


@pytest.mark.parametrize("took", [2 * GB, 7 * GB // 10])
def test_what_torch_holds_and_libraries_beside_is_the_measured_peak(took: int) -> None:
    rows = [replace(row, memory=replace(BASE, process_bytes=took)) for row in measured(**ALL_FOUR)]
    memory = answer(rows).options[0].memory
    assert memory.reserved_peak_bytes is not None
    assert memory.allocated_peak_bytes is not None
    assert memory.reserved_peak_bytes + (memory.overhead_bytes or 0) == took
    assert memory.allocated_peak_bytes <= memory.reserved_peak_bytes


def test_of_what_ran_the_optimizer_s_own_step_is_told_as_what_it_holds() -> None:
    """And not as what the heap holds of what was freed."""
    workload = a_workload(1)
    trace = replace(trace_of_summary(workload), update_peaks=(Affine(600e6, 0.0),))
    row = a_measurement(ONE, 1, 1.0, memory=replace(BASE, process_bytes=2 * GB))
    found = recommend(a_survey(), None, trace, [row], Request(workload, precision="fp32"))
    memory = next(option.memory for option in found.options if option.plan == ONE)
    assert memory.peak_bytes == 2 * GB
    assert memory.activations_bytes == 600_000_000


def test_the_verdict_says_which_plan_a_batch_would_fit_under() -> None:
    """In bf16 twice as many fit as in fp32, of which a script trains in one."""
    found = answer(survey=a_survey(usable_bytes=1 * GB))
    biggest = max(found.options, key=lambda option: option.max_batch_size or 0)
    assert f"comes nearest. {biggest.why_not}" in found.verdict


def test_after_one_sample_ran_out_of_memory_nobody_says_that_a_change_would_do() -> None:
    """How much it lacked is not known: by the estimate it fitted."""
    survey, request = a_survey(usable_bytes=GB), Request(a_workload(1), precision="fp32")
    profile = replace(a_profile((ONE,)), process_base_bytes=0)
    row = replace(not_run(ONE, 1, "out-of-memory"), available_bytes=GB)
    found = recommend(survey, profile, None, [row], request)
    why_not = next(option.why_not for option in found.options if option.plan == ONE) or ""
    assert "Not even one sample fits" in why_not
    assert " would" not in why_not
