"""A device is named where the run is long enough to repay its start, as far as both are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.curves.winners import winners
from probes.measurement import Measurement
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

GPU_BF16, TF32 = Plan("cuda:0", "bf16"), Plan("cuda:0", "tf32")
CARD, TWIN = a_gpu(), a_gpu(id="GPU-2", torch_device="cuda:1")
ON_CPU = [
    a_measurement(plan, 16, seconds, startup_seconds=0.25)
    for plan, seconds in ((ONE, 3e-3), (TWO, 4e-3), (ONE_BF16, 5e-3), (TWO_BF16, 6e-3))
]
ON_CARD = a_measurement(GPU, 16, 2e-3, startup_seconds=2.25)
REPAID_AFTER = 2000  # steps, each of which saves a millisecond of two seconds


def answer(*rows: Measurement, steps: int | None = 300, precision: str = "fp32") -> Recommendation:
    workload = a_workload(dataset_samples=None if steps is None else steps * 16)
    found = [*ON_CPU, *(rows or (ON_CARD,))]
    return recommend(a_survey(gpus=[CARD]), None, None, found, Request(workload, precision=precision))


@pytest.mark.parametrize(
    ("steps", "named"), [(300, ONE), (REPAID_AFTER, ONE), (REPAID_AFTER + 1, GPU), (10**6, GPU), (None, GPU)]
)
def test_a_run_too_short_to_repay_a_card_s_start_is_not_sent_there(steps: int | None, named: Plan) -> None:
    found = answer(steps=steps)
    assert found.recommended == named
    reasons = [reason for reason in found.reasons if reason.code == "device-too-late"]
    assert ("too short to repay" in found.verdict) is bool(reasons) is (named == ONE)
    for reason in reasons:
        assert reason.evidence["break_even_steps"] == pytest.approx(REPAID_AFTER, abs=1)
        assert (reason.evidence["startup_seconds"], reason.evidence["steps"]) == (2.0, steps)
        assert reason.evidence["against"] == ONE.label


def test_the_card_stays_an_option_in_the_order_of_steps() -> None:
    """Its figures are what one with more data asks for; how likely the named plan is the best is told without it."""
    larger = [replace(row, batch_size=64, startup_seconds=None) for row in (*ON_CPU, ON_CARD)]
    found = answer(ON_CARD, *larger)
    assert [option.plan for option in found.options] == [ONE, GPU, TWO]
    assert found.confidence is not None
    assert found.confidence > 0.9
    (repaid_after,) = {crossover.break_even_steps for crossover in found.crossovers if crossover.to == GPU}
    assert repaid_after == pytest.approx(REPAID_AFTER, abs=1)


def test_of_a_card_s_plans_the_quickest_is_told_also_where_another_is_slower_than_the_cpu() -> None:
    """No run repays that one's start: the run is not too short for it."""
    slow = a_measurement(GPU_BF16, 16, 3.6e-3, startup_seconds=2.25)
    found = answer(ON_CARD, slow, precision="auto")
    timed = [option.plan for option in found.options if option.step_seconds is not None]
    assert timed == [ONE, GPU, GPU_BF16, TWO, ONE_BF16, TWO_BF16]
    assert found.verdict.endswith("preferred to cuda:0 in fp32, whose start this run is too short to repay.")
    told = {reason.code: reason.evidence for reason in found.reasons}
    assert told["device"]["other"] == told["device-too-late"]["plan"] == GPU.label
    without = answer(slow, precision="auto")
    assert "1.2 times as fast as cuda:0 in bf16" in without.verdict
    assert "device-too-late" not in {reason.code for reason in without.reasons}


@pytest.mark.parametrize(("steps", "close"), [(300, False), (10**6, True), (None, True)])
def test_a_card_as_quick_as_the_cpu_is_close_where_its_start_is_little_of_the_run(
    steps: int | None, close: bool
) -> None:
    found = answer(a_measurement(GPU, 16, 3.03e-3, startup_seconds=2.25), steps=steps)
    assert found.recommended == ONE
    assert ("too close to call" in found.verdict) is close


