"""`crosspoint watch`: real processes, a fake NVML at the library's boundary, cards that come and go."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.cli.endings import ExitCode
from app.cli.watch_view import describe_live, render_live
from probes.hardware import Load, Memory
from probes.live import Live, LiveAccelerator
from tests.app.cli.test_interrupt import CROSSPOINT, read_until
from tests.probes.gpu.test_nvml_process import FAKE

SHORT = ("--interval", "0.1")
WITHOUT_CARDS = {"FAKE_NVML_STATE": "", "PYTHONPATH": "", "TERM": "xterm"}


@contextmanager
def watching(*arguments: str, state: Path | None = None, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The command; its cards are what the file `state` says."""
    environment = {**os.environ, **WITHOUT_CARDS}
    if state is not None:
        environment |= {"PYTHONPATH": FAKE, "FAKE_NVML": "healthy", "FAKE_NVML_STATE": str(state)}
    command = subprocess.Popen(
        (*CROSSPOINT, "watch", *arguments),
        env=environment,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        text=True,
    )
    try:
        yield command
    finally:
        command.kill()
        command.communicate()


def documents(command: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert command.stdout is not None
    for line in command.stdout:
        yield json.loads(line)


def cards_of(document: dict[str, Any]) -> list[str]:
    return [card["id"] for card in document["accelerators"]]


def test_a_reading_a_line_and_no_more_than_asked_for() -> None:
    with watching("--count", "3", *SHORT) as command:
        output, errors = command.communicate(timeout=120)
    assert (command.returncode, errors, len(output.splitlines())) == (0, "", 3)
    assert "busy" in output
    assert "usable" in output


def test_json_is_a_document_a_line() -> None:
    with watching("--count", "2", "--json", *SHORT) as command:
        found = list(documents(command))
    assert [set(document) for document in found] == [{"read_at", "load", "memory", "accelerators", "reason"}] * 2
    assert found[1]["memory"]["usable_bytes"] > 0


def test_cards_that_disappear_and_appear_do_so_in_the_readings(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("count=2")
    with watching("--json", *SHORT, state=state) as command:
        readings = documents(command)

        def await_cards(wanted: list[str]) -> dict[str, Any]:
            return next(document for document in readings if cards_of(document) == wanted)

        both = await_cards(["GPU-00000000", "GPU-00000001"])
        assert both["accelerators"][0]["name"] == "NVIDIA GeForce RTX 3080 Ti"
        state.write_text("count=1")
        await_cards(["GPU-00000000"])
        state.write_text("count=0")
        await_cards([])
        state.write_text("count=2 utilization=55")
        await_cards(["GPU-00000000", "GPU-00000001"])
        assert next(d for d in readings if {card["utilization_percent"] for card in d["accelerators"]} == {55})
        assert next(d for d in readings if all(card["name"] for card in d["accelerators"])), "another survey named it"
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
    assert command.returncode == ExitCode.INTERRUPTED
    assert errors.strip() == "Interrupted."


def test_a_lost_card_says_so_and_the_other_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("count=2")
    with watching("--json", *SHORT, state=state) as command:
        readings = documents(command)
        next(document for document in readings if len(cards_of(document)) == 2)
        state.write_text("count=2 lost=1")
        lost = next(d for d in readings if len({card["why_not"] for card in d["accelerators"]}) == 2)
    healthy = [card for card in lost["accelerators"] if card["memory_free_bytes"] is not None]
    assert [card["id"] for card in healthy] == ["GPU-00000000"]


def test_nothing_is_left_running(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("count=1")
    with watching(*SHORT, state=state) as command:
        assert command.stdout is not None
        command.stdout.readline()
        children = psutil.Process(command.pid).children(recursive=True)
        assert children, "NVML is watched"
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []


def test_a_reader_that_leaves_ends_it() -> None:
    with watching(*SHORT) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert command.wait(120) == ExitCode.READER_GONE
        assert command.stderr.read() == ""
        command.stdout = None


def test_at_a_terminal_the_picture_is_renewed_in_its_place() -> None:
    ours, theirs = pty.openpty()
    with watching(*SHORT, stdout=theirs) as command:
        os.close(theirs)
        read_until(ours, b"busy")
        read_until(ours, b"\x1b[2K")  # the line is taken away: the next picture is drawn in its place
        command.send_signal(signal.SIGINT)
        read_until(ours, b"\x1b[?25h")  # the cursor is shown again
        assert command.wait(60) == ExitCode.INTERRUPTED
    os.close(ours)


@pytest.mark.parametrize("words", [["--interval", "0"], ["--count", "0"], ["--interval", "nan"]])
def test_numbers_that_make_no_sense_are_wrong_usage(words: list[str]) -> None:
    with watching(*words) as command:
        _, errors = command.communicate(timeout=60)
    assert command.returncode == ExitCode.USAGE
    assert "Error" in errors


def test_a_captured_machine_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSPOINT_SYSROOT", str(tmp_path))
    with watching() as command:
        _, errors = command.communicate(timeout=60)
    assert command.returncode == ExitCode.USAGE
    assert "captured" in errors


HOT = LiveAccelerator(
    "GPU-1",
    name="NVIDIA H100",
    torch_device="cuda:0",
    utilization_percent=97.0,
    memory_total_bytes=80 * 10**9,
    memory_free_bytes=10**9,
    temperature_celsius=88.0,
    power_watts=350.4,
    throttle_reasons=("held down by heat",),
)
LOST = LiveAccelerator("GPU-2", usable=False, why_not="the card fell off the bus")
LIVE = Live("2026-11-21T17:00:01.123Z", Load(steal_fraction=0.25, busy_fraction=0.5), Memory(), (HOT, LOST))


def test_a_line_says_what_holds_a_card_down_and_what_is_unknown() -> None:
    assert describe_live(LIVE) == (
        "17:00:01  cpu 50 % busy, 25 % stolen  memory ? usable  "
        "cuda:0: 97 % busy, 1 GB free of 80 GB, 88 °C, 350 W, held down by heat  "
        "#1 GPU-2: the card fell off the bus"
    )


def test_a_table_does_too() -> None:
    from rich.console import Console

    console = Console(width=140)
    with console.capture() as captured:
        console.print(render_live(LIVE))
    text = captured.get()
    assert all(words in text for words in ("97 %", "88 °C", "held down by heat", "the card fell off the bus"))
