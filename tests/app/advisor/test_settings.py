"""Settings follow from what was measured, and from how the batches of the times told arrive."""

from __future__ import annotations

import pytest

from app.advisor import Recommendation, Request, recommend
from probes.measurement import Measurement, Overheads
from probes.workload.description import Data, Plan
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile


def answer(plan: Plan, data: Data, transfer: float, *others: Measurement) -> Recommendation:
    """Of a step of a second, in which copying the batch takes so long."""
    parts = Overheads(transfer_seconds=transfer, launch_seconds=0.1, compute_seconds=0.9 - transfer)
    row = a_measurement(plan, 16, 1.0, data=data, overheads=parts)
    request = Request(a_workload(16, data=data), precision="fp32", devices=(plan.device,))
    return recommend(a_survey(gpus=[a_gpu()]), a_profile((ONE, GPU)), None, [row, *others], request)


@pytest.mark.parametrize(
    ("plan", "data", "transfer", "told"),
    [
        (GPU, "pinned", 0.0, True),
        (GPU, "pinned", 0.2, True),
        (GPU, "pageable", 0.2, True),  # by the profile's copies
        (GPU, "pageable", 0.01, False),
        (GPU, "resident", 0.0, False),
        (ONE, "pinned", 0.0, False),
    ],
)
def test_memory_is_pinned_where_it_was_timed_so_or_pays(plan: Plan, data: Data, transfer: float, told: bool) -> None:
    found = answer(plan, data, transfer)
    assert found.recommended == plan
    assert found.settings.get("pin_memory", False) is told
    is_timed = not plan.is_cpu and data == "pinned"
    assert ("pin_memory()" in (found.snippet or "")) is is_timed
    assert [reason for reason in found.reasons if reason.code == "pinning-pays"] == [] or data == "pageable"


@pytest.mark.parametrize(("pinned", "told"), [(1.08, False), (0.97, False), (0.94, True)])
def test_of_what_was_measured_in_both_ways_memory_is_pinned_where_that_took_less(pinned: float, told: bool) -> None:
    """However long the copy takes: pinning made some steps slower."""
    found = answer(GPU, "pageable", 0.2, a_measurement(GPU, 16, pinned, data="pinned"))
    assert found.settings.get("pin_memory", False) is told
    reasons = [reason for reason in found.reasons if reason.code == "pinning-pays"]
    assert bool(reasons) is told
    for reason in reasons:
        assert "takes 940 ms instead of 1.0 s, 6.0 % less" in reason.text
        assert reason.evidence["basis"] == ["measured", "measured"]


def no_step_from_pinned_memory(outcome: str, reason: str | None = None) -> Measurement:
    return a_measurement(GPU, 16, 1.0, data="pinned", outcome=outcome, step=None, reason=reason)


@pytest.mark.parametrize(
    "row",
    [
        no_step_from_pinned_memory("out-of-memory"),
        no_step_from_pinned_memory("failed", "The host had no 900 MB of pinned memory, which 2 batches take."),
    ],
    ids=["no room for the next batch on the card", "none on the host"],
)
def test_memory_is_not_pinned_where_a_step_fed_from_there_did_not_run(row: Measurement) -> None:
    assert "pin_memory" in answer(GPU, "pageable", 0.2).settings
    assert_pageable(answer(GPU, "pageable", 0.2, row))


def test_memory_is_not_pinned_where_the_card_has_no_room_for_the_next_batch() -> None:
    """From pinned memory it is sent one while it computes on another."""
    parts = Overheads(transfer_seconds=0.2, launch_seconds=0.1, compute_seconds=0.7)

    def told(batch_size: int) -> Recommendation:
        row = a_measurement(GPU, batch_size, 1.0, overheads=parts)
        request = Request(a_workload(batch_size), precision="fp32", devices=("cuda:0",))
        return recommend(a_survey(gpus=[a_gpu()]), a_profile((ONE, GPU)), None, [row], request)

    largest = told(16).options[0].max_batch_size
    assert largest is not None
    assert "pin_memory" in told(largest // 2).settings
    found = told(largest)
    assert found.options[0].fits
    assert_pageable(found)


def assert_pageable(found: Recommendation) -> None:
    assert found.recommended == GPU
    assert "pin_memory" not in found.settings
    assert "pinning-pays" not in {reason.code for reason in found.reasons}


def test_where_nobody_knows_what_a_step_fed_from_pinned_memory_takes_none_is_advised() -> None:
    parts = Overheads(transfer_seconds=0.2, launch_seconds=0.1, compute_seconds=0.7)
    row = a_measurement(GPU, 16, 1.0, overheads=parts)
    request = Request(a_workload(16), precision="fp32", devices=("cuda:0",))
    assert "pin_memory" not in recommend(a_survey(gpus=[a_gpu()]), None, None, [row], request).settings
