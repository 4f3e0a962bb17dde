"""Answers from a profile, a trace or a summary alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import InvalidRequest, Request, recommend
from app.advisor.summary import trace_of_summary
from probes.machine_facts import DeviceFacts, MachineFacts, facts_of
from probes.workload.description import Plan
from tests.app.advisor.answered import ALL_FOUR, answer, measured
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


REFUSED = replace(trace_of_summary(a_workload()), autocast_refused="torch cannot do this here: no kernel.")


def test_a_plan_whose_step_failed_in_tracing_cannot_run_and_has_no_crossover() -> None:
    found = recommend(a_survey(), a_profile(), REFUSED, [], Request(a_workload()))
    cannot = {option.plan.label: option.why_not for option in found.options if option.cannot_run}
    assert cannot.keys() == {ONE_BF16.label, TWO_BF16.label}
    assert all("when it was traced here. torch cannot do this here" in str(why) for why in cannot.values())
    told = {option.plan.label: (option.memory.peak_bytes, option.max_batch_size) for option in found.options}
    assert {label for label, (peak, largest) in told.items() if peak is None and largest is None} == cannot.keys()
    assert found.recommended == TWO
    assert found.confidence is not None
    assert {plan.precision for crossover in found.crossovers for plan in (crossover.start, crossover.to)} == {"fp32"}
    assert {curve.plan.precision for curve in found.curves} == {"fp32"}
    asked = Request(a_workload(), precision="bf16")
    assert "It cannot run here as asked: " in recommend(a_survey(), a_profile(), REFUSED, [], asked).verdict


def test_a_plan_that_ran_can_whatever_tracing_said() -> None:
    ran = [a_measurement(ONE_BF16, 16, 0.01)]
    found = recommend(a_survey(), a_profile(), REFUSED, ran, Request(a_workload()))
    assert [option.plan for option in found.options if option.cannot_run] == [TWO_BF16]


@pytest.mark.parametrize("captured", [False, True])
def test_another_machine_or_device_may_run_what_this_processor_cannot(captured: bool) -> None:
    """A captured one, too: it was traced where its files are."""
    profile = a_profile() if captured else a_profile(fingerprint="elsewhere")
    request = Request(a_workload(), profile=None if captured else "made-up")
    found = recommend(a_survey(), profile, REFUSED, [], request, captured=captured)
    assert not any(option.cannot_run for option in found.options)
    assert {option.plan.precision for option in found.options} == {"fp32", "bf16"}
    assert {plan.precision for each in found.crossovers for plan in (each.start, each.to)} == {"fp32", "bf16"}


@pytest.mark.parametrize("captured", [False, True])
def test_what_this_processor_refuses_is_a_remedy_for_another_alone(captured: bool) -> None:
    request = Request(a_workload(4096), precision="fp32")
    found = recommend(a_survey(usable_bytes=GB), a_profile(), REFUSED, [], request, captured=captured)
    (reason,) = [reason for reason in found.reasons if reason.code == "does-not-fit"]
    assert any(remedy["change"] == "bf16" for remedy in reason.evidence["remedies"]) is captured


CARD = DeviceFacts("cuda:0", "NVIDIA A10", 24 * GB, "8.6")


@pytest.mark.parametrize(
    ("facts", "told", "not_told"),
    [
        (MachineFacts(memory_bytes=8 * GB, accelerators=(CARD,)), "8.0 GB, 24 GB on cuda:0.", "not known"),
        (MachineFacts(accelerators=(CARD,)), "24 GB on cuda:0. How much memory its host has does not", "it has"),
        (MachineFacts(memory_bytes=8 * GB), "8.0 GB. How much memory cuda:0 has does not", "on its CPU"),
        (
            MachineFacts(memory_bytes=8 * GB, accelerators=(replace(CARD, memory_total_bytes=None),)),
            "8.0 GB. How much memory cuda:0 has does not",
            "on its CPU",
        ),
        (MachineFacts(accelerators=(replace(CARD, unified_memory=True),)), "How much memory it has does not", "judged"),
        (MachineFacts(), "How much memory it has does not stand in the profile", "judged"),
        (None, "How much memory it has does not stand in the profile", "judged"),
    ],
)
def test_whether_it_fits_another_machine_is_told_by_what_is_known_of_each_device(
    facts: MachineFacts | None, told: str, not_told: str
) -> None:
    profile = replace(a_profile((ONE, GPU), fingerprint="elsewhere"), hardware=facts)
    found = recommend(a_survey(), profile, None, [], Request(a_workload(), profile="made-up"))
    (reason,) = [reason for reason in found.reasons if reason.code == "other-machine"]
    assert told in reason.text
    assert not_told not in reason.text
    fits = {option.plan.device: option.fits for option in found.options}
    assert (fits["cpu"] is None) == (facts is None or facts.memory_bytes is None)
    assert (fits["cuda:0"] is None) == ("on cuda:0" not in told)


@pytest.mark.parametrize("pool", [96 * GB, 16 * GB])
def test_another_machine_s_pool_that_its_driver_told_of_is_judged_by_its_own_size(pool: int) -> None:
    card = a_gpu(vendor="AMD", unified_memory=True, memory_total_bytes=pool, memory_free_bytes=GB)
    facts = facts_of(a_survey(gpus=[card], usable_bytes=31 * GB))
    profile = replace(a_profile((ONE, GPU), fingerprint="elsewhere"), hardware=facts)
    found = recommend(a_survey(), profile, None, [], Request(a_workload(250), profile="made-up"))
    (option,) = [option for option in found.options if option.plan == GPU]
    assert (option.memory.available_bytes, option.fits) == (pool, pool > 31 * GB)
    (reason,) = [reason for reason in found.reasons if reason.code == "other-machine"]
    assert f"31 GB, {pool // GB} GB on cuda:0." in reason.text


def test_another_machines_profile_answers_for_its_plans_and_not_for_this_memory() -> None:
    request = Request(a_workload(), profile="made-up")
    found = recommend(a_survey(usable_bytes=1), a_profile((ONE, GPU), fingerprint="elsewhere"), None, [], request)
    assert [option.plan for option in found.options] == [GPU, ONE]
    assert all(option.fits is None for option in found.options)
    assert found.recommended == GPU
    with pytest.raises(InvalidRequest, match=r"calibrated for: cpu \(fp32\)"):
        recommend(
            a_survey(),
            a_profile((ONE,), fingerprint="elsewhere"),
            None,
            [],
            Request(a_workload(), devices=("cuda:0",), profile="made-up"),
        )


@pytest.mark.parametrize(("plan", "counts"), [(ONE, True), (GPU, False)])
def test_steps_of_a_plan_that_the_profile_has_not_are_not_said_to_count(plan: Plan, *, counts: bool) -> None:
    profile = a_profile((ONE,), fingerprint="elsewhere")
    row = a_measurement(plan, 32, 0.1)
    found = recommend(a_survey(), profile, None, [row], Request(a_workload(), profile="made-up"))
    (reason,) = [reason for reason in found.reasons if reason.code == "other-machine"]
    assert ("took there counts" in reason.text) is counts