def test_nothing_is_said_of_a_start_where_a_device_is_named_all_the_same() -> None:
    """Both its plans have that start to pay; and the other stands before what takes longer."""
    quick = a_measurement(GPU_BF16, 16, 0.5e-3, startup_seconds=2.25)  # repaid after 800 steps
    slow = a_measurement(GPU, 16, 2.5e-3, startup_seconds=2.25)  # after 4,000
    found = answer(quick, slow, steps=1000, precision="auto")
    assert [option.plan for option in found.options][:3] == [GPU_BF16, GPU, ONE]
    assert "device-too-late" not in {reason.code for reason in found.reasons}


@pytest.mark.parametrize(("start", "named"), [(2.25, "fp32"), (4.25, "tf32"), (9.25, "tf32")])
@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda",)])
def test_of_a_card_s_plans_one_whose_start_the_run_does_not_repay_is_not_named(
    start: float, named: str, devices: tuple[str, ...]
) -> None:
    """fp32 takes half a millisecond less a step than tf32; whatever takes longer is told."""
    quick = a_measurement(GPU, 16, 0.5e-3, startup_seconds=start)
    slow = a_measurement(TF32, 16, 1e-3, startup_seconds=2.25)
    workload = a_workload(dataset_samples=2000 * 16)
    found = recommend(a_survey(gpus=[CARD]), None, None, [*ON_CPU, quick, slow], Request(workload, devices=devices))
    assert found.recommended == Plan("cuda:0", named)  # type: ignore[arg-type]
    late = [reason for reason in found.reasons if reason.code == "device-too-late"]
    assert ("too short to repay" in found.verdict) is bool(late) is (named == "tf32")
    for reason in late:
        assert (reason.evidence["plan"], reason.evidence["against"]) == (GPU.label, TF32.label)
        assert reason.evidence["startup_seconds"] == start - 2.25
        assert reason.evidence["break_even_steps"] == pytest.approx((start - 2.25) / 0.5e-3, abs=1)


def test_a_start_that_differs_by_less_than_steps_do_decides_nothing_between_a_card_s_plans() -> None:
    quick = a_measurement(GPU, 16, 0.98e-3, startup_seconds=2.30)
    slow = a_measurement(TF32, 16, 1e-3, startup_seconds=2.25)
    found = answer(quick, slow, steps=2400, precision="auto")  # by the medians 2,500 repay it
    assert found.recommended == GPU
    assert "device-too-late" not in {reason.code for reason in found.reasons}


def test_a_card_s_plan_is_not_judged_by_the_start_of_its_twin_nor_by_one_that_nobody_measured() -> None:
    """One plan on another card that is alike is no other choice; and of another plan a start is the least there."""
    quick = a_measurement(GPU, 16, 0.5e-3, startup_seconds=4.25)
    twin = a_measurement(Plan("cuda:1", "fp32"), 16, 0.6e-3, startup_seconds=2.25)
    other = a_measurement(TF32, 16, 1e-3)
    workload = a_workload(dataset_samples=2000 * 16)
    rows = [*ON_CPU, quick, twin, other]
    found = recommend(a_survey(gpus=[CARD, TWIN]), None, None, rows, Request(workload))
    assert found.recommended == GPU
    assert "device-too-late" not in {reason.code for reason in found.reasons}


def test_the_run_time_told_is_that_of_the_quicker_run() -> None:
    (reason,) = [reason for reason in answer().reasons if reason.code == "run-time"]
    assert reason.evidence["seconds"] == pytest.approx(300 * 3e-3 + 0.25)


def test_the_run_time_of_a_plan_that_never_ran_counts_the_start_by_which_it_is_judged() -> None:
    """Of a quicker precision of the card, whose context began with another's: it was told to take two seconds less."""
    quick = a_measurement(GPU_BF16, 16, 0.5e-3)
    found = answer(ON_CARD, quick, steps=1000, precision="auto")
    assert found.recommended == GPU_BF16
    (reason,) = [reason for reason in found.reasons if reason.code == "run-time"]
    assert reason.evidence["seconds"] == pytest.approx(1000 * 0.5e-3 + 2.25)
    assert reason.evidence["startup_seconds"] == 2.25
    assert "its start of 2.2 s included" in reason.text or "its start of 2.3 s included" in reason.text


