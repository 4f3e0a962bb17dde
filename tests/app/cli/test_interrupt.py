"""Ctrl-C ends a command and whatever it started."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.cli.endings import ExitCode

CROSSPOINT = (sys.executable, "-c", "import sys; from app.cli.main import main; sys.exit(main())")


def test_ctrl_c_while_input_is_awaited_is_code_130_without_a_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "model.json"
    os.mkfifo(pipe)
    command = subprocess.Popen((*CROSSPOINT, "recommend", str(pipe)), stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):  # returns when the command has opened its end: it is reading now
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
    assert command.returncode == ExitCode.INTERRUPTED
    assert errors.strip() == "Interrupted."


@pytest.fixture
def terminal() -> tuple[int, int]:
    """Our end and the command's end of a terminal."""
    return pty.openpty()


def read_until(descriptor: int, words: bytes) -> bytes:
    """What a terminal shows up to `words`; raises OSError when the command ends before."""
    seen = b""
    while words not in seen:
        seen += os.read(descriptor, 4096)
    return seen


def test_ctrl_c_in_a_measurement_ends_its_processes(terminal: tuple[int, int], tmp_path: Path) -> None:
    ours, theirs = terminal
    command = subprocess.Popen(
        (*CROSSPOINT, "experiment", "iris", "--epochs", "1000000", "--json"),
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "CROSSPOINT_DATA_DIR": str(tmp_path), "TERM": "xterm"},
    )
    os.close(theirs)
    read_until(ours, b"of 1,000,000 epochs")  # the bar: a process trains
    children = psutil.Process(command.pid).children(recursive=True)
    assert children
    command.send_signal(signal.SIGINT)
    output, _ = command.communicate(timeout=60)
    os.close(ours)
    assert command.returncode == ExitCode.INTERRUPTED
    assert output == b""
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
