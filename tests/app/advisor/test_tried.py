"""What came of running a plan counts where it says something: at its own batch size, or at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.recommendation import Option, Reason
from app.advisor.summary import trace_of_summary
from probes.measurement import Measurement, MemoryPeak
from probes.profile import Profile
from probes.trace import Affine
from probes.workload.description import ModelDescription, Plan, Workload
from tests.app.advisor.answered import answer
from tests.app.advisor.build import GB, ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import a_profile

GPU = Plan("cuda:0")
PROFILE = a_profile((ONE, GPU))
ENDED = "Its process ended before the step did, most likely for want of memory."


def not_run(plan: Plan, batch_size: int, outcome: str, reason: str | None = None) -> Measurement:
    return a_measurement(plan, batch_size, 1.0, outcome=outcome, step=None, reason=reason)


def option_of(found: Recommendation, plan: Plan) -> Option:
    return next(option for option in found.options if option.plan == plan)


def reasons_of(found: Recommendation, code: str) -> list[Reason]:
    return [reason for reason in found.reasons if reason.code == code]


def predicted(rows: list[Measurement], batch_size: int = 16, **changes: Any) -> Recommendation:
    workload = a_workload(batch_size)
    survey = changes.pop("survey", a_survey())
    trace = replace(trace_of_summary(workload), **changes)
    return recommend(survey, a_profile(), trace, rows, Request(workload))


@pytest.mark.parametrize("reason", ["The step failed (ValueError): Expected more than 1 value per channel.", ENDED])
def test_a_step_that_failed_at_one_batch_may_run_at_another(reason: str) -> None:
    rows = [not_run(plan, 4096, "failed", reason) for plan in (ONE, TWO, ONE_BF16)]
    assert option_of(predicted(rows, 4096), ONE).why_not == reason
    found = predicted(rows, 16)
    assert found.recommended is not None
    assert not any(option.cannot_run for option in found.options)
    assert not reasons_of(found, "cannot-run")


def test_what_torch_cannot_do_it_cannot_at_any_batch() -> None:
    found = predicted([not_run(ONE_BF16, 4, "unsupported", "No kernel.")])
    assert option_of(found, ONE_BF16).cannot_run
    ran_since = predicted([not_run(ONE_BF16, 4, "unsupported"), a_measurement(ONE_BF16, 8, 1.0)])
    assert not option_of(ran_since, ONE_BF16).cannot_run


@pytest.mark.parametrize("outcome", ["failed", "unsupported"])
def test_a_batch_that_a_plan_did_not_run_is_not_told_by_others_that_it_ran(outcome: str) -> None:
    """As a model of one's own that refuses odd batches."""
    rows = [a_measurement(plan, size, size / 64) for plan in (ONE, TWO) for size in (16, 64, 256)]
    rows += [not_run(plan, 63, outcome, "Odd batches are not supported.") for plan in (ONE, TWO)]
    option = option_of(answer(rows, batch_size=63), ONE)
    assert (option.cannot_run, option.why_not) == (True, "Odd batches are not supported.")
    assert "It cannot run here" in predicted(rows, 63, autocast_refused="No kernel.").verdict
    assert not option_of(answer(rows, batch_size=65), ONE).cannot_run
    found = predicted(rows, 63, survey=a_survey(usable_bytes=200 * GB))
    seconds = next(curve.step_seconds for curve in found.curves if curve.plan == ONE)
    known = dict(zip(found.curve_batch_sizes, seconds, strict=True))
    assert known[63] is None
    assert known[64] is not None


def test_a_refusal_at_another_batch_says_so_where_the_plan_ran_at_none() -> None:
    """A kernel may refuse what is too large for it alone."""
    rows = [not_run(GPU, 4096, "unsupported", "torch cannot do this here: CUDNN_STATUS_NOT_SUPPORTED")]
    told = "CUDNN_STATUS_NOT_SUPPORTED (so it was at batch size 4096)."
    survey = a_survey(gpus=[a_gpu()])
    elsewhere, there = (
        option_of(recommend(survey, PROFILE, None, rows, Request(a_workload(size))), GPU) for size in (16, 4096)
    )
    assert (elsewhere.why_not or "").endswith(told)
    assert (there.why_not or "").endswith("CUDNN_STATUS_NOT_SUPPORTED")


