"""Profiles for people: what was measured, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from app.advisor.explanations.noise_signs import signs_of_noise
from app.advisor.time_model.pooled import POOLED
from app.cli.output import Column, print_bullets, print_heading, print_pairs, print_table, print_text
from app.cli.units import format_bytes, format_seconds, format_share
from app.profiles import age_seconds
from probes.points import Point
from probes.profile import Profile

PROFILE_COLUMNS = (
    Column("name"),
    Column("machine", prose=True),
    Column("age", "right"),
    Column("effort", needed=False),
    Column("torch", needed=False),
    Column("this machine"),
)


def show_profiles(rows: Sequence[dict[str, Any]]) -> None:
    """rows: as app.profiles.summarize makes them."""
    if not rows:
        print_text("No profile is stored. `crosspoint calibrate` measures this machine's.")
        return
    print_table(PROFILE_COLUMNS, [_row(row) for row in rows])


def _row(row: dict[str, Any]) -> list[str]:
    here = "yes" if row["this_machine"] else ""
    torch = row["software"].get("torch", "?")
    return [row["name"], row["machine"], format_seconds(row["age_seconds"]), row["effort"], torch, here]


def show_profile(profile: Profile, *, elsewhere: bool = False) -> None:
    """What was measured, when and on what, and each constant's points with their spread. elsewhere: it is not this
    machine's as it is now."""
    print_heading(f"Profile {profile.name}: {profile.machine}")
    one = profile.calibrations == 1
    figures = {name: value for name, value in profile.noise.items() if name != "busy"}  # said below, and why
    noise = ", ".join(f"{name} {_noise_text(name, value)}" for name, value in figures.items())
    print_pairs(
        [
            ("measured at", f"{profile.created_at}, {_age(profile.created_at)}"),
            ("measured in", f"{format_seconds(profile.duration_seconds)}, effort {profile.effort}"),
            ("times", "of this calibration" if one else f"means of {profile.calibrations} calibrations"),
            ("points", f"{len(profile.points)} and {len(profile.networks)} whole networks"),
            ("plans", ", ".join(_plans(profile)) or "none"),
            ("noise", noise or "not known"),
            ("software", ", ".join(f"{name} {version}" for name, version in profile.software.items())),
            ("memory", format_bytes(profile.hardware.memory_bytes) if profile.hardware else "not known"),
            ("fingerprint", profile.fingerprint or "none"),
        ]
    )
    print_table(CONSTANT_COLUMNS, _constant_rows(profile))
    if signs := signs_of_noise(profile):
        what = f"The machine was busy meanwhile ({'; '.join(signs.values())})"
        print_text(f"{what}: calibrate {'that machine ' if elsewhere else ''}again when it is quiet.")


def _age(created_at: str) -> str:
    age = age_seconds(created_at)
    return "by a clock that was ahead of this one" if age is None else f"{format_seconds(age)} ago"


def show_calibrated(counting: Mapping[str, bool]) -> None:
    """What of the calibration that ran now is not in the profile, and why. counting: as app.profiles.newest_devices."""
    held = [device for device, counts in counting.items() if counts]
    if len(held) == len(counting):
        return
    what = f"counts only for {', '.join(held)}" if held else "does not count"
    of_what = f" for {', '.join(device for device in counting if device not in held)}" if held else ""
    print_text(
        f"The calibration that ran now was disturbed, as by others at work on this machine, and {what}: the profile is "
        f"made of calmer ones before it{of_what}. Calibrate again when the machine is quiet."
    )


def show_what_makes_it_surer(calibrations: int) -> None:
    """calibrations: of how many the profile is made. A calibration that neighbours slowed shows only beside others."""
    if calibrations < POOLED:
        print_text(
            f"It is made of {calibrations} of up to {POOLED} calibrations. Each tells of its own minute: calibrating "
            "again some minutes and some hours from now makes it surer. A running service does so by itself."
        )


class Origin(NamedTuple):
    """Whether a profile speaks of this machine as it is now. changes: what differs; None when it does. answering: the
    name of the profile that answers for this machine. is_known: False where the survey failed."""

    changes: Sequence[str] | None
    answering: str | None
    is_known: bool = True


def show_origin(profile: Profile, origin: Origin) -> None:
    if not origin.is_known:
        print_text("The survey failed: whether it is this machine's is not known. `crosspoint hardware` says why.")
        return
    if origin.changes is None and origin.answering == profile.name:
        print_text("It is this machine's, as it is now.")
        return
    if origin.changes is None:
        print_text(
            f"It is this machine's, as it is now, but {origin.answering} came later and answers: this one does only "
            "when it is asked for by name."
        )
        return
    print_text("It is not this machine's as it is now: it answers only when it is asked for by name.")
    print_bullets(origin.changes)


CONSTANT_COLUMNS = (Column("constant"), Column("points", "right"), Column("spread", "right"))


def _plans(profile: Profile) -> list[str]:
    return list(dict.fromkeys(point.plan.label for point in profile.points))


def _constant_rows(profile: Profile) -> list[list[str]]:
    """How many points each constant has, over all plans and under each, and the middle of their spreads (10th to 90th
    percentile)."""
    rows: list[list[str]] = []
    for constant in sorted({point.constant for point in profile.points}):
        points = [point for point in profile.points if point.constant == constant]
        rows.append([constant, str(len(points)), _spread(points)])
        labels = dict.fromkeys(point.plan.label for point in points)
        if len(labels) > 1:
            for label in labels:
                under = [point for point in points if point.plan.label == label]
                rows.append([f"  {label}", str(len(under)), _spread(under)])
    return rows


def _spread(points: Iterable[Point]) -> str:
    spreads = [
        (point.seconds.high - point.seconds.low) / point.seconds.median
        for point in points
        if len(point.seconds.samples) != 1 and point.seconds.median > 0
    ]
    return format_share(median(spreads)) if spreads else "one sample each"


def _noise_text(name: str, value: float | None) -> str:
    return f"{value:.2f}" if value is not None and name == "load_average" else format_share(value)
