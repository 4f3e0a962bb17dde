"""What we computed ourselves while a process of ours measured, and what that process took for others': real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.answering.own_work import OwnWork
from probes.own_time import read_ticks_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")

SECONDS = 0.3  # of CPU time
SPIN = f"""
import time
input()
while time.process_time() < {SECONDS}: pass
print(time.process_time(), flush=True)
input()
"""


@contextmanager
def spinning() -> Iterator[subprocess.Popen[str]]:
    """Begins when it is sent a line, and says so when it has computed that long."""
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.communicate("\n")


def spin(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def test_what_another_process_of_ours_computed_is_ours_and_what_measured_is_not() -> None:
    with spinning() as measuring, spinning() as tracing:
        work, begun = OwnWork(measuring.pid), time.monotonic()
        seconds = spin(measuring)
        spin(tracing)
        cores = work.cores_beside({"own_cpu_seconds": seconds})
        found = cores * (time.monotonic() - begun)
    assert SECONDS - 0.1 < found < SECONDS + 0.15


def test_it_is_known_where_the_process_that_measured_has_ended() -> None:
    with spinning() as measuring:
        work, begun = OwnWork(measuring.pid), time.monotonic()
        seconds = spin(measuring)
    assert read_ticks_of(measuring.pid) == 0
    assert work.cores_beside({"own_cpu_seconds": seconds}) * (time.monotonic() - begun) < 0.15


def test_where_the_process_does_not_say_what_it_used_nothing_is_ours() -> None:
    work = OwnWork(os.getpid())
    assert (work.cores_beside({}), work.cores_beside({"own_cpu_seconds": None})) == (0.0, 0.0)