@pytest.mark.parametrize("outcome", ["failed", "unsupported"])
def test_what_did_not_run_once_and_ran_at_that_batch_runs(outcome: str) -> None:
    rows = [not_run(ONE, 16, outcome, "A fault."), a_measurement(ONE, 16, 1.0)]
    assert not option_of(answer(rows), ONE).cannot_run


def test_a_batch_that_was_not_reached_in_time_is_not_told_of_another() -> None:
    late = "One step was not done after 9 s. A smaller batch or more time would do."
    rows = [not_run(ONE, 64, "failed", late)]
    assert late in (option_of(predicted(rows, 64), ONE).note or "")
    assert option_of(predicted(rows, 16), ONE).note is None


def test_a_later_measurement_counts_whatever_way_it_was_fed() -> None:
    rows = [a_measurement(ONE, 16, 3.0, data="pageable"), a_measurement(ONE, 16, 1.0, data="resident")]
    for given, seconds in ((rows, 1.0), (rows[::-1], 3.0)):
        step = option_of(answer(given), ONE).step_seconds
        assert step is not None
        assert step.median == seconds


def test_a_plan_that_cannot_run_is_no_way_out_of_too_little_memory() -> None:
    refused = "torch cannot do this here: no kernel."
    little = predicted([], 16, autocast_refused=refused, survey=a_survey(usable_bytes=22 * 10**8))
    assert option_of(little, ONE).fits is False
    assert option_of(little, ONE_BF16).fits is not False  # by its memory alone
    assert little.nothing_fits
    assert refused not in little.verdict
    assert "are missing" in little.verdict
    (reason,) = reasons_of(little, "does-not-fit")
    assert "bf16" not in reason.text
    assert not any(remedy["change"] == "bf16" for remedy in reason.evidence["remedies"])


def test_what_cannot_run_says_so_rather_than_how_much_it_lacks() -> None:
    found = predicted([], 16, autocast_refused="No kernel.", survey=a_survey(usable_bytes=10**9))
    bf16 = option_of(found, ONE_BF16)
    assert (bf16.fits, bf16.memory.peak_bytes, bf16.max_batch_size) == (None, None, None)
    assert bf16.cannot_run
    assert "No kernel." in (bf16.why_not or "")
    for reason in reasons_of(found, "cannot-run"):
        assert "missing" not in reason.text


@pytest.mark.parametrize("largest", [None, 4])
def test_what_ran_out_of_memory_is_not_told_a_batch_that_did_so_too(largest: int | None) -> None:
    ran = [] if largest is None else [a_measurement(ONE, largest, 1.0)]
    why_not = option_of(answer([*ran, not_run(ONE, 10, "out-of-memory")], batch_size=100), ONE).why_not
    assert why_not is not None
    assert "A smaller batch may fit." in why_not


def test_the_largest_batch_that_ran_is_told_where_the_next_did_not() -> None:
    rows = [a_measurement(ONE, 9, 1.0), not_run(ONE, 10, "out-of-memory")]
    assert "A batch of 9 would fit." in (option_of(answer(rows, batch_size=100), ONE).why_not or "")


def test_no_batch_is_smaller_than_one() -> None:
    option = option_of(answer([not_run(ONE, 1, "out-of-memory")], batch_size=1), ONE)
    assert option.max_batch_size == 0
    assert "smaller batch" not in (option.why_not or "")
    assert "Not even one sample fits" in (option.why_not or "")
    assert "smaller batch" not in (option_of(answer([not_run(ONE, 1, "out-of-memory")]), ONE).why_not or "")


def test_no_remedy_is_enough_for_what_ran_out_of_memory_against_the_estimate() -> None:
    found = recommend(
        a_survey(), a_profile(), None, [not_run(ONE, 16, "out-of-memory")], Request(a_workload(), precision="fp32")
    )
    (reason,) = reasons_of(found, "does-not-fit")
    assert reason.evidence["remedies"]
    assert all(remedy["fits"] is None for remedy in reason.evidence["remedies"])


PEAKS = {"activation_peaks": (Affine(0.0, 100e6),), "autocast_peaks": (Affine(0.0, 60e6),)}


