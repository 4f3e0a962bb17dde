"""What makes a device slower than the CPU stands among the reasons: who asks why wants to know which part it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.recommendation import Reason
from probes.hardware import Load
from probes.measurement import Overheads
from probes.workload.description import ModelDescription, Workload
from tests.app.advisor.build import ONE, TWO, a_gpu, a_measurement, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

TINY = a_summary(parameters=1000, flops_per_sample=1e5, activation_bytes_per_sample=1e4, operations=40)


def why_slower(found: Recommendation) -> Reason | None:
    return next((reason for reason in found.reasons if reason.code == "device-slower"), None)


def predicted(model: ModelDescription, batch_size: int, profile: str | None = None) -> Recommendation:
    """Of this machine, or of the one of a profile."""
    fingerprint = "f" if profile is None else "elsewhere"
    request = Request(Workload(model, batch_size), "fp32", profile=profile)
    return recommend(a_survey(gpus=[a_gpu()]), a_profile((ONE, TWO, GPU), fingerprint), None, [], request)


def measured(card: Overheads | None) -> Recommendation:
    """A step of 3 ms on the card, of 1 ms on the CPU; the loss is read after each."""
    rows = [a_measurement(ONE, 16, 1e-3), a_measurement(TWO, 16, 1.1e-3), a_measurement(GPU, 16, 3e-3, overheads=card)]
    return recommend(a_survey(gpus=[a_gpu()]), None, None, rows, Request(a_workload(log_every=1), "fp32"))


def parts(transfer: float, launch: float, compute: float, reading: float) -> Overheads:
    """In milliseconds."""
    return Overheads(transfer / 1e3, launch / 1e3, reading / 1e3, compute / 1e3)


@pytest.mark.parametrize("profile", [None, "made-up"])
def test_a_small_network_is_told_that_launching_makes_the_card_slower(profile: str | None) -> None:
    found = predicted(TINY, 1, profile)
    assert found.recommended == ONE
    reason = why_slower(found)
    assert reason is not None
    assert reason.text.startswith("What makes cuda:0 fp32 slower is launching operations, which the device waits for: ")
    assert reason.evidence["limit"] == "launch"
    assert reason.evidence["shares"]["launch"] > 0.5
    assert reason.text.endswith(", more than the whole of a step takes on cpu fp32, 1 thread.")


@pytest.mark.parametrize(
    ("overheads", "limit", "said"),
    [
        (
            parts(2.4, 0.1, 0.5, 0.0),
            "transfer",
            "is copying the batch to the device: 80 % of its step (2.4 ms of 3.0 ms)",
        ),
        (parts(0.1, 2.8, 0.1, 0.0), "launch", "is launching operations, which the device waits for: "),
        (
            replace(parts(0.1, 2.0, 0.2, 0.0), device_busy=0.1),
            "launch",
            "is launching operations, which the device waits for: ",
        ),
        (parts(0.1, 0.1, 2.8, 0.0), "compute", "is computing: "),
        (parts(0.1, 0.1, 0.3, 2.4), "synchronize", "is waiting to read results back: 80 %"),
        (parts(1.3, 0.1, 1.0, 0.7), None, "No single part makes cuda:0 fp32 slower: a step on it goes into copying"),
    ],
)
def test_it_is_the_part_that_was_measured(overheads: Overheads, limit: str | None, said: str) -> None:
    reason = why_slower(measured(overheads))
    assert reason is not None
    assert reason.evidence["limit"] == limit
    assert said in reason.text


def test_it_is_not_told_where_the_card_is_named_or_nobody_knows_what_its_step_is_made_of() -> None:
    large = predicted(a_summary(), 64)
    assert large.recommended == GPU
    assert why_slower(large) is None
    assert why_slower(measured(None)) is None


def test_nor_where_the_card_s_step_is_shorter_and_its_start_is_not_repaid() -> None:
    rows = [
        a_measurement(ONE, 16, 3e-3),
        a_measurement(GPU, 16, 1e-3, startup_seconds=5.0, overheads=parts(0.1, 0.8, 0.1, 0.0)),
    ]
    workload = replace(a_workload(), dataset_samples=160, epochs=1)
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, rows, Request(workload, "fp32"))
    assert found.recommended == ONE
    assert why_slower(found) is None


def test_issuing_that_takes_most_of_a_step_is_no_limit_where_nobody_looked_how_busy_the_card_was() -> None:
    """A busy card is kept waiting by nobody, however long it takes to issue a step onto an idle queue."""
    unknown, busy = (replace(parts(0.1, 1.8, 1.1, 0.0), device_busy=share) for share in (None, 0.96))
    assert why_slower(measured(unknown)) is None
    told = why_slower(measured(busy))
    assert told is not None
    assert told.evidence["limit"] == "compute"


@pytest.mark.parametrize("busy", [0.02, 1.0])
def test_what_others_take_of_a_step_is_nothing_that_it_goes_into(busy: float) -> None:
    survey = replace(a_survey(), load=Load(steal_fraction=0.0, busy_fraction=busy, own_busy_fraction=0.0))
    found = recommend(survey, a_profile(), None, [], Request(a_workload(64), "fp32"))
    limits = {"compute-bound", "dispatch-bound"} & {reason.code for reason in found.reasons}
    assert found.options[0].crowded is (busy == 1.0)
    assert bool(limits) is not found.options[0].crowded
