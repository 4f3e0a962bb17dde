"""Waits until the threads of a process that has had its turn leave the cores to the next.

A thread of OpenMP that has done its part of the work goes on asking for more, on a core of its own, for as long as its
library thinks worth it, and sleeps only then (libgomp: after 300,000 looks, 6.5 ms on an EPYC (Zen 3), and as many
times longer as a processor's pause is). A user's process has its cores to itself; where plans take turns, one of
sixteen threads would still hold all sixteen cores while the next is timed. On such a machine (16 cores of a Xeon, where
two threads had two thirds of one's pace each) `quick` told 1.2 ms of a step on one thread that took 0.46 by itself, and
2.2 of one on an H100 that took 1.1. A single waiting thread of two on two cores changed nothing that could be seen.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from probes.workload.description import Plan

LOOK_SECONDS, MOST_SECONDS = 0.001, 0.05
MOST_IN_VAIN = 3  # waits in a row
FEW_THREADS = 2  # of which one waits


def leaves_threads(plan: Plan) -> bool:
    """Whether so many wait after a turn of this plan that others would be slower for it."""
    return plan.is_cpu and (plan.threads or FEW_THREADS + 1) > FEW_THREADS


class Rest:
    """One measurement's waits. Threads may be told never to sleep (OMP_WAIT_POLICY=active): after some waits in vain
    nobody waits any more, or every turn would be the longer for nothing."""

    def __init__(self) -> None:
        self._in_vain = 0  # the last ones, in a row

    def wait_for(self, process: int | None) -> None:
        if self._in_vain < MOST_IN_VAIN:
            self._in_vain = 0 if comes_to_rest(process) else self._in_vain + 1


def comes_to_rest(process: int | None) -> bool:
    """Waits until no thread of it runs but the one that asks, at most MOST_SECONDS; whether that was so."""
    end = time.perf_counter() + MOST_SECONDS
    while process is not None and computes(process):
        if time.perf_counter() >= end:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def computes(process: int) -> bool:
    """Whether a thread of it is running, or waits for a core to run on; False where nobody tells (/proc is Linux's, and
    a process that has ended has none)."""
    asking = str(threading.get_native_id())
    try:
        with os.scandir(f"/proc/{process}/task") as threads:
            return any(thread.name != asking and _runs(thread.path) for thread in threads)
    except OSError:
        return False


def _runs(thread: str) -> bool:
    """proc_pid_stat(5): the state follows the name, which is in parentheses and may hold some."""
    try:
        return Path(thread, "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except (OSError, IndexError):
        return False
