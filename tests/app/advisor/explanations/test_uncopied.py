"""What an answer says of a card whose copies nobody calibrated."""

from __future__ import annotations

from dataclasses import replace

from app.advisor import Request, recommend
from app.advisor.curves.winners import winners
from app.advisor.explanations.words import say_seconds
from app.advisor.recommendation import Recommendation
from probes.profile import Profile
from probes.workload.description import Data, Plan, Workload
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

WHOLE = a_profile((ONE, GPU), fingerprint="elsewhere")
WITHOUT_PINNED = replace(
    WHOLE, points=tuple(point for point in WHOLE.points if point.parameters.get("pinned", 0.0) == 0.0)
)
WITHOUT_ANY = replace(WHOLE, points=tuple(point for point in WHOLE.points if point.constant != "transfer"))


def answered(profile: Profile, data: Data, *devices: str) -> Recommendation:
    request = Request(a_workload(64, data=data), profile="made-up", devices=devices)
    return recommend(a_survey(), profile, None, [], request)


def test_a_card_without_any_copies_has_no_time_and_verdict_and_reason_say_why() -> None:
    found, resident = answered(WITHOUT_ANY, "pageable"), answered(WITHOUT_ANY, "resident", "cuda")
    (reason,) = [reason for reason in found.reasons if reason.code == "no-copies"]
    assert "no-calibration" not in {reason.code for reason in found.reasons}
    assert "No copies from pageable memory to cuda:0" in reason.text
    assert found.recommended is None
    assert found.confidence is None
    assert found.verdict.startswith(
        f"On made-up (a made-up machine): Not known yet. {reason.text} The CPU with one thread"
    )
    seconds = resident.options[0].step_seconds
    assert seconds is not None
    assert f"about {say_seconds(seconds.median)}" in reason.text
    assert reason.evidence == {"plans": [GPU.label], "data": "pageable", "without_copies_seconds": seconds.median}
    on_cpu = found.options[0].step_seconds
    assert on_cpu is not None
    least = say_seconds(on_cpu.median - seconds.median)
    assert found.verdict.endswith(f", which is less only if copying a batch takes more than {least}.")
    assert [option.note for option in found.options] == [None, reason.text]
    assert answered(WITHOUT_ANY, "pageable", "cuda").verdict.endswith(f"Not known yet. {reason.text}")


def test_the_cpu_is_named_where_it_takes_less_than_the_card_does_without_copies() -> None:
    small = a_summary(parameters=1000, flops_per_sample=1e5, activation_bytes_per_sample=1e4, operations=40)
    request = Request(Workload(small, 1), profile="made-up")
    found = recommend(a_survey(), WITHOUT_ANY, None, [], request)
    assert found.recommended == ONE
    assert "No copies" not in found.verdict
    assert "may be quicker" not in found.verdict
    assert [cell.plan for cell in winners(a_survey(), WITHOUT_ANY, None, [], request, [1])] == [ONE]


def test_a_map_names_no_plan_where_copies_decide_it_and_says_so() -> None:
    request = Request(a_workload(64), profile="made-up")
    (cell,) = winners(a_survey(), WITHOUT_ANY, None, [], request, [64])
    assert cell.plan is None
    assert "No copies from pageable memory to cuda:0" in (cell.why_not or "")


def test_a_plan_of_a_card_that_ran_is_named_whatever_its_others_may_take() -> None:
    """Copies to it are within what was measured."""
    half, rows = Plan("cuda:0", "bf16"), [a_measurement(GPU, 64, 1.0), a_measurement(ONE, 64, 5.0)]
    points, networks = (
        (*told, *(replace(each, plan=half) for each in told if each.plan == GPU))
        for told in (WITHOUT_ANY.points, WITHOUT_ANY.networks)
    )
    profile = replace(WITHOUT_ANY, fingerprint="f", points=points, networks=networks)
    found = recommend(a_survey(gpus=[a_gpu()]), profile, None, rows, Request(a_workload(64)))
    assert found.recommended == GPU
    assert found.verdict.endswith(f"{half.label}: ask with data resident.")


def test_from_pinned_memory_it_is_told_by_pageable_copies_and_no_shorter_than_without_any() -> None:
    bound, whole, least = (
        answered(profile, data, "cuda").options[0].step_seconds
        for profile, data in ((WITHOUT_PINNED, "pinned"), (WHOLE, "pinned"), (WHOLE, "resident"))
    )
    assert bound is not None
    assert whole is not None
    assert least is not None
    assert bound.median >= whole.median
    assert bound.low == least.low <= whole.low
    assert "no longer than they say" in next(
        reason.text for reason in answered(WITHOUT_PINNED, "pinned").reasons if reason.code == "no-copies"
    )
    assert "no-copies" not in {reason.code for reason in answered(WHOLE, "pinned").reasons}


def test_nobody_is_told_to_pin_where_no_copy_from_there_was_seen() -> None:
    told, untold = (answered(profile, "pageable", "cuda") for profile in (WHOLE, WITHOUT_PINNED))
    assert "pinning-pays" in {reason.code for reason in told.reasons}
    assert "pinning-pays" not in {reason.code for reason in untold.reasons}
    assert told.settings["pin_memory"] is True
    assert "pin_memory" not in untold.settings
