"""Plans that share a process, where there is no room or time for one each, and when each has its own."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from probes.measurement import Measurement
from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring import contest, forking
from probes.microtrain.measuring.bench_process import BenchProcess
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.measuring.workbench import MAX_RING
from probes.workload.description import Plan
from tests.probes.microtrain.measuring.plan_processes import (
    BF16,
    DENSE,
    ONE,
    brief,
    ending,
    faults,
    job,
    measured,
    of,
    pid_of,
    prepared,
    processes_of,
)

__all__ = ["brief", "ending", "faults", "prepared"]  # of every test here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def test_a_model_that_takes_long_to_build_runs_in_one_process(faults: str) -> None:
    rows, session = measured(of(f"{faults}:slow_to_build"), ONE, BF16, seconds=1.0, sizes=(4, 8))
    assert len(processes_of(session)) == 1
    assert any(row.outcome == "ok" for row in rows)


def test_a_first_step_that_outlasts_all_the_time_is_told_as_one_though_no_plan_had_its_turn(faults: str) -> None:
    session = MeasureSession(job(of(f"{faults}:slow_to_step"), ONE, BF16), lambda share, message: None)
    running = threading.Thread(target=session.run)
    running.start()
    try:
        while not Path("stepping").exists():
            time.sleep(0.01)
        rows = [Measurement.from_json(row) for row in session.result()["measurements"]]
    finally:
        Path("enough").touch()
        running.join()
    assert [row.outcome for row in rows] == ["failed", "failed"]
    assert (rows[0].reason or "").startswith("One step was not done after")
    assert rows[1].reason == contest.NOT_BEGUN


@pytest.mark.parametrize(("seconds", "apart"), [(660.0, True), (540.0, False)])
def test_a_process_each_is_begun_where_the_time_does_for_the_others_of_them(
    monkeypatch: pytest.MonkeyPatch, *, seconds: float, apart: bool
) -> None:
    """What tells how long one takes has begun, and runs its own plan."""
    monkeypatch.setattr(forking, "_seconds_apart", lambda trial: (600.0, 0.01))
    wanted = forking.Wanted(DENSE, (ONE, BF16), (8,), None, time.perf_counter() + seconds)
    forks = forking.Forks(wanted)
    forks.begin(apart=True)
    assert forks.are_apart is apart
    forks.end()


def test_plans_share_a_process_where_there_is_no_room_for_more() -> None:
    plans = (ONE, BF16, Plan("cpu", "fp32", 2))
    rows, session = measured(DENSE, *plans, sizes=(8, 32), apart=False)
    assert len(processes_of(session)) == 1
    assert [(row.plan, row.batch_size) for row in rows] == [(plan, size) for size in (8, 32) for plan in plans]
    for row in rows:
        assert row.outcome == "ok"
        assert row.steps >= 2
        assert row.startup_seconds is not None
        assert row.memory is not None
        assert (row.memory.process_bytes or 0) >= (row.memory.process_base_bytes or 0) > 0


def test_in_a_shared_process_too_what_one_plan_dies_of_costs_the_others_nothing(faults: str) -> None:
    for target, word in (("raising", "the sentence"), ("killed", "ended before")):
        other, one = measured(of(f"{faults}:{target}"), BF16, ONE, sizes=(4,), apart=False)[0]
        assert (other.plan, other.outcome) == (BF16, "failed")
        assert word in (other.reason or "")
        assert (one.plan, one.outcome) == (ONE, "ok")


def test_threads_are_those_of_the_plan_that_runs() -> None:
    bench = BenchProcess(DENSE, None)
    one, two = (PlanProcess(DENSE, Plan("cpu", "fp32", count), 4096, None, bench) for count in (1, 2))
    one(20)
    before = psutil.Process(pid_of(one)).num_threads()
    two(20)
    assert psutil.Process(pid_of(one)).num_threads() == before + 1
    assert pid_of(one) == pid_of(two)
    two.drop()
    one(1)  # the process is still there
    bench.end()


def test_so_it_is_in_a_process_that_begins_in_the_place_of_one_that_died(faults: str) -> None:
    run = PlanProcess(of(f"{faults}:turning"), ONE, 4, None)
    with run.watched():
        run(1)
    run.process.end()
    run(3 * MAX_RING)
    run.drop()