def bf16_remedies(rows: list[Measurement]) -> list[dict[str, Any]]:
    """In 2 GB, of which fp32 takes 2.4 by the estimate and bf16 1.8."""
    found = predicted(rows, survey=a_survey(usable_bytes=2 * GB), **PEAKS)
    (reason,) = reasons_of(found, "does-not-fit")
    return [remedy for remedy in reason.evidence["remedies"] if remedy["change"] == "bf16"]


def test_a_precision_that_ran_out_of_memory_is_no_remedy() -> None:
    assert [remedy["fits"] for remedy in bf16_remedies([])] == [True]
    ran_out = [not_run(plan, 16, "out-of-memory") for plan in (ONE_BF16, TWO_BF16)]
    assert not bf16_remedies(ran_out)
    assert not bf16_remedies([replace(row, available_bytes=2 * GB) for row in ran_out])


def test_a_precision_that_fits_is_enough_whatever_the_other_took() -> None:
    took = MemoryPeak(process_bytes=3 * GB)
    (remedy,) = bf16_remedies([a_measurement(plan, 16, 1.0, memory=took) for plan in (ONE, TWO)])
    assert remedy["fits"] is True
    assert remedy["saves_bytes"] > GB


def on_a_card(free: int, profile: Profile | None = PROFILE, data: str = "pageable") -> Option:
    """24 GB, of which the step took 2 of torch's allocator, which kept one more, and the context half a GB."""
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=free)])
    row = a_measurement(GPU, 16, 0.01, memory=MemoryPeak(allocated_bytes=2 * GB, reserved_bytes=3 * GB))
    return option_of(recommend(survey, profile, None, [row], Request(a_workload(data=data))), GPU)


def test_what_ran_on_a_card_takes_its_context_as_well() -> None:
    memory = on_a_card(23 * GB).memory
    assert memory.peak_bytes == 2 * GB + 500_000_000
    assert memory.reserved_peak_bytes == 3 * GB
    assert memory.allocated_peak_bytes == 2 * GB
    parts = (memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes, memory.activations_bytes)
    assert sum(part or 0 for part in (*parts, memory.overhead_bytes)) == memory.peak_bytes


def test_what_ran_on_a_card_is_not_the_whole_where_its_context_is_not_known() -> None:
    option = on_a_card(21 * 10**8, None)
    assert option.memory.overhead_bytes is None
    assert option.memory.peak_bytes is None
    assert (option.memory.reserved_peak_bytes, option.memory.allocated_peak_bytes) == (3 * GB, 2 * GB)
    assert on_a_card(19 * 10**8, None).fits is False  # without any context


def test_a_peak_is_told_of_what_was_fed_as_asked() -> None:
    """From pinned memory the next batch lies there, too."""
    measured, estimated = on_a_card(23 * GB).memory, on_a_card(23 * GB, data="pinned").memory
    assert measured.reserved_peak_bytes == 3 * GB
    assert estimated.reserved_peak_bytes != 2 * GB


def fits_a_card(plan: Plan, ran: str | None, short: str | None, asked: str) -> bool | None:
    """What is told where nothing is estimated. ran, short: how it was fed when it ran, and when memory ran out."""
    rows = [] if ran is None else [a_measurement(plan, 16, 0.01, data=ran)]
    rows += [] if short is None else [replace(not_run(plan, 16, "out-of-memory"), data=short)]  # type: ignore[arg-type]
    workload = Workload(ModelDescription("python", "own:model", {}), 16, data=asked)  # type: ignore[arg-type]
    return option_of(recommend(a_survey(gpus=[a_gpu()]), None, None, rows, Request(workload)), plan).fits


def test_what_ran_fed_otherwise_need_not_fit_where_the_next_batch_lies_there_too() -> None:
    assert fits_a_card(GPU, "pageable", None, "resident") is True
    assert fits_a_card(GPU, "pinned", None, "pageable") is True
    assert fits_a_card(GPU, "pinned", None, "pinned") is True
    assert fits_a_card(GPU, "pageable", None, "pinned") is None
    assert fits_a_card(ONE, "pageable", None, "pinned") is True  # a CPU's batches are there


def test_what_ran_out_of_memory_from_pinned_memory_may_fit_fed_otherwise() -> None:
    assert fits_a_card(GPU, None, "pinned", "pinned") is False
    assert fits_a_card(GPU, None, "pinned", "pageable") is None
    assert fits_a_card(GPU, "pageable", "pinned", "pageable") is True
    assert fits_a_card(GPU, None, "pageable", "pinned") is False
    assert fits_a_card(ONE, None, "pinned", "pageable") is False


