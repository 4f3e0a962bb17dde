"""Starting torch as it really starts: real processes that answer, fail, die or hang."""

import os
import sys
from pathlib import Path

import pytest

from probes.torch_start import start_torch

PLENTY = 120.0


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_the_torch_that_is_here_says_what_it_is() -> None:
    start = start_torch(PLENTY)
    assert start.error is None
    assert start.ready is not None
    assert start.ready["torch"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_torch", "No module named 'no_such_torch'"),
        ("raise SystemExit(3)", "ended with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "instructions that the processor lacks"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("print('not json')", "ended with code 0"),
        ("print('[1]')", "ended with code 0"),
    ],
)
def test_a_torch_that_ends_says_why(text: str, reason: str) -> None:
    start = start_torch(PLENTY, program(text))
    assert start.ready is None
    assert reason in (start.error or "")


def test_a_torch_that_hangs_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hang = (
        f"import os, pathlib, threading; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); "
        "threading.Event().wait()"
    )
    start = start_torch(3.0, program(hang))
    assert "did not answer within 3 s" in (start.error or "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_program_that_is_not_there_is_a_sentence() -> None:
    assert "could not be started" in (start_torch(PLENTY, ("/no/such/program",)).error or "")
