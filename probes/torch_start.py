"""Starts torch in a process of its own, and takes its first words: which devices it has, or why it ended.

The program is the micro-training (docs/protocol.md): its `ready` event comes before any job, and it ends with its
standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

from probes.gpu.child_process import TERM_SECONDS, explain_ending
from probes.gpu.device_order import BY_BUS
from probes.reading import clean

_PROGRAM = (sys.executable, "-P", "-m", "probes.microtrain")
_MAX_LINE_BYTES = 1 << 20
_TAIL_BYTES = 8 * 1024  # of what a dying Python says: its last line names the error


@dataclass(frozen=True, slots=True)
class TorchStart:
    """ready: the event, None where none came; error: then a sentence why."""

    ready: dict[str, Any] | None = None
    error: str | None = None


def start_torch(deadline_seconds: float, program: tuple[str, ...] = _PROGRAM) -> TorchStart:
    """Never raises; takes the deadline and twice TERM_SECONDS at most."""
    environment = {**os.environ, **BY_BUS, "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True)
    except OSError as error:
        return TorchStart(error=f"its process could not be started: {error.strerror}")
    line, said, errors = _hear(child, deadline_seconds)
    ready = _parse(line)
    if ready is not None:
        return TorchStart(ready)
    if not said:
        return TorchStart(error=f"it did not answer within {deadline_seconds:g} s")
    return TorchStart(error=_explain(child.returncode, errors))


def _hear(child: subprocess.Popen[bytes], deadline_seconds: float) -> tuple[bytes, bool, bytes]:
    """The first line, whether it or an end came in time, and the end of what was said to standard error."""
    heard: list[bytes] = []
    complaints: list[bytes] = []
    assert child.stdout is not None
    assert child.stderr is not None
    out, err = child.stdout, child.stderr
    listening = threading.Thread(target=lambda: heard.append(out.readline(_MAX_LINE_BYTES)), daemon=True)
    complaining = threading.Thread(target=lambda: _keep_tail(err, complaints), daemon=True)
    listening.start()
    complaining.start()
    listening.join(deadline_seconds)
    in_time = bool(heard)
    _end(child)
    for thread, stream in ((listening, out), (complaining, err)):
        thread.join(TERM_SECONDS)
        if not thread.is_alive():
            stream.close()
    return (heard[0] if in_time else b""), in_time, b"".join(complaints)[-_TAIL_BYTES:]


def _keep_tail(stream: Any, into: list[bytes]) -> None:
    while chunk := stream.read1(_TAIL_BYTES):
        into[:] = [b"".join(into)[-_TAIL_BYTES:], chunk]


def _end(child: subprocess.Popen[bytes]) -> None:
    """By the end of its input, then TERM, then KILL to its group; one stuck in a driver is left behind."""
    with contextlib.suppress(OSError):
        if child.stdin is not None:
            child.stdin.close()
    for signal_name in ("", "SIGTERM", "SIGKILL"):
        if signal_name:
            _signal_group(child, signal_name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_SECONDS)
            return


def _signal_group(child: subprocess.Popen[bytes], name: str) -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, getattr(signal, name))
        else:
            child.kill()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and event.get("event") == "ready" else None


def _explain(code: int | None, errors: bytes) -> str:
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in {item.value for item in signal.Signals} else f"signal {-code}"
        hint = "; this build uses instructions that the processor lacks" if name == "SIGILL" else ""
        return f"its process was ended by {name}{hint}"
    return clean(lines[-1]) or explain_ending("torch", code or 0) if lines else explain_ending("torch", code or 0)