def test_a_start_is_the_card_s_where_the_plan_that_told_it_does_not_fit() -> None:
    """The run-time told included it, while the plan was ranked without."""
    too_big = a_measurement(GPU, 64, 1.0, outcome="out-of-memory", step=None)
    rows = [*(replace(row, batch_size=64) for row in ON_CPU), ON_CARD, too_big]
    rows.append(a_measurement(GPU_BF16, 64, 2e-3))
    found = recommend(a_survey(gpus=[CARD]), None, None, rows, Request(a_workload(64, dataset_samples=300 * 64)))
    assert GPU not in [option.plan for option in found.options if option.step_seconds is not None]
    assert found.recommended == ONE


def test_a_start_that_nobody_measured_is_not_made_up() -> None:
    assert answer(replace(ON_CARD, startup_seconds=None)).recommended == GPU


@pytest.mark.parametrize("other", [Plan("cuda:0", "tf32"), Plan("cuda:1", "fp32")])
def test_no_other_plan_of_the_card_nor_its_twin_starts_sooner(other: Plan) -> None:
    """It begins the same context, though what that took stands in another plan's measurement."""
    rows = [*ON_CPU, ON_CARD, a_measurement(other, 16, 1.8e-3)]
    request = Request(a_workload(dataset_samples=300 * 16))
    found = recommend(a_survey(gpus=[CARD, TWIN]), None, None, rows, request)
    assert found.recommended == ONE
    assert other in [option.plan for option in found.options]


def test_where_no_cpu_was_asked_for_there_is_nothing_to_repay_it_against() -> None:
    request = Request(a_workload(dataset_samples=300 * 16), precision="fp32", devices=("cuda",))
    found = recommend(a_survey(gpus=[CARD]), None, None, [*ON_CPU, ON_CARD], request)
    assert found.recommended == GPU
    assert "device-too-late" not in {reason.code for reason in found.reasons}


def test_at_each_batch_of_a_map_the_run_has_its_own_number_of_steps() -> None:
    rows = [replace(row, batch_size=size) for row in (*ON_CPU, ON_CARD) for size in (16, 1024)]
    request = Request(a_workload(dataset_samples=3000 * 16), precision="fp32")
    cells = winners(a_survey(gpus=[CARD]), None, None, rows, request, (16, 1024))
    assert [cell.plan for cell in cells] == [GPU, ONE]


def test_the_run_time_of_a_card_whose_start_nobody_measured_says_so() -> None:
    found = answer(a_measurement(GPU, 16, 0.5e-3), steps=1000)
    assert found.recommended == GPU
    (reason,) = [reason for reason in found.reasons if reason.code == "run-time"]
    assert "without the device's start, which is not known" in reason.text
    assert "startup_seconds" not in reason.evidence


def repaid_after(found: Recommendation) -> int | None:
    """Steps, fed as asked."""
    told = {(row.start.key, row.data): row.break_even_steps for row in found.crossovers if row.to == GPU}
    return told[ONE.key, "pageable"]


def test_a_start_that_a_calibration_clocked_counts_where_no_model_ran() -> None:
    """A run of ten steps is not sent to a card whose context takes seconds, though nothing ran there yet."""
    profile = replace(a_profile((ONE, GPU)), start_seconds={"cuda:0": 2.0})
    gain = 2.0 / 1000
    rows = [a_measurement(ONE, 16, 3e-3 + gain), a_measurement(GPU, 16, 3e-3)]

    def told(steps: int, *rows: Measurement) -> Recommendation:
        request = Request(a_workload(dataset_samples=steps * 16), precision="fp32")
        return recommend(a_survey(gpus=[CARD]), profile, None, rows, request)

    short, long = told(10, *rows), told(2000, *rows)
    assert (short.recommended, long.recommended) == (ONE, GPU)
    assert "device-too-late" in {reason.code for reason in short.reasons}
    assert repaid_after(long) == pytest.approx(1000, abs=1)
    (reason,) = [reason for reason in long.reasons if reason.code == "run-time"]
    assert reason.evidence["startup_seconds"] == 2.0
    measured = told(2000, rows[0], replace(rows[1], startup_seconds=0.5))
    assert repaid_after(measured) == pytest.approx(250, abs=1)


