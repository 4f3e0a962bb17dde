"""The reasons that say of which plans no time is known, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.advisor.explanations.advice import Advice
from app.advisor.explanations.words import say_list
from app.advisor.recommendation import Option, Reason
from app.advisor.tried import OUT_OF_TIME
from probes.profile import Profile


def explain_without_time(options: Sequence[Option], profile: Profile | None, advice: Advice) -> Iterable[Reason]:
    """Of plans that may run: those that the time did not do for, by what came of them, and those that nobody calibrated
    or tried, of which more time would run none, but for those that lack copies alone (explain_uncopied). options: of
    one plan on cards that are alike, one: what is known of another tells of this one, too."""
    late: dict[str, list[str]] = {}
    others: list[str] = []
    for option in options:
        if option.fits is False or option.cannot_run or option.step_seconds is not None:
            continue
        if option.note is not None and OUT_OF_TIME in option.note.lower():
            late.setdefault(option.note, []).append(option.plan.label)
        elif option.uncopied_seconds is None:
            others.append(option.plan.label)
    for note, labels in late.items():
        text = f"Nothing is known about the time of {say_list(labels)}. {note}"
        yield Reason("not-reached", text, {"plans": labels})
    if others:
        yield _uncalibrated(others, profile, advice)


def _uncalibrated(labels: list[str], profile: Profile | None, advice: Advice) -> Reason:
    if advice.why:
        what = f"Nothing is known about the time of {say_list(labels)}: {advice.why}."
    elif profile is None:
        what = f"This machine has not been calibrated, so nothing is known about the time of {say_list(labels)}."
    else:
        what = f"The profile {profile.name} has nothing for {say_list(labels)}."
    return Reason("no-calibration", f"{what} {advice.unknown}", {"plans": labels})
