"""Plans in processes of their own: real ones, in turns, and what happens when one of them dies."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from probes.measurement import MemoryPeak
from probes.microtrain.failures import Failure
from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring import bench_process, contest
from probes.microtrain.measuring.bench_process import Ran
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.measuring.workbench import MAX_RING
from probes.microtrain.processes import fresh_processes
from probes.microtrain.quiet.resting import Rest
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
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
)

__all__ = ["brief", "ending", "faults", "prepared"]  # of every test here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

ALONE = """
from pathlib import Path
from probes.microtrain.processes import fresh_start
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.measuring.plan_processes import DENSE
run = StepRun(Workbench(DENSE, frozenset(["cpu"])), Plan("cpu", "fp32", 1), 8)
with run.watched():
    run(3)
print(run.memory().process_bytes)
"""


def test_each_plan_and_batch_has_a_process_of_its_own_and_all_of_a_measurement() -> None:
    rows, _ = measured(DENSE, ONE, BF16, sizes=(8, 32))
    assert [(row.plan, row.batch_size) for row in rows] == [(ONE, 8), (BF16, 8), (ONE, 32), (BF16, 32)]
    for row in rows:
        assert row.outcome == "ok"
        assert row.step is not None
        assert 0 < row.step.low <= row.step.median <= row.step.high
        assert row.steps >= 10
        assert row.startup_seconds is not None
        assert row.memory is not None
        assert (row.memory.process_bytes or 0) >= (row.memory.process_base_bytes or 0) > 0
    assert any(row.overheads is not None for row in rows)  # of as many as the time does for
    assert [row.denormal_share is not None for row in rows][2:] == [False, False]  # at the batch asked for alone
    assert any(row.denormal_share is not None for row in rows)


def test_a_process_answers_from_elsewhere_and_is_gone_when_dropped() -> None:
    run = PlanProcess(DENSE, Plan("cpu", "fp32", 2), 8, None)
    with run.watched():
        assert run(3) > 0
    assert run.seconds_to_start > 0
    pid = pid_of(run)
    assert pid != os.getpid()
    run.drop()
    assert not psutil.pid_exists(pid)
    run.drop()  # harmless


def test_a_plan_goes_on_in_another_process() -> None:
    run = PlanProcess(DENSE, ONE, 8, None)
    try:
        with run.watched():
            run(1)
        first = run.process.pid
        run.renew()
        assert run.process.pid != first
        assert not psutil.pid_exists(first or 0)
        assert run(2) > 0
        assert (run.memory().process_bytes or 0) > 2**26
    finally:
        run.drop()


def test_of_several_processes_the_largest_says_what_a_plan_takes() -> None:
    """Their heaps differ by chance, and each of them is as likely a user's."""
    run = PlanProcess(DENSE, ONE, 8, None)
    peaks = [MemoryPeak(790), MemoryPeak(), MemoryPeak(812), MemoryPeak(780)]
    run.process.ask = lambda *_: Ran(0.1, peaks.pop(0), None)  # type: ignore[method-assign]
    try:
        for _ in range(4):
            run(2)
        assert run.memory().process_bytes == 812
    finally:
        run.drop()


def test_plans_with_short_steps_have_several_processes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "is_precise", lambda entry: entry.process > 0)
    rows, session = measured(DENSE, ONE, BF16)
    assert all(row.outcome == "ok" for row in rows)
    for entry, row in zip(session._contest.entries, rows, strict=True):
        assert entry.process > 0
        assert row.memory is not None


def test_a_plan_s_threads_are_those_of_its_process() -> None:
    counts = {}
    for threads in (1, 2):
        run = PlanProcess(DENSE, Plan("cpu", "fp32", threads), 4096, None)
        run(20)
        counts[threads] = psutil.Process(pid_of(run)).num_threads()
        run.drop()
    assert counts[2] == counts[1] + 1


def test_what_one_plan_dies_of_costs_the_others_nothing(faults: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_process, "read_oom_kills", lambda _: 7)  # and not one more: somebody else killed it
    for target, word in (("raising", "the sentence"), ("killed", "not as the kernel killed it")):
        one, other = measured(of(f"{faults}:{target}"), ONE, BF16, sizes=(4,))[0]
        assert (one.plan, one.outcome) == (ONE, "ok")
        assert (other.plan, other.outcome) == (BF16, "failed")
        assert word in (other.reason or "")


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [(7, 8, "most likely for"), (7, 7, "and not as"), (None, 8, "perhaps"), (7, None, "perhaps")],
)
def test_what_ended_a_process_is_told_by_what_the_kernel_killed_meanwhile(
    before: int | None, after: int | None, word: str
) -> None:
    assert word in bench_process.say_ended(before, after)


