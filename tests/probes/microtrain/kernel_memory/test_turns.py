"""Kernels' trials of processes that trace beside each other take turns."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from probes.microtrain.kernel_memory import turns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process traces beside another")

OTHER = """
import sys
from probes.microtrain.kernel_memory import turns

turns.join(sys.argv[1])
with turns.turn():
    print("mine", flush=True)
    sys.stdin.readline()
print("over", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process that has its turn until it is sent a line."""
    monkeypatch.setattr(turns, "_shared", None)
    command = [sys.executable, "-c", OTHER, turns.share()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()
    assert turns._shared is not None
    turns._shared.close()


def begin_turn() -> tuple[threading.Thread, threading.Event]:
    had = threading.Event()

    def have() -> None:
        with turns.turn():
            had.set()

    thread = threading.Thread(target=have, daemon=True)
    thread.start()
    return thread, had


def test_a_turn_waits_for_the_other_process(other: subprocess.Popen[str]) -> None:
    thread, had = begin_turn()
    assert not had.wait(0.2)
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.flush()
    thread.join()
    assert had.is_set()


def test_a_process_that_is_killed_in_its_turn_holds_up_nobody(other: subprocess.Popen[str]) -> None:
    thread, had = begin_turn()
    other.send_signal(signal.SIGKILL)
    thread.join()
    assert had.is_set()


def test_alone_and_without_what_is_shared_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_shared", None)
    turns.join("/proc/0/fd/3")
    with turns.turn():
        thread, had = begin_turn()
        thread.join()
        assert had.is_set()
