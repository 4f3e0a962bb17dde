"""What is advised can be done: by who asked, of this model, on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.summary import trace_of_summary
from probes.measurement import Measurement
from probes.profile import Profile
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import a_profile

WHOLE = replace(a_workload(), model=parse_model("iris-mlp"))
TRACE = trace_of_summary(a_workload())


def told(
    profile: Profile | None,
    /,
    *rows: Measurement,
    summary: bool = False,
    traced: bool = True,
    captured: bool = False,
    unreadable: str | None = None,
    **asked: Any,
) -> str:
    """All sentences of the answer: its verdict, reasons and notes."""
    request = Request(a_workload() if summary else WHOLE, **asked)
    trace = None if summary or not traced else TRACE
    how: dict[str, Any] = {"captured": captured, "unreadable": unreadable}
    found: Recommendation = recommend(a_survey(), profile, trace, rows, request, **how)
    return " ".join((found.verdict, *(reason.text for reason in found.reasons), *(o.note or "" for o in found.options)))


@pytest.mark.parametrize("profile", [None, a_profile()])
def test_who_asked_for_no_measuring_may_ask_for_it(profile: Profile | None) -> None:
    assert "ffort quick" in told(profile)


@pytest.mark.parametrize("profile", [None, a_profile()])
def test_a_summary_is_not_to_be_measured(profile: Profile | None) -> None:
    for effort in ("instant", "quick"):
        sentences = told(profile, summary=True, effort=effort)
        assert "ffort quick" not in sentences
        assert "escribed by its layers" in sentences
        assert ("crosspoint calibrate" in sentences) is (profile is None)


@pytest.mark.parametrize("profile", [None, a_profile()])
@pytest.mark.parametrize("summary", [True, False])
def test_on_a_captured_machine_nothing_is_to_be_run(profile: Profile | None, summary: bool) -> None:
    sentences = told(profile, summary=summary, captured=True)
    assert "ffort quick" not in sentences
    assert "crosspoint calibrate" not in sentences
    assert ("calibrate the machine itself" in sentences) is (profile is None)
    assert ("ask with that (`--profile NAME`)" in sentences) is (profile is None), "torch's version is in no capture"


@pytest.mark.parametrize(
    ("asked", "advised"),
    [
        ({}, "meanwhile effort quick measures this very model."),
        ({"effort": "quick"}, "meanwhile measuring for longer"),
        ({"effort": "thorough"}, "may do for them."),
        ({"summary": True}, "Ask again once it can."),
    ],
)
def test_where_nobody_can_look_up_whether_a_machine_was_calibrated_it_is_not_said_that_it_was_not(
    asked: dict[str, Any], advised: str
) -> None:
    sentences = told(None, unreadable="the store cannot be written", **asked)
    assert "whether this machine was calibrated cannot be looked up, as the store cannot be written. " in sentences
    assert advised in sentences
    unknown = ("not been calibrated", "crosspoint calibrate", "neither calibrated")
    assert not any(words in sentences for words in unknown)
    assert "calibrate the machine itself" in told(None, unreadable="the store cannot be written", captured=True)


@pytest.mark.parametrize("profile", [None, a_profile()])
def test_who_asked_for_measuring_is_not_told_to_but_to_give_it_more_time(profile: Profile | None) -> None:
    short = told(profile, effort="quick")
    assert "ffort quick" not in short
    assert "effort thorough" in short
    assert "higher time limit" in told(profile, effort="thorough", time_limit_seconds=5.0)
    longest = told(profile, effort="thorough")
    assert not any(words in longest for words in ("ffort quick", "effort thorough", "time limit"))


@pytest.mark.parametrize("profile", [None, a_profile()])
@pytest.mark.parametrize("rows", [(), (a_measurement(ONE, 4, 0.1),), (a_measurement(ONE, 16, 0.1),)])
def test_what_could_not_be_traced_is_to_be_measured_not_calibrated(
    profile: Profile | None, rows: tuple[Measurement, ...]
) -> None:
    """A profile has no operations to price: it is no fault of its own, and another one tells as little."""
    sentences = told(profile, *rows, traced=False)
    assert "only measuring tells its time. Effort quick measures this very model." in sentences
    assert not any(words in sentences for words in ("calibrat", "the profile"))
    assert "may do for them" in told(profile, *rows, traced=False, effort="thorough")
    one = told(profile, *rows, traced=False, effort="thorough", precision="fp32", devices=("cpu",))
    assert "fewer plans" not in one
    assert "`crosspoint measure` may take up to an hour" in one


def test_what_could_not_be_traced_is_to_be_measured_on_the_machine_that_is_asked_about() -> None:
    for sentences in (
        told(a_profile(fingerprint="elsewhere"), traced=False, profile="made-up"),
        told(a_profile(), traced=False, captured=True),
    ):
        assert "only measuring tells its time. The model has to be measured on the machine itself." in sentences
        assert not any(words in sentences for words in ("too few points", "has nothing for", "ffort quick"))