def test_steps_that_were_run_ahead_are_told_when_they_are_asked_for() -> None:
    run = PlanProcess(DENSE, ONE, 8, None)
    ahead = [run.run_ahead(), run.run_ahead()]
    assert run.memory().process_bytes
    assert [run(1), run(1)] == ahead
    assert run(1) not in ahead
    run.drop()


def test_a_first_step_is_expected_to_be_longer_than_others() -> None:
    session = MeasureSession(job(DENSE, ONE, BF16), lambda share, message: None)
    one, other = session._contest.entries = session._make_entries()
    assert session._expect(other) is None
    one.first_seconds = 2.0
    assert session._expect(other) == pytest.approx(1.0)
    one.warm_seconds = 0.9
    assert session._expect(other) == pytest.approx(0.9)


def test_threads_of_a_plan_rest_before_the_next_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int | None] = []
    monkeypatch.setattr(Rest, "wait_for", lambda rest, process: waited.append(process))
    measured(DENSE, ONE, seconds=0.5)
    assert waited == []
    measured(DENSE, Plan("cpu", "fp32"), seconds=0.5)  # as many threads as torch takes; runs in this process
    assert set(waited) == {os.getpid()}


@pytest.mark.parametrize("apart", [True, False])
def test_no_process_is_left_of_a_model_that_is_none(*, apart: bool) -> None:
    odd = {"model_type": "bert", "hidden_size": 33, "num_attention_heads": 2}
    unknown = Workload(parse_model({"huggingface": odd, "task": "text-classification"}), 2)
    session = MeasureSession(job(unknown, ONE, apart=apart, memory_limit_bytes=2**34), lambda share, message: None)
    before = set(fresh_processes._living)  # another test's, which traced
    with pytest.raises(Failure) as failed:
        session.run()
    assert failed.value.code == "invalid-model"
    assert fresh_processes._living <= before


def test_what_weighs_too_much_is_refused_before_it_is_built() -> None:
    rows, session = measured(DENSE, ONE, BF16, apart=False, memory_limit_bytes=2**10)
    assert not session._runs
    assert {row.outcome for row in rows} == {"out-of-memory"}
    assert all("Weights and one batch" in (row.reason or "") for row in rows)


def test_where_nothing_can_be_forked_plans_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_processes, "is_prepared", lambda: False)
    rows, session = measured(DENSE, ONE, seconds=1.0)
    assert not any(isinstance(run, PlanProcess) for run in session._runs.values())
    assert [row.outcome for row in rows] == ["ok"]


def test_a_plan_whose_model_is_changed_runs_here() -> None:
    changed = Plan("cpu", "fp32", 1, channels_last=True)
    rows, session = measured(DENSE, changed, seconds=1.0)
    assert not any(isinstance(run, PlanProcess) for run in session._runs.values())
    assert [row.outcome for row in rows] == ["ok"]


def test_memory_is_that_of_a_process_which_imported_its_libraries_itself() -> None:
    """A fork's own resident set lacks what it has not touched of them: a third of all."""
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    alone = int(ran.stdout)
    run = PlanProcess(DENSE, ONE, 8, None)
    with run.watched():
        run(3)
    assert run.memory().process_bytes == pytest.approx(alone, rel=0.1)
    assert (run.memory().process_base_bytes or 0) <= (run.memory().process_bytes or 0)
    run.drop()


def test_a_model_that_is_none_is_the_user_s_to_mend(faults: str) -> None:
    with pytest.raises(Failure) as failed:
        measured(of(f"{faults}:nothing"), ONE, BF16)
    assert failed.value.code == "invalid-model"


def test_a_model_that_turns_its_batch_in_place_is_stepped_as_often_as_others(faults: str) -> None:
    rows, session = measured(of(f"{faults}:turning"), ONE, sizes=(4,))
    assert any(isinstance(run, PlanProcess) for run in session._runs.values())
    (row,) = rows
    assert row.outcome == "ok"
    assert row.steps > 2 * MAX_RING


def test_a_model_may_have_processes_of_its_own(faults: str) -> None:
    rows, session = measured(of(f"{faults}:with_workers"), ONE, seconds=6.0, sizes=(4,))
    assert any(isinstance(run, PlanProcess) for run in session._runs.values())
    assert [(row.outcome, row.reason) for row in rows] == [("ok", None)]


def test_where_what_forks_is_gone_plans_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise fresh_processes.EndedEarly

    monkeypatch.setattr(fresh_processes, "run_fresh", gone)
    rows, session = measured(DENSE, ONE, seconds=1.0)
    assert not any(isinstance(run, PlanProcess) for run in session._runs.values())
    assert [row.outcome for row in rows] == ["ok"]


def test_a_limit_of_memory_holds_there_too() -> None:
    """What is too large is refused by its own process."""
    run = PlanProcess(DENSE, ONE, 2**20, 2**20)
    with pytest.raises(Failure) as failed:
        run(1)
    assert failed.value.code == "out-of-memory"
    run.drop()
