"""What an answer says of plans that were refused, not reached, or hurt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Request, recommend
from app.advisor.recommendation import Reason
from app.advisor.summary import trace_of_summary
from probes.measurement import Overheads
from probes.microtrain.measuring.contest import Contest
from probes.microtrain.measuring.entry import Entry
from probes.trace import Affine
from probes.workload.description import ModelDescription, Plan, Workload
from tests.app.advisor.answered import answer, measured
from tests.app.advisor.build import (
    ONE,
    TWO,
    TWO_BF16,
    a_gpu,
    a_measurement,
    a_survey,
    a_workload,
)
from tests.app.advisor.machine import GPU, a_profile


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


def test_what_was_not_reached_is_told_apart_from_what_nobody_calibrated() -> None:
    """More time would run bf16. It would never run the second of two cards that are alike: that is told where neither
    of the two has a time."""
    late = "The time was over before its first step: a smaller batch or more time would do."
    rows = [*measured(one=1.0, two=0.6, one_bf16=2.0), a_measurement(GPU, 16, 0.1)]
    rows.append(a_measurement(TWO_BF16, 16, 1.0, outcome="failed", step=None, reason=late))
    cards = [a_gpu(compute_capability="7.5"), a_gpu(id="GPU-2", torch_device="cuda:1", compute_capability="7.5")]
    found = recommend(a_survey(gpus=cards), None, None, rows, Request(a_workload(), effort="quick"))
    told = {reason.code: reason for reason in found.reasons}
    assert told["not-reached"].evidence["plans"] == [TWO_BF16.label]
    assert told["not-reached"].text.endswith(late)
    assert told["no-calibration"].evidence["plans"] == [Plan("cuda:0", "fp16").label]
    assert "cuda:1" not in told["no-calibration"].text


@pytest.mark.parametrize(("usable", "told"), [(99 * 10**6, True), (100 * 10**6, False), (None, False)])
def test_weights_that_the_host_s_memory_does_not_hold_have_to_be_built_on_the_device(
    usable: int | None, told: bool
) -> None:
    survey = a_survey(gpus=[a_gpu()], usable_bytes=usable)
    found = recommend(survey, a_profile((ONE, GPU)), None, [], Request(a_workload(), devices=("cuda",)))
    assert found.recommended == GPU
    reasons = [reason for reason in found.reasons if reason.code == "larger-than-host"]
    assert bool(reasons) is told
    if told:
        assert "100 MB" in reasons[0].text
        assert 'with torch.device("cuda:0")' in reasons[0].text
        assert "with device:" in (found.snippet or "")
        assert "your own code" not in reasons[0].text


def test_one_s_own_python_has_to_build_its_weights_on_the_device_itself() -> None:
    trace = trace_of_summary(a_workload())
    request = Request(Workload(ModelDescription("python", "own:model", {}), 16), devices=("cuda",))
    survey = a_survey(gpus=[a_gpu()], usable_bytes=99 * 10**6)
    found = recommend(survey, a_profile((ONE, GPU)), trace, [], request)
    (reason,) = [reason for reason in found.reasons if reason.code == "larger-than-host"]
    assert "in your own code: the snippet runs that as it is" in reason.text
    assert "with device:" not in (found.snippet or "")


def test_an_estimate_says_that_it_takes_experts_to_be_chosen_equally_often() -> None:
    plain = trace_of_summary(a_workload())
    assert plain is not None
    for trace, rows, told in (
        (replace(plain, evenly_routed=True), [], True),
        (plain, [], False),
        (replace(plain, evenly_routed=True), [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 2.0)], False),
    ):
        request = Request(a_workload(), precision="fp32")
        found = recommend(a_survey(), a_profile(), trace, rows, request)
        assert ("experts-evenly-chosen" in {reason.code for reason in found.reasons}) is told


def test_what_a_prediction_takes_for_granted_is_not_told_of_a_time_that_real_steps_told() -> None:
    """Steps on either side took what is not counted, and told it; along a prediction it is left out."""
    plain = trace_of_summary(a_workload())
    assert plain is not None
    *others, last = plain.operations
    unknown = replace(last, name="mine.product", flops=Affine(0.0, 0.0))
    trace = replace(plain, operations=(*others, unknown), evenly_routed=True)
    codes = {"unknown-work", "experts-evenly-chosen"}
    for batches, is_told in (((8, 32), False), ((8,), True)):
        rows = [a_measurement(plan, batch, batch / 16) for plan in (ONE, TWO) for batch in batches]
        found = recommend(a_survey(), a_profile(), trace, rows, Request(a_workload(), precision="fp32"))
        assert {option.basis for option in found.options} == {"probed"}
        assert codes & {reason.code for reason in found.reasons} == (codes if is_told else set())


def test_an_estimate_says_how_many_of_its_layers_training_runs() -> None:
    """Real steps left them out."""
    plain = trace_of_summary(a_workload())
    assert plain is not None
    for trace, rows, told in (
        (replace(plain, layers_dropped=0.1), [], [0.9]),
        (plain, [], []),
        (replace(plain, layers_dropped=0.1), [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 2.0)], []),
    ):
        found = recommend(a_survey(), a_profile(), trace, rows, Request(a_workload(), precision="fp32"))
        reasons = [reason for reason in found.reasons if reason.code == "layers-dropped"]
        assert [reason.evidence["layers_run"] for reason in reasons] == told
        assert all("on average 0.9 of those" in reason.text for reason in reasons)


@pytest.mark.parametrize(
    ("kind", "mode", "trained", "told"),
    [
        ("huggingface", "training", 0.75, True),
        ("huggingface", "training", 0.995, False),  # such as an embedding of what is masked
        ("huggingface", "inference", 0.0, False),
        ("python", "training", 0.75, False),
    ],
)
def test_a_step_that_does_not_train_the_whole_of_a_config_s_model_says_so(
    kind: Any, mode: Any, trained: float, told: bool
) -> None:
    """As of a model that sees, and is fed text alone."""
    plain = trace_of_summary(a_workload())
    assert plain is not None
    weights = 4 * plain.parameters
    trace = replace(plain, mode=mode, gradient_bytes=int(trained * weights), optimizer_bytes=int(2 * trained * weights))
    content = {"config": {"model_type": "gemma3"}, "task": "causal-lm"} if kind == "huggingface" else {}
    workload = Workload(ModelDescription(kind, "own:model", content), 16, mode=mode)
    found = recommend(a_survey(), a_profile(), trace, [], Request(workload, precision="fp32"))
    reasons = [reason for reason in found.reasons if reason.code == "untrained-parts"]
    assert bool(reasons) is told
    for reason in reasons:
        assert reason.evidence == {
            "parameters": plain.parameters // 4, "gradient_bytes": weights // 4, "optimizer_bytes": weights // 2,
        }  # fmt: skip
        assert reason.text.startswith("25 % of this model's parameters get no gradient")


def test_an_estimate_names_operations_of_which_nobody_knows_what_they_compute() -> None:
    plain = trace_of_summary(a_workload())
    assert plain is not None
    *others, last = plain.operations
    unknown = replace(last, name="quantized.linear_dynamic", flops=Affine(0.0, 0.0))
    counted = replace(unknown, name="mine.product", flops=Affine(0.0, 1e6))
    measured_rows = [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 2.0)]
    for operation, rows, told in (
        (unknown, [], ["quantized.linear_dynamic"]),
        (counted, [], None),
        (last, [], None),
        (unknown, measured_rows, None),
    ):
        trace = replace(plain, operations=(*others, operation, operation))
        found = recommend(a_survey(), a_profile(), trace, rows, Request(a_workload(), precision="fp32"))
        numbers = [reason.evidence["operations"] for reason in found.reasons if reason.code == "unknown-work"]
        assert numbers == ([] if told is None else [told])


def test_threads_that_hurt_are_said_to_hurt_with_both_times() -> None:
    found = answer(measured(one=0.010, two=0.2, one_bf16=0.05, two_bf16=0.3))
    assert found.recommended == ONE
    (reason,) = [reason for reason in found.reasons if reason.code == "threads-hurt"]
    assert "200 ms with 2 threads" in reason.text
    assert "10 ms with one" in reason.text


def test_reading_the_loss_every_step_is_told_with_its_cost() -> None:
    gpu = Plan("cuda:0", "fp32")
    overheads = Overheads(0.0, 0.004, 0.003, 0.003, 0.3)
    rows = [a_measurement(gpu, 16, 0.010, overheads=overheads)]
    request = Request(a_workload(log_every=1), precision="fp32", devices=("cuda:0",))
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, rows, request)
    (reason,) = [reason for reason in found.reasons if reason.code == "reading-the-loss"]
    assert "3.0 ms a step, 30 %" in reason.text
    assert found.options[0].breakdown_seconds.synchronize == pytest.approx(0.003)


def test_in_inference_there_is_no_loss_whose_reading_could_be_told() -> None:
    rows = [a_measurement(ONE, 16, 0.010, overheads=Overheads(0.0, 0.004, 0.003, 0.003))]
    assert "reading-the-loss" in {reason.code for reason in answer(rows, log_every=1).reasons}
    assert "reading-the-loss" not in {reason.code for reason in answer(rows, log_every=1, mode="inference").reasons}


def test_threads_are_told_against_the_fewest_that_ran() -> None:
    four = Plan("cpu", "fp32", 4)
    rows = [a_measurement(four, 16, 0.3), a_measurement(TWO, 16, 0.5)]
    found = answer(rows, survey=a_survey(usable_cores=4.0, physical_cores=4))
    (reason,) = [reason for reason in found.reasons if reason.code == "threads-help"]
    assert "with 4 threads, 0.50 s with 2" in reason.text or "with 4 threads, 500 ms with 2" in reason.text
    assert "with one" not in reason.text


def test_another_machine_is_not_to_be_measured_from_here() -> None:
    lacking = a_profile((ONE,), fingerprint="elsewhere")
    lacking = replace(lacking, points=lacking.points[:1], networks=())
    found = recommend(a_survey(), lacking, None, [], Request(a_workload(), profile="made-up"))
    (reason,) = [reason for reason in found.reasons if reason.code == "no-calibration"]
    notes = [option.note for option in found.options]
    assert all("effort quick" not in (text or "") for text in (reason.text, *notes))
    assert "that machine" in reason.text


def limit(host: float, device: float) -> Reason:
    """Of a step on a device that ran, in which launching took so long and the device computed for so long."""
    step = max(host, device)
    overheads = Overheads(
        transfer_seconds=0.0, launch_seconds=host, compute_seconds=step - host, device_busy=device / step
    )
    row = a_measurement(GPU, 16, step, data="resident", overheads=overheads)
    request = Request(a_workload(16, data="resident"), devices=("cuda",), precision="fp32")
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, [row], request)
    return next(reason for reason in found.reasons if reason.code.endswith("-bound"))


@pytest.mark.parametrize(
    ("host", "device", "code"),
    [(1.0, 0.1, "launch-bound"), (1.0, 0.6, "launch-bound"), (1.0, 0.98, "compute-bound"), (0.6, 1.0, "compute-bound")],
)
def test_launching_limits_a_device_where_it_takes_longer_than_computing(host: float, device: float, code: str) -> None:
    """However much of it the device computes meanwhile."""
    reason = limit(host, device)
    assert reason.code == code
    assert reason.evidence["share"] == pytest.approx(1.0, abs=0.03)


def test_a_plan_that_does_not_fit_is_not_told_to_fit_in_its_own_precision() -> None:
    rows = [
        a_measurement(ONE, 16, 1.0),
        a_measurement(TWO, 16, 1.0, outcome="out-of-memory", step=None),
    ]
    found = recommend(a_survey(), None, None, rows, Request(a_workload(), precision="fp32"))
    (reason,) = [reason for reason in found.reasons if reason.code == "does-not-fit"]
    assert "In fp32 it fits" not in reason.text
    assert f"{ONE.label} fits." in reason.text


def test_a_lower_precision_that_is_slower_as_torch_has_it_is_not_said_to_pay() -> None:
    """Compiled it is the best of all; fp32 was never compiled."""
    compiled = replace(TWO_BF16, compiled=True)
    control = a_measurement(TWO_BF16, 16, 2.0).step
    rows = [
        *measured(one=3.0, two=1.8, one_bf16=4.0, two_bf16=2.0),
        a_measurement(compiled, 16, 1.2, control=control, startup_seconds=10.0),
    ]
    found = answer(rows)
    assert found.recommended == compiled
    assert "precision-gain" not in {reason.code for reason in found.reasons}


@pytest.mark.parametrize(("capability", "halved"), [("7.5", "fp16"), ("8.6", "bf16")])
def test_what_would_save_memory_is_a_precision_that_the_device_has(capability: str, halved: str) -> None:
    """Also where it was not asked for."""
    card = a_gpu(compute_capability=capability, memory_free_bytes=10**9)
    workload = a_workload(64)
    peaks = {"activation_peaks": (Affine(0.0, 100e6),), "autocast_peaks": (Affine(0.0, 60e6),)}
    trace = replace(trace_of_summary(workload), **peaks)
    request = Request(workload, precision="fp32", devices=("cuda",))
    found = recommend(a_survey(gpus=[card]), None, trace, [], request)
    (reason,) = [reason for reason in found.reasons if reason.code == "does-not-fit"]
    changes = {remedy["change"] for remedy in reason.evidence["remedies"]}
    assert changes & {"bf16", "fp16"} == {halved}