COMPILED, LAST = replace(GPU, compiled=True), replace(GPU, channels_last=True)
SLOW_CPU = [replace(row, step=a_measurement(ONE, 16, 1.0).step) for row in ON_CPU]
ON_CARD_COMPILED = a_measurement(COMPILED, 16, 1e-3, startup_seconds=12.25, control=ON_CARD.step)
ON_CARD_LAST = a_measurement(LAST, 16, 1.5e-3, startup_seconds=2.75, control=ON_CARD.step)


def of_variants(*rows: Measurement, steps: int) -> Recommendation:
    request = Request(a_workload(dataset_samples=steps * 16), precision="fp32")
    return recommend(a_survey(gpus=[CARD]), None, None, [*SLOW_CPU, ON_CARD, *rows], request)


@pytest.mark.parametrize(("steps", "named"), [(300, GPU), (3000, GPU), (10_000, GPU), (10_002, COMPILED)])
def test_what_a_compiled_plan_s_device_takes_to_begin_the_plain_one_pays_too(steps: int, named: Plan) -> None:
    """Ten seconds for a millisecond a step; against the CPU any run of these repays a card's start."""
    found = of_variants(ON_CARD_COMPILED, steps=steps)
    assert found.recommended == named
    assert (COMPILED in [option.plan for option in found.options]) is (named == COMPILED)
    assert found.confidence is not None
    told = {reason.code: reason for reason in found.reasons}
    assert "device-too-late" not in told
    assert ("compile-pays" in told) is (named == COMPILED)
    reason = told.get("compile-pays") or told["compile-too-late"]
    assert reason.evidence["break_even_steps"] == pytest.approx(10_000, abs=1)


def test_a_variant_that_is_not_compiled_starts_as_its_plain_plan_does() -> None:
    """Whatever its trial's process took: no run is too short for it, and what is compiled has as much more to repay."""
    found = of_variants(ON_CARD_LAST, steps=300)
    assert found.recommended == LAST
    assert "device-too-late" not in [reason.code for reason in found.reasons]
    both = of_variants(ON_CARD_LAST, ON_CARD_COMPILED, steps=300)
    assert both.recommended == LAST
    (late,) = (
        reason for reason in of_variants(ON_CARD_COMPILED, steps=300).reasons if reason.code == "compile-too-late"
    )
    assert late.evidence["break_even_steps"] == pytest.approx(10_000, abs=1)
    (pays,) = (
        reason
        for reason in of_variants(ON_CARD_LAST, ON_CARD_COMPILED, steps=10**6).reasons
        if reason.code == "compile-pays"
    )
    assert pays.evidence["break_even_steps"] == pytest.approx(20_000, abs=1)


def test_a_gain_on_a_card_that_others_use_sends_nobody_there_past_a_free_twin() -> None:
    """The twin has no trial of its own, and its plain plan no such time."""
    busy = a_gpu(utilization_percent=98.0)
    free = a_gpu(id="GPU-2", torch_device="cuda:1", utilization_percent=0.0)
    rows = [*SLOW_CPU, ON_CARD, ON_CARD_COMPILED]
    for cards, named in (([busy, free], "cuda:1"), ([CARD], "cuda:0")):
        found = recommend(a_survey(gpus=cards), None, None, rows, Request(a_workload(), precision="fp32"))
        assert found.recommended is not None
        assert found.recommended.device == named
        assert found.recommended.compiled is (named == "cuda:0")


def test_a_gain_of_steps_that_were_fed_in_another_way_is_another_one() -> None:
    row = replace(ON_CARD_COMPILED, data="resident")
    for data, named in (("pageable", GPU), ("resident", COMPILED)):
        workload = replace(a_workload(), data=data)
        rows = [replace(ON_CARD, data=data), row]
        request = Request(workload, precision="fp32", devices=("cuda:0",))
        assert recommend(a_survey(gpus=[CARD]), None, None, rows, request).recommended == named
