"""Runs probes at once, each in a thread of its own with a deadline: a hang or an exception costs only itself."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from probes.hardware import Outcome, ProbeReport
from probes.reading import Unreadable, clean


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe found, and how it went; a probe that gives a reason beside a value says so itself."""

    value: Any
    report: ProbeReport


@dataclass(frozen=True, slots=True)
class Told:
    """A probe's value with an outcome of its own choosing, or with something to explain."""

    value: Any
    outcome: Outcome = Outcome.OK
    reason: str | None = None


_hanging: dict[tuple[str, str], threading.Thread] = {}  # what was left behind, so that surveys do not pile threads up


def run_probes(
    probes: Mapping[str, Callable[[], Any]], deadline_seconds: float, subject: str = ""
) -> dict[str, Answer]:
    """Every probe's answer, in the order given. `subject`: what is read; tells hanging threads apart."""
    answers: dict[str, Answer] = {}
    threads: dict[str, threading.Thread] = {}
    started = time.monotonic()
    for name, probe in probes.items():
        left_behind = _hanging.get((name, subject))
        if left_behind is not None and left_behind.is_alive():
            continue
        _hanging.pop((name, subject), None)
        thread = threading.Thread(target=_run, args=(name, probe, answers), name=f"probe-{name}", daemon=True)
        threads[name] = thread
        thread.start()
    for name, thread in threads.items():
        left = max(0.0, deadline_seconds - (time.monotonic() - started))
        thread.join(min(left, threading.TIMEOUT_MAX))
        if thread.is_alive():
            _hanging[(name, subject)] = thread
    finished = dict(answers)  # a thread that ends from here on is too late
    return {name: finished.get(name) or _timed_out(name, name in threads, deadline_seconds) for name in probes}


def _run(name: str, probe: Callable[[], Any], answers: dict[str, Answer]) -> None:
    started = time.perf_counter()
    told = _guard(probe)
    duration = time.perf_counter() - started
    answers[name] = Answer(told.value, ProbeReport(told.outcome, duration, told.reason))


def _guard(probe: Callable[[], Any]) -> Told:
    try:
        value = probe()
    except Unreadable as unreadable:
        return Told(None, unreadable.outcome, unreadable.reason)
    except PermissionError:
        return Told(None, Outcome.DENIED, "a file this probe needs may not be read by this user")
    except Exception as error:  # noqa: BLE001 - the promise of this module
        return Told(
            None, Outcome.FAILED, f"the probe failed: {type(error).__name__}: {clean(str(error)) or 'no detail'}"
        )
    return value if isinstance(value, Told) else Told(value)


def _timed_out(name: str, was_started: bool, deadline_seconds: float) -> Answer:
    reason = (
        f"no answer within {deadline_seconds:g} s; what it reads hangs"
        if was_started
        else "still waiting since an earlier survey; what it reads hangs"
    )
    return Answer(None, ProbeReport(Outcome.TIMEOUT, deadline_seconds if was_started else None, reason))