NOT_PINNED = "The host had no 770 MB of pinned memory, which 4 batches take that are fed from there."


def of_the_card(rows: list[Measurement], batch_size: int, data: str = "pinned") -> Option:
    workload = a_workload(batch_size, data=data)
    survey = a_survey(gpus=[a_gpu()])
    return option_of(recommend(survey, PROFILE, None, rows, Request(workload, precision="fp32")), GPU)


def test_a_host_that_is_short_of_pinned_memory_says_nothing_of_the_card_s() -> None:
    short = [replace(not_run(GPU, 128, "failed", NOT_PINNED), data="pinned")]
    there = of_the_card(short, 128)
    assert (there.cannot_run, there.why_not) == (True, NOT_PINNED)
    assert of_the_card(short, 64) == of_the_card([], 64)


def test_what_fails_for_want_of_pinned_memory_runs_fed_otherwise() -> None:
    ran = [a_measurement(GPU, 128, 0.01)]
    short = [replace(not_run(GPU, 128, "failed", NOT_PINNED), data="pinned")]
    for data in ("pageable", "resident"):
        assert of_the_card(short, 128, data) == of_the_card([], 128, data)
        assert of_the_card([*ran, *short], 128, data) == of_the_card(ran, 128, data)
    assert of_the_card([*ran, *short], 128).why_not == NOT_PINNED
    assert not of_the_card([*short, a_measurement(GPU, 128, 0.01, data="pinned")], 128).cannot_run


def test_a_failure_that_another_way_to_feed_it_disproved_is_none_from_pinned_memory_either() -> None:
    rows = [not_run(GPU, 128, "failed", "A fault."), a_measurement(GPU, 128, 0.01, data="resident")]
    assert not of_the_card(rows, 128).cannot_run


def test_what_ran_on_a_card_does_not_fit_beside_its_context_into_less() -> None:
    option = on_a_card(22 * 10**8)
    assert option.fits is False
    assert "it took 2.5 GB" in (option.why_not or "")


@pytest.mark.parametrize(("before", "now", "fits"), [(14, 2, False), (2, 2, True), (14, 13, True), (None, 2, True)])
def test_what_ran_and_nobody_knows_what_it_took_fits_while_as_much_is_free(
    before: int | None, now: int, fits: bool
) -> None:
    """By the estimate it takes 2.3 GB."""
    available = None if before is None else before * GB
    row = a_measurement(GPU, 16, 0.01, memory=MemoryPeak(), available_bytes=available)
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=now * GB)])
    option = option_of(recommend(survey, PROFILE, None, [row], Request(a_workload())), GPU)
    assert option.fits is fits
    assert ("are missing" in (option.why_not or "")) is not fits


def test_a_plan_that_failed_at_one_batch_keeps_its_curve_and_its_crossovers() -> None:
    """Its curve has a hole there."""
    rows = [a_measurement(ONE, size, size / 64) for size in (64, 128)]
    rows += [not_run(ONE, 512, "failed", ENDED), not_run(ONE_BF16, 512, "unsupported", "No kernel.")]
    found = predicted(rows, 512, survey=a_survey(usable_bytes=200 * GB))
    assert option_of(found, ONE).cannot_run
    assert any(row.start == ONE and row.to == TWO for row in found.crossovers)
    assert not any(ONE_BF16 in (row.start, row.to) for row in found.crossovers)
    seconds = next(curve.step_seconds for curve in found.curves if curve.plan == ONE)
    known = dict(zip(found.curve_batch_sizes, seconds, strict=True))
    assert known[512] is None
    assert known[64] is not None
    assert any(known[size] is not None for size in known if size > 512)


def test_what_ran_under_autocast_runs_whatever_its_trace_says_and_however_little_is_free() -> None:
    row = a_measurement(ONE_BF16, 16, 1.0, memory=MemoryPeak(process_bytes=4 * GB))
    for free, fits in ((5, True), (3, False)):
        found = predicted([row], 16, autocast_refused="No kernel.", survey=a_survey(usable_bytes=free * GB))
        option = option_of(found, ONE_BF16)
        assert (option.cannot_run, option.fits) == (False, fits)
    assert "it took 4.0 GB, and 3.0 GB are free" in (option.why_not or "")
