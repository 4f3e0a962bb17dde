"""A profile as text."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.endings import ExitCode
from app.cli.main import main
from app.cli.profile_view import Origin, show_calibrated, show_origin, show_profile, show_what_makes_it_surer
from probes.measurement import Timing
from probes.points import Point
from probes.profile import Profile
from probes.workload.description import Plan


def test_a_device_that_is_not_here_is_wrong_usage_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSPOINT_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("app.service.Crosspoint.calibrate", None)
    assert main(["calibrate", "--device", "cuda:63"]) == ExitCode.USAGE
    assert "Devices here: cpu" in capsys.readouterr().err


def point(constant: str, *samples: float) -> Point:
    return Point(constant, Plan("cpu", "fp32", 1), {}, 0, 0, Timing.from_samples(samples))


def test_a_profile_shows_what_was_measured_and_how_far_it_spread(capsys: pytest.CaptureFixture[str]) -> None:
    profile = Profile(
        name="node-1",
        created_at="2026-11-21T09:02:11Z",
        fingerprint="0",
        machine="AMD EPYC, 2 cores, 24 GiB",
        software={"torch": "2.13.0"},
        effort="quick",
        duration_seconds=22.0,
        noise={"load_average": 4.6, "steal_fraction": None},
        points=(point("matmul", 1.0, 1.5), point("matmul", 2.0, 2.0), point("recurrent", 1.0)),
        networks=(),
    )
    show_profile(profile)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Profile node-1: AMD EPYC, 2 cores, 24 GiB"
    assert any(line.split() == ["matmul", "2", "16", "%"] for line in lines)
    assert any(line.split() == ["recurrent", "1", "one", "sample", "each"] for line in lines)
    assert any("load_average 4.60, steal_fraction ?" in line for line in lines)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_calibration_of_a_busy_machine_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    busy = Profile("x", "2026-11-21T09:02:11Z", "0", "m", {}, "quick", 1.0, {"contention": 0.85}, (), ())
    show_profile(busy)
    assert "others wanted 85 % of the cores that were measured on): calibrate again" in printed(capsys)
    show_profile(busy, elsewhere=True)
    assert "others wanted 85 % of the cores that were measured on): calibrate that machine again" in printed(capsys)
    show_profile(replace(busy, noise={"drift": 0.6, "hindrance": 0.3}))
    told = printed(capsys)
    assert "steps took 60 % longer half a calibration earlier or later" in told
    assert "steps took 30 % longer on all threads than on one" in told
    show_profile(replace(busy, noise={"contention": 0.16, "busy": 1.0}))
    assert "busy 100 %" not in capsys.readouterr().out
    show_profile(replace(busy, noise={"contention": 0.01, "spread": None}))
    assert "busy" not in capsys.readouterr().out


@pytest.mark.parametrize(("calibrations", "words"), [(1, "of this calibration"), (3, "means of 3 calibrations")])
def test_a_profile_says_of_how_many_calibrations_it_is(
    capsys: pytest.CaptureFixture[str], calibrations: int, words: str
) -> None:
    profile = Profile("x", "2026-11-21T09:02:11Z", "0", "m", {}, "quick", 1.0, {}, (), (), calibrations=calibrations)
    show_profile(profile)
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("counting", "told"),
    [
        ({"cpu": True, "cuda:0": True}, ""),
        ({}, ""),
        ({"cpu": False}, "and does not count: the profile is made of calmer ones before it."),
        (
            {"cpu": False, "cuda:0": True},
            "counts only for cuda:0: the profile is made of calmer ones before it for cpu.",
        ),
    ],
)
def test_a_calibration_that_does_not_count_or_only_in_part_is_said_to(
    capsys: pytest.CaptureFixture[str], counting: dict[str, bool], told: str
) -> None:
    show_calibrated(counting)
    said = " ".join(capsys.readouterr().out.split())
    assert told in said
    assert bool(told) is bool(said)


@pytest.mark.parametrize(("calibrations", "is_told"), [(1, True), (3, True), (4, False)])
def test_what_makes_a_profile_surer_is_said_until_nothing_does(
    capsys: pytest.CaptureFixture[str], calibrations: int, is_told: bool
) -> None:
    show_what_makes_it_surer(calibrations)
    said = " ".join(capsys.readouterr().out.split())
    assert (f"made of {calibrations} of up to 4 calibrations" in said) is is_told
    assert bool(said) is is_told


def test_a_profile_of_a_clock_that_was_ahead_has_no_age(capsys: pytest.CaptureFixture[str]) -> None:
    show_profile(Profile("x", "2099-01-01T00:00:00Z", "0", "m", {}, "quick", 1.0, {}, (), ()))
    assert "2099-01-01T00:00:00Z, by a clock that was ahead of this one" in printed(capsys)


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (Origin((), None, is_known=False), "whether it is this machine's is not known"),
        (Origin(None, "x"), "It is this machine's, as it is now."),
        (Origin(("the driver",), None), "It is not this machine's as it is now"),
    ],
)
def test_whose_a_profile_is_is_told_as_far_as_it_is_known(
    capsys: pytest.CaptureFixture[str], origin: Origin, told: str
) -> None:
    show_origin(Profile("x", "2026-11-21T09:02:11Z", "0", "m", {}, "quick", 1.0, {}, (), ()), origin)
    assert told in printed(capsys)
