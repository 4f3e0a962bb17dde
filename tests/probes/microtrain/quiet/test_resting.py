"""Who waits for a process to rest waits for as long as one of its threads holds a core."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from probes.microtrain.measuring.contest import Contest
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.quiet import resting
from probes.microtrain.quiet.resting import (
    LOOK_SECONDS,
    MOST_IN_VAIN,
    MOST_SECONDS,
    Rest,
    comes_to_rest,
    computes,
    leaves_threads,
)
from probes.workload.description import Plan

# A thread beside the main one, as a pool's, that computes until a line comes: without the interpreter's lock, for which
# it would sleep as long as the other has it.
PROGRAM = """
import hashlib, sys, threading
stop = False
def compute():
    while not stop: hashlib.pbkdf2_hmac("sha256", b"a", b"b", 20_000)
threading.Thread(target=compute).start()
print(flush=True)
sys.stdin.readline()
stop = True
print(flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        try:
            yield program
        finally:
            program.kill()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_thread_that_computes_is_waited_for_but_not_for_ever(
    process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(resting, "time", SimpleNamespace(perf_counter=lambda: now, sleep=sleep))
    assert computes(process.pid)
    assert not comes_to_rest(process.pid)
    assert MOST_SECONDS <= now < MOST_SECONDS + 2 * LOOK_SECONDS


def test_threads_that_never_sleep_are_waited_for_a_few_times_only(
    process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user's environment may have it: OMP_WAIT_POLICY=active."""
    rest = Rest()
    for _ in range(MOST_IN_VAIN):
        rest.wait_for(process.pid)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    rest.wait_for(process.pid)
    assert computes(process.pid)


def test_a_wait_that_ends_says_that_they_do_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [False] * (MOST_IN_VAIN - 1) + [True] + [False] * MOST_IN_VAIN
    left = iter(waits)
    monkeypatch.setattr(resting, "comes_to_rest", lambda process: next(left))
    rest = Rest()
    for _ in waits:
        rest.wait_for(None)
    assert next(left, None) is None
    rest.wait_for(None)  # and nobody asks again


def test_one_that_sleeps_is_not(process: subprocess.Popen[str]) -> None:
    say(process)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 10
    while computes(process.pid):
        assert time.monotonic() < deadline
    assert not computes(process.pid)


def test_the_thread_that_asks_does_not_wait_for_itself() -> None:
    asking = "import os; from probes.microtrain.quiet.resting import computes; print(computes(os.getpid()))"
    found = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_before_a_process_begins_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    assert comes_to_rest(None)


def test_what_has_ended_rests(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert not computes(process.pid)


@pytest.mark.parametrize(
    ("plan", "leaves"),
    [
        (Plan("cpu", "fp32", 1), False),
        (Plan("cpu", "fp32", 2), False),
        (Plan("cpu", "bf16", 3), True),
        (Plan("cpu", "fp32", None), True),
        (Plan("cuda:0", "fp32"), False),
    ],
)
def test_only_many_threads_are_in_anybodys_way(plan: Plan, leaves: bool) -> None:
    assert leaves_threads(plan) == leaves


def test_in_a_contest_everybody_rests_before_the_next_is_timed() -> None:
    now = 0.0
    heard: list[str] = []

    def entry(name: str) -> Entry:
        def run(executions: int) -> None:
            nonlocal now
            now += 0.001 * executions
            heard.append(name)

        return Entry(name, run, "all", rest=lambda: heard.append("rest"))

    Contest([entry("one"), entry("other")], 0.5, lambda: now).run()
    pairs = {(before, after) for before, after in itertools.pairwise(heard) if before != after}
    assert pairs == {("one", "rest"), ("other", "rest"), ("rest", "one"), ("rest", "other")}
