"""What this process and all that it started computed while one of them measured: there it counts as others' load."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from app import labjobs
from app.lab.child import Child, OnEvent
from probes.own_time import read_own_ticks, read_ticks_of


async def run_without_own(
    child: Child, job: dict[str, Any], seconds: float, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """A `measure` job's result, whose noise and rows tell of others alone. seconds: its deadline. Raises LabError."""
    work = await asyncio.to_thread(OwnWork, child.pid)
    result = await child.run(job, seconds, on_event)
    return labjobs.without_own(result, await asyncio.to_thread(work.cores_beside, result.get("noise") or {}))


class OwnWork:
    """From when it is made. pid: of the process that measures."""

    def __init__(self, pid: int) -> None:
        self._begun = time.monotonic()
        self._pid = pid
        self._before = _read_seconds(pid)

    def cores_beside(self, noise: Mapping[str, Any]) -> float:
        """That it kept busy until now, on average, beside the process that measured; 0 where that is not known. noise:
        as told by that one, which may have ended."""
        measuring, now = noise.get("own_cpu_seconds"), _read_seconds(self._pid)
        if self._before is None or now is None or not isinstance(measuring, int | float):
            return 0.0
        beside = (now[0] - self._before[0]) - (measuring - self._before[1])
        return max(0.0, beside) / max(time.monotonic() - self._begun, 1e-9)


def _read_seconds(pid: int) -> tuple[float, float] | None:
    """Of CPU time, all and that process's with its children; None where others' is not told either."""
    if not sys.platform.startswith("linux"):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return read_own_ticks() / ticks, read_ticks_of(pid) / ticks
