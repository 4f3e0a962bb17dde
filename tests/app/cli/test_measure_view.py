"""Measurements as a table, and the exit codes that follow from them."""

from dataclasses import replace
from typing import Literal

import pytest

from app.cli.endings import CommandFailed, ExitCode
from app.cli.measure import fail_without_times
from app.cli.measure_view import show_measurements
from probes.measurement import Measurement, MemoryPeak, Overheads, Timing
from probes.workload.description import Plan

Outcome = Literal["ok", "out-of-memory", "unsupported", "failed"]


def measurement(threads: int, seconds: float | None, outcome: Outcome = "ok", steady: bool = True) -> Measurement:
    return Measurement(
        plan=Plan("cpu", "fp32", threads),
        batch_size=32,
        data="pageable",
        outcome=outcome,
        reason=None if outcome == "ok" else "Memory ran out.",
        step=Timing(seconds, seconds * 0.9, seconds * 1.2) if seconds else None,
        steady=steady,
        startup_seconds=0.2 if seconds else None,
        overheads=Overheads(launch_seconds=0.001, device_busy=0.5) if seconds else None,
        memory=MemoryPeak(process_bytes=500_000_000) if seconds else None,
    )


def test_the_fastest_plan_comes_first_and_a_failed_one_last(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [measurement(4, None, "out-of-memory"), measurement(1, 0.2), measurement(2, 0.1)]
    show_measurements([row.to_json() for row in rows])
    out = capsys.readouterr().out
    assert out.index("2 threads") < out.index("1 thread ") < out.index("4 threads")
    assert "100 ms (90 to 120)" in out
    assert "4 threads  Memory ran out." in out


def test_what_a_first_step_takes_beyond_a_steady_one_is_called_start_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    show_measurements([measurement(1, 0.03).to_json()])
    head, _, row = capsys.readouterr().out.splitlines()[:3]
    assert "start-up" in head
    assert "first step" not in head
    assert "200 ms" in row


def test_a_time_that_had_not_settled_is_marked_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    show_measurements([measurement(1, 0.2, steady=False).to_json()])
    out = capsys.readouterr().out
    assert "200 ms (180 to 240) *" in out
    assert "--seconds" in out


@pytest.mark.parametrize(
    ("slowdown", "said"),
    [(1.0, "hardly took longer"), (1.4, "took 1.40 times as long"), (None, "the calm ones took no less")],
)
def test_slow_cores_that_slowed_nothing_are_told_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, slowdown: float | None, said: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    show_measurements([replace(measurement(1, 0.2), slow_share=0.25, slowdown=slowdown).to_json()])
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["out-of-memory", "out-of-memory"], ExitCode.NOTHING_FITS),
        (["failed", "out-of-memory"], ExitCode.MEASUREMENT_FAILED),
        (["unsupported"], ExitCode.MEASUREMENT_FAILED),
        ([], ExitCode.MEASUREMENT_FAILED),
    ],
)
def test_without_any_time_the_code_says_why(outcomes: list[Outcome], code: ExitCode) -> None:
    with pytest.raises(CommandFailed) as caught:
        fail_without_times([measurement(1, None, outcome).to_json() for outcome in outcomes])
    assert caught.value.code == code


def test_one_plan_that_ran_is_enough() -> None:
    fail_without_times([measurement(1, 0.1).to_json(), measurement(2, None, "out-of-memory").to_json()])
