"""NVIDIA's cards as they change, from one long-lived NVML process that asks them a few questions each interval.

    watch = NvmlWatch(interval_seconds=1.0)
    watch.start()          # returns at once; does nothing where there is no driver, and looks again now and then
    watch.latest()         # Watched: never blocks, never raises
    watch.stop()           # ends the process; start() may follow

The process initialises NVML once, again after a card was lost or appeared, and ends when its parent does. Should it
crash or hang, another is started after a pause that doubles up to a minute. `latest()` then keeps giving the last
facts, with their growing age: whoever shows them decides what is too old.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from probes.gpu.child_process import child_environment, explain_ending, parse_documents, signal_group
from probes.gpu.nvml_process import MODULE, is_driver_present
from probes.hardware import Outcome

DYNAMIC_FIELDS = (
    "memory_total_bytes", "memory_free_bytes", "unified_memory", "utilization_percent", "temperature_celsius",
    "power_watts", "power_limit_watts", "graphics_clock_hz", "memory_clock_hz", "throttle_reasons", "throttle_codes",
    "usable", "why_not",
)  # fmt: skip
_TUPLES = ("throttle_reasons", "throttle_codes")
_CHECK_SECONDS = 0.5  # how soon an ended process is noticed
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_STEADY_SECONDS = 60.0  # a process that lived this long may be followed by another at once
_NO_DRIVER_SECONDS = 10.0  # how often to look whether there is a driver now
_SILENT_SECONDS = 30.0  # NVML may take several seconds to start on a machine of many cards
_END_SECONDS = 0.5  # each, for end of input, TERM and KILL
_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Watched:
    """What was last told of each card.

    cards: by Accelerator.id (a GPU's or MIG instance's UUID); each holds those of DYNAMIC_FIELDS that it told, by
    Accelerator's names (tuples as tuples, what is unknown None), and `process_count`. A lost card stays while the
    driver lists it, with `usable` False and `why_not`; one that does not answer has a `why_not` alone; one that went
    away is not there. A MIG instance tells its memory and processes only.
    age_seconds: since the last telling; None: nothing was told yet (no driver, or just started).
    reason: a sentence when NVML does not answer now; None when all is well or there is no driver.
    """

    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    age_seconds: float | None = None
    reason: str | None = None


class NvmlWatch:
    def __init__(self, interval_seconds: float = 1.0, environment: dict[str, str] | None = None) -> None:
        self._interval_seconds = interval_seconds
        self._environment = dict(os.environ) if environment is None else environment
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._keeper: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._cards: dict[str, dict[str, Any]] = {}
        self._told: float | None = None
        self._heard: float = 0.0
        self._reason: str | None = None

    def start(self) -> None:
        """Begins watching; a second call changes nothing."""
        with self._lock:
            if self._keeper is not None and self._keeper.is_alive() and not self._stopping.is_set():
                return
            self._stopping = threading.Event()
            self._keeper = threading.Thread(target=self._keep, args=(self._stopping,), name="nvml-watch", daemon=True)
            self._keeper.start()

    def latest(self) -> Watched:
        with self._lock:
            age = None if self._told is None else time.monotonic() - self._told
            return Watched(dict(self._cards), age, self._reason)

    def stop(self) -> None:
        """Ends the process and waits for it, two seconds at most; harmless when nothing runs."""
        with self._lock:  # not between a keeper's making and its start: it could not be waited for
            self._stopping.set()
            keeper = self._keeper
        if keeper is not None:
            keeper.join(4 * _END_SECONDS)

    def _keep(self, stopping: threading.Event) -> None:
        """Keeps one process running, with growing pauses where it does not last."""
        pause = _FIRST_PAUSE_SECONDS
        while not stopping.is_set():
            if not is_driver_present(self._environment):
                self._forget()
                stopping.wait(_NO_DRIVER_SECONDS)
                continue
            began = time.monotonic()
            if self._child is None or self._child.poll() is not None:  # one stuck in the driver is not followed
                self._run(stopping)
            lasted = time.monotonic() - began
            pause = _FIRST_PAUSE_SECONDS if lasted > _STEADY_SECONDS else pause
            stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _run(self, stopping: threading.Event) -> None:
        try:
            child = self._child = start_child(self._interval_seconds, self._environment)
        except (OSError, ValueError) as error:
            self._explain(f"the NVML process could not be started: {getattr(error, 'strerror', None) or error}")
            return
        self._heard = time.monotonic()
        listener = threading.Thread(target=self._listen, args=(child.stdout,), daemon=True)
        listener.start()
        while not stopping.wait(_CHECK_SECONDS) and child.poll() is None:
            if time.monotonic() - self._heard > max(_SILENT_SECONDS, 10 * self._interval_seconds):
                self._explain("NVML does not answer any more; the driver or a card hangs (try: nvidia-smi)")
                break
        code = child.poll()
        end_child(child)
        listener.join(_END_SECONDS)
        if code:
            self._explain(explain_ending("NVML", code))

    def _listen(self, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(_LINE_BYTES):
                for document in parse_documents(line.decode("utf-8", "replace")):
                    self._hear(document)

    def _hear(self, document: dict[str, Any]) -> None:
        self._heard = time.monotonic()
        cards = document.get("cards")
        if document.get("outcome") == Outcome.ABSENT:
            self._forget()
        elif "outcome" in document:
            self._explain(document.get("reason"))
        elif isinstance(cards, dict):
            with self._lock:
                self._cards = {name: parse_changes(facts) for name, facts in cards.items() if isinstance(facts, dict)}
                self._told, self._reason = self._heard, None

    def _forget(self) -> None:
        with self._lock:
            self._cards, self._told, self._reason = {}, None, None

    def _explain(self, reason: str | None) -> None:
        with self._lock:
            self._reason = reason


def parse_changes(facts: dict[str, Any]) -> dict[str, Any]:
    known = {name: facts[name] for name in (*DYNAMIC_FIELDS, "process_count") if name in facts}
    return {name: tuple(value) if name in _TUPLES and value is not None else value for name, value in known.items()}


def start_child(interval_seconds: float, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, "--watch", str(interval_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(environment),
        start_new_session=True,
    )


def end_child(child: "subprocess.Popen[bytes]") -> None:
    """End of input, then TERM, then KILL; one that is stuck in the driver is left behind."""
    if child.stdin is not None:
        child.stdin.close()
    for signal_name in ("SIGTERM", "SIGKILL", None):
        try:
            child.wait(_END_SECONDS)
            return
        except subprocess.TimeoutExpired:
            if signal_name is not None:
                signal_group(child, signal_name)
