"""What an answer says of a card whose copies nobody calibrated."""

from __future__ import annotations

from dataclasses import replace

from app.advisor import Request, recommend
from app.advisor.explanations.words import say_seconds
from app.advisor.recommendation import Recommendation
from probes.profile import Profile
from probes.workload.description import Data
from tests.app.advisor.build import ONE, a_survey, a_workload
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
    assert found.recommended == ONE
    assert found.verdict.endswith(reason.text)
    seconds = resident.options[0].step_seconds
    assert seconds is not None
    assert f"about {say_seconds(seconds.median)}" in reason.text
    assert reason.evidence == {"plans": [GPU.label], "data": "pageable", "without_copies_seconds": seconds.median}
    assert [option.note for option in found.options] == [None, reason.text]
    assert answered(WITHOUT_ANY, "pageable", "cuda").verdict.endswith(f"Not known yet. {reason.text}")


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
