"""Starts `python -m probes.gpu.nvidia`, waits no longer than told, and takes what it said.

NVML can hang or crash its process, so it has one of its own.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.hardware import Accelerator, Outcome

_LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = (
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
_DRIVER_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")
_WINDOWS_LIBRARY = "nvml.dll"
_MAX_OUTPUT_BYTES = 4 << 20  # 64 cards with 7 MIG instances each take 500 kB
_TERM_SECONDS = 0.5  # between TERM and KILL: a GPU process killed outright can leave the card unusable


@dataclass(frozen=True, slots=True)
class NvidiaReading:
    outcome: Outcome
    reason: str | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    accelerators: tuple[Accelerator, ...] = ()


def read_nvidia(deadline_seconds: float, environment: dict[str, str] | None = None) -> NvidiaReading:
    """`absent` at once where there is no NVIDIA driver; otherwise what the child says before the deadline."""
    environment = dict(os.environ) if environment is None else environment
    if not is_driver_present(environment):
        return NvidiaReading(Outcome.ABSENT, "no NVIDIA driver: neither its devices nor libnvidia-ml are here")
    output, ending = run_child(deadline_seconds, environment)
    return parse_output(output, ending)


def is_driver_present(environment: dict[str, str]) -> bool:
    """Whether starting a child is worth it; some file look-ups, nothing loaded.

    A pynvml of somebody's own on PYTHONPATH (remote cards, tests) stands for a driver too.
    """
    if any(os.path.exists(sign) for sign in _DRIVER_SIGNS):  # noqa: PTH110
        return True
    if sys.platform == "win32":
        return os.path.exists(os.path.join(environment.get("SYSTEMROOT", r"C:\Windows"), "System32", _WINDOWS_LIBRARY))  # noqa: PTH110, PTH118
    libraries = (*environment.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_LIBRARY_FOLDERS)
    shims = environment.get("PYTHONPATH", "").split(os.pathsep)
    candidates = [f"{folder}/{_LIBRARY}" for folder in libraries if folder]
    candidates += [f"{folder}/{name}" for folder in shims if folder for name in ("pynvml.py", "pynvml/__init__.py")]
    return any(os.path.exists(candidate) for candidate in candidates)  # noqa: PTH110


def run_child(deadline_seconds: float, environment: dict[str, str]) -> tuple[str, str | None]:
    """The child's output, and why it ended early: None, `timeout`, or a sentence."""
    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    command = [sys.executable, "-m", "probes.gpu.nvidia", str(deadline_seconds + 2 * _TERM_SECONDS)]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": os.pathsep.join([*paths, package_parent])},
            start_new_session=True,
        )
    except OSError as error:
        return "", f"the NVML process could not be started: {error.strerror}"
    try:
        output, _ = child.communicate(timeout=deadline_seconds)
    except subprocess.TimeoutExpired:
        return _end(child), "timeout"
    ending = None if child.returncode == 0 else _explain_ending(child.returncode)
    return output[:_MAX_OUTPUT_BYTES].decode("utf-8", "replace"), ending


def _end(child: "subprocess.Popen[bytes]") -> str:
    """TERM, then KILL, to the whole group; returns what was said. A child stuck in the driver is left behind."""
    for signal_name in ("SIGTERM", "SIGKILL"):
        _signal_group(child, signal_name)
        try:
            output, _ = child.communicate(timeout=_TERM_SECONDS)
        except subprocess.TimeoutExpired as expired:
            output = expired.output or b""
            continue
        break
    return (output or b"")[:_MAX_OUTPUT_BYTES].decode("utf-8", "replace")


def _signal_group(child: "subprocess.Popen[bytes]", name: str) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, getattr(signal, name))
        else:
            child.kill()
    except (ProcessLookupError, PermissionError):
        pass


def _explain_ending(code: int) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"NVML ended its process with {name}; look at the kernel log for Xid errors of the card"
    return f"the NVML process ended with code {code}"


def parse_output(output: str, ending: str | None) -> NvidiaReading:
    """Lines as the child writes them; others (a library that prints) are passed over."""
    header: dict[str, Any] = {}
    cards: list[Accelerator] = []
    for line in output.splitlines():
        document = _parse_line(line)
        if "card" in document:
            cards.append(Accelerator(**document["card"]))
        elif document:
            header |= document
    outcome, reason = _judge(header, ending)
    return NvidiaReading(outcome, reason, header.get("driver_version"), header.get("cuda_driver_version"), tuple(cards))


def _parse_line(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(document, dict):
        return {}
    card = document.get("card")
    if card is not None:
        names = set(Accelerator.__dataclass_fields__)
        if not isinstance(card, dict) or not isinstance(card.get("id"), str) or not set(card) <= names:
            return {}
        if isinstance(card.get("throttle_reasons"), list):
            card["throttle_reasons"] = tuple(card["throttle_reasons"])
    return document


def _judge(header: dict[str, Any], ending: str | None) -> tuple[Outcome, str | None]:
    if ending == "timeout":
        return Outcome.TIMEOUT, "NVML did not answer in time; the driver or a card hangs (try: nvidia-smi)"
    if ending is not None:
        return Outcome.FAILED, ending
    if "outcome" in header:
        return Outcome(header["outcome"]), header.get("reason")
    return (Outcome.OK, None) if header.get("done") else (Outcome.FAILED, "the NVML process said nothing")
