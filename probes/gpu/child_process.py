"""A driver's library in a process of its own: started, waited for no longer than told, and ended with its group.

A library can hang or crash whoever loads it. The program is a module of this package, run as `python -m MODULE LIFE`:
it calls `open_channel(LIFE)` and prints one JSON object a line, so that what was said before a hang is kept.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

TERM_SECONDS = 0.5  # between TERM and KILL: a GPU process killed outright can leave the card unusable
TIMEOUT = "timeout"
_MAX_OUTPUT_BYTES = 4 << 20  # 64 cards with 7 MIG instances each take 500 kB
_MAX_LINES = 10_000

# Where drivers put their libraries, beside the loader's own path: distributions, WSL, containers, NixOS, ROCm.
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
)


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """The documents that the child wrote, and why it ended early: None, `timeout`, or a sentence."""

    documents: tuple[dict[str, Any], ...]
    ending: str | None


def ask_child(
    module: str,
    subject: str,
    deadline_seconds: float,
    environment: Mapping[str, str],
    arguments: tuple[str, ...] = (),
) -> ChildAnswer:
    """Runs `python -m module LIFE arguments…`. subject: what to call it in sentences, as in "NVML". Never raises.

    Takes at most the deadline and twice TERM_SECONDS.
    """
    output, ending = run_child(module, subject, deadline_seconds, environment, arguments)
    return ChildAnswer(parse_documents(output), ending)


def run_child(
    module: str,
    subject: str,
    deadline_seconds: float,
    environment: Mapping[str, str],
    arguments: tuple[str, ...] = (),
) -> tuple[str, str | None]:
    """The child's output, and why it ended early."""
    import subprocess  # most machines start no child, and its import is a tenth of a cold survey

    command = [sys.executable, "-m", module, str(deadline_seconds + 2 * TERM_SECONDS), *arguments]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return "", f"the {subject} process could not be started: {getattr(error, 'strerror', None) or error}"
    try:
        output, _ = child.communicate(timeout=deadline_seconds)
    except subprocess.TimeoutExpired:
        return _end(child), TIMEOUT
    ending = None if child.returncode == 0 else explain_ending(subject, child.returncode)
    return _decode(output), ending


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """This package must be found, from wherever it was started."""
    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join([*paths, package_parent])}


def parse_documents(output: str) -> tuple[dict[str, Any], ...]:
    """The lines that are JSON objects; others (a library that prints) are passed over."""
    found = (_parse_line(line) for line in output.splitlines()[:_MAX_LINES])
    return tuple(document for document in found if document)


def explain_ending(subject: str, code: int) -> str:
    if code >= 0:
        return f"the {subject} process ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{subject} ended its process with {name}; look at the kernel log for errors of the card"


def find_library(names: tuple[str, ...], environment: Mapping[str, str], folders: tuple[str, ...] = ()) -> str | None:
    """Where one of these libraries lies; some file look-ups, nothing loaded."""
    places = (*environment.get("LD_LIBRARY_PATH", "").split(os.pathsep), *LIBRARY_FOLDERS, *folders)
    candidates = (f"{folder}/{name}" for folder in places if folder for name in names)
    return next((path for path in candidates if os.path.exists(path)), None)  # noqa: PTH110


def open_channel(life_seconds: float) -> Callable[[dict[str, Any]], None]:
    """For the child: what writes a document. What libraries print goes to standard error from here on.

    The process ends itself after `life_seconds`: whoever started it may be gone before a hang ends.
    """
    if life_seconds > 0 and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, life_seconds)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def emit(document: dict[str, Any]) -> None:
        out.write(json.dumps(document) + "\n")
        out.flush()

    return emit


def _end(child: "subprocess.Popen[bytes]") -> str:
    """TERM, then KILL, to the whole group; returns what was said. A child stuck in the driver is left behind."""
    import subprocess

    output = b""
    for signal_name in ("SIGTERM", "SIGKILL"):
        signal_group(child, signal_name)
        try:
            output, _ = child.communicate(timeout=TERM_SECONDS)
        except subprocess.TimeoutExpired as expired:
            output = expired.output or b""
            continue
        break
    return _decode(output)


def signal_group(child: "subprocess.Popen[bytes]", name: str) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, getattr(signal, name))
        else:
            child.kill()
    except (ProcessLookupError, PermissionError):
        pass


def _decode(output: bytes | None) -> str:
    return (output or b"")[:_MAX_OUTPUT_BYTES].decode("utf-8", "replace")


def _parse_line(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
