"""Whose a stored job is: several services may keep their data in one folder, on one machine or on many."""

from __future__ import annotations

import contextlib
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.store.jobs import OWNER

# Of another machine's process nobody knows here whether it is there. A job of it that has not ended for so long has:
# as many measurements as wait by default, behind the one that runs, are over by then at their longest.
LONGEST_SECONDS = 5.5 * 3600
_ENDED = "ZXx"  # a zombie, dead (proc(5), the state in /proc/pid/stat)


def this_owner(machine: str) -> dict[str, Any]:
    """machine: its key in the store (app.store.machine)."""
    return {"machine": machine, "pid": os.getpid(), "started": _started(os.getpid())}


def may_run(stored: dict[str, Any], machine: str) -> bool:
    """Whether the process that a stored job belongs to may be at it. machine: this one's key."""
    owner = stored.get(OWNER) or {}
    if owner.get("machine") == machine:
        return is_alive(owner)
    return bool(owner) and _age_seconds(stored) < LONGEST_SECONDS


def is_alive(owner: dict[str, Any]) -> bool:
    """Of this machine."""
    started = owner.get("started")
    return started is not None and _started(owner.get("pid")) == started


def _started(pid: object) -> str | None:
    """When a process did, so that another of its number is told apart; None where there is none, or one that has ended
    and is waited for. By the kernel's ticks, which stand where the clock is set (proc(5), /proc/pid/stat)."""
    import psutil

    try:
        with contextlib.suppress(FileNotFoundError, IndexError):
            facts = Path(f"/proc/{int(str(pid))}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            return None if facts[0] in _ENDED else facts[19]
        process = psutil.Process(int(str(pid)))
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except (OSError, ValueError, psutil.Error):
        return None


def _age_seconds(document: dict[str, Any]) -> float:
    try:
        created = datetime.fromisoformat(str(document.get("created_at")))
        return abs((datetime.now(UTC) - created).total_seconds())
    except (ValueError, TypeError):
        return math.inf
