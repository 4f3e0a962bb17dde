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
FEW_THREADS = 2  # of which one waits


def leaves_threads(plan: Plan) -> bool:
    """Whether so many wait after a turn of this plan that others would be slower for it."""
    return plan.is_cpu and (plan.threads or FEW_THREADS + 1) > FEW_THREADS


def wait_for_rest(process: int | None) -> float:
    """Until no thread of it runs but the one that asks; at most MOST_SECONDS. Seconds that it took."""
    begun = time.perf_counter()
    while process is not None and computes(process) and time.perf_counter() - begun < MOST_SECONDS:
        time.sleep(LOOK_SECONDS)
    return time.perf_counter() - begun


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
