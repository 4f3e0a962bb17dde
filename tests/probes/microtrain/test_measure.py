"""Measurements of real steps by the real child, on models so small that they take no time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probes.measurement import Measurement
from probes.microtrain.failures import Failure
from probes.microtrain.feeding import NoPinnedMemory
from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring.contest import NOT_BEGUN
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.measured_rows import explain_outcome
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain import brief
from tests.probes.microtrain.pipes import Pipes

MLP = parse_model(
    {"layers": [{"type": "linear", "out": 32}, {"type": "relu"}, {"type": "linear", "out": 2}], "input_shape": [8]}
)
ONE, BF16 = Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)


def measure(
    child: Pipes, workload: Workload, *plans: Plan, seconds: float = brief.SECONDS, **fields: Any
) -> list[Measurement]:
    """By a child whose measurements are brief."""
    documents = [plan.to_json() for plan in plans]
    event = child.run(kind="measure", workload=workload.to_json(), plans=documents, seconds=seconds, **fields)
    assert event["event"] == "result", event
    assert set(event["result"]["noise"]) >= {"load_average", "steal_fraction", "spread", "busy", "reason"}
    return [Measurement.from_json(row) for row in event["result"]["measurements"]]


@pytest.fixture(scope="module")
def measured(child: Pipes) -> list[Measurement]:
    return measure(child, Workload(MLP, 16, log_every=3), ONE, BF16, batch_sizes=[16, 64])


def test_every_plan_is_measured_at_every_batch_size(measured: list[Measurement]) -> None:
    pairs = [(row.plan, row.batch_size) for row in measured]
    assert pairs == [(ONE, 16), (BF16, 16), (ONE, 64), (BF16, 64)]
    assert all(row.outcome == "ok" for row in measured)


def test_times_come_with_their_spread(measured: list[Measurement]) -> None:
    for row in measured:
        assert row.step is not None
        assert 0 < row.step.low <= row.step.median <= row.step.high
        assert row.steps >= len(row.step.samples) >= 1


def test_overheads_come_with_the_step(measured: list[Measurement]) -> None:
    """What they are made of: test_overheads.py."""
    found = [row.overheads for row in measured if row.overheads is not None]
    assert found
    for overheads in found:
        assert overheads.transfer_seconds == 0.0
        assert (overheads.launch_seconds or 0.0) > 0.0
        assert overheads.compute_seconds is not None


def test_memory_is_what_the_process_held(measured: list[Measurement]) -> None:
    for row in measured:
        assert row.memory is not None
        assert row.memory.process_base_bytes is not None
        assert row.memory.process_bytes is not None
        assert row.memory.process_bytes > 2**26  # torch alone is more
        assert row.memory.allocated_bytes is None


def test_a_plan_that_cannot_run_here_costs_only_itself(child: Pipes) -> None:
    crowd, elsewhere = Plan("cpu", "fp32", 9999), Plan("cuda:63", "fp32")
    unset = Plan("cpu", "fp32", 1, {"MALLOC_MMAP_THRESHOLD_": "1"})
    rows = measure(child, Workload(MLP, 4), crowd, elsewhere, unset, ONE)
    assert [row.outcome for row in rows] == ["unsupported", "unsupported", "unsupported", "ok"]
    assert "threads without a core" in (rows[0].reason or "")
    assert "no such device" in (rows[1].reason or "")
    assert "before the measuring process starts" in (rows[2].reason or "")


def test_a_plan_that_is_foretold_to_be_slow_has_what_time_the_others_leave(child: Pipes) -> None:
    too_slow = 2 * brief.SECONDS
    slow, fast = measure(child, Workload(MLP, 4), BF16, ONE, expected_seconds=[too_slow, 1e-3])
    assert fast.outcome == "ok"
    assert slow.outcome == "failed"
    assert f"One step was expected to take {too_slow:.0f} s" in (slow.reason or "")
    rows = measure(child, Workload(MLP, 4), BF16, ONE, expected_seconds=[1e-2, 1e-3])
    assert [row.outcome for row in rows] == ["ok", "ok"]
    rows = measure(child, Workload(MLP, 4), BF16, ONE, expected_seconds=[too_slow, None])
    assert [row.outcome for row in rows] == ["ok", "ok"]  # nothing to compare it with


@pytest.mark.parametrize("expected", [[1.0], [1.0, 0.0], [1.0, "soon"], {"cpu": 1.0}])
def test_times_foretold_that_are_none_are_refused(child: Pipes, expected: object) -> None:
    plans = [ONE.to_json(), BF16.to_json()]
    event = child.run(
        kind="measure", workload=Workload(MLP, 4).to_json(), plans=plans, seconds=1.0, expected_seconds=expected
    )
    assert (event["event"], event["code"]) == ("failed", "invalid-job")


def test_what_cannot_fit_is_refused_before_anything_is_taken(child: Pipes) -> None:
    wide = parse_model(
        {"layers": [{"type": "linear", "out": 1_000_000}, {"type": "linear", "out": 1_000_000}], "input_shape": [8]}
    )
    (row,) = measure(child, Workload(wide, 4), ONE, memory_limit_bytes=2**33)
    assert row.outcome == "out-of-memory"
    assert "8.0 GiB may be used" in (row.reason or "")


def test_a_model_that_cannot_be_built_on_the_host_is_measured_on_no_device() -> None:
    wide = parse_model({"layers": [{"type": "linear", "out": 1_000_000}], "input_shape": [8]})  # 36 MB
    job = MeasureJob(Workload(wide, 4, mode="inference"), (ONE, Plan("cuda:0")), (4,), 0.5, 2**24)
    with pytest.raises(Failure, match="of the host's memory may be used") as failure:
        MeasureSession(job, lambda *_: None).run()
    assert failure.value.code == "out-of-memory"


@pytest.mark.parametrize(("forked", "devices"), [(True, {"cuda:0"}), (False, {"cpu", "cuda:0"})])
def test_a_model_stays_on_the_host_only_for_plans_that_run_in_this_process(
    monkeypatch: pytest.MonkeyPatch, forked: bool, devices: set[str]
) -> None:
    class Forks:
        def end(self) -> None: ...

    session = MeasureSession(MeasureJob(Workload(MLP, 16), (ONE, Plan("cuda:0")), (16,), 0.5, None), lambda *_: None)
    monkeypatch.setattr(session, "_fork", Forks if forked else lambda: None)
    monkeypatch.setattr(session, "_make_entries", list)
    session.run()
    assert session._bench.devices == devices


def test_running_out_of_memory_costs_only_that_batch(child: Pipes) -> None:
    wide = parse_model(
        {
            "layers": [{"type": "linear", "out": 4096}, {"type": "relu"}, {"type": "linear", "out": 2}],
            "input_shape": [1],
        }
    )
    small, large = measure(child, Workload(wide, 4), ONE, batch_sizes=[4, 500_000], memory_limit_bytes=2**30)
    assert (small.outcome, large.outcome) == ("ok", "out-of-memory")
    assert "Memory ran out" in (large.reason or "")


def test_a_batch_that_the_model_refuses_costs_only_that_batch(child: Pipes) -> None:
    norm = parse_model({"layers": [{"type": "batch_norm"}, {"type": "linear", "out": 2}], "input_shape": [8]})
    alone, two = measure(child, Workload(norm, 2), ONE, batch_sizes=[1, 2])
    assert alone.outcome == "failed"
    assert "more than 1 value" in (alone.reason or "")
    assert two.outcome == "ok"


def test_without_time_one_plan_still_has_its_step(child: Pipes) -> None:
    rows = measure(child, Workload(MLP, 4), BF16, ONE, seconds=1e-6)
    assert sorted(row.outcome for row in rows) == ["failed", "ok"]
    (ran,) = (row for row in rows if row.outcome == "ok")
    assert ran.plan == ONE  # fp32 first: some processors take dozens of times as long for bf16
    assert ran.steps == 1
    assert ran.memory is not None
    assert ran.memory.process_base_bytes is not None
    assert ran.memory.process_bytes is None  # no peak: in a first step the optimizer has no state yet
    assert not ran.steady
    assert ran.startup_seconds is None
    (late,) = (row for row in rows if row.outcome == "failed")
    assert "time was over" in (late.reason or "")


def test_a_first_step_is_waited_for_half_a_minute_beyond_the_time() -> None:
    begun = time.perf_counter()
    session = MeasureSession(MeasureJob(Workload(MLP, 16), (ONE,), (16,), 1.0, None), lambda *_: None)
    assert not session.is_overdue(begun + 30.9)
    assert session.is_overdue(time.perf_counter() + 31.1)


def test_what_was_never_begun_is_not_said_to_have_run() -> None:
    never, stuck = Entry("never", lambda executions: None), Entry("stuck", lambda executions: None)
    assert explain_outcome(never, 69.0, begun=False) == ("failed", NOT_BEGUN)
    assert explain_outcome(stuck, 69.0, begun=True)[1].startswith("One step was not done after 69 s.")


def test_a_host_without_memory_to_pin_is_no_device_without_memory() -> None:
    short = Entry("short", lambda executions: None)
    short.error = NoPinnedMemory("The host had no 8 MB of pinned memory.")
    assert explain_outcome(short, 1.0, begun=True, on_cpu=False) == ("failed", "The host had no 8 MB of pinned memory.")


def test_where_the_time_is_over_before_the_model_is_built_every_plan_says_so() -> None:
    session = MeasureSession(MeasureJob(Workload(MLP, 16), (ONE, BF16), (16, 64), 0.5, None), lambda *_: None)
    rows = [Measurement.from_json(row) for row in session.result()["measurements"]]
    assert [(row.plan, row.batch_size) for row in rows] == [(ONE, 16), (BF16, 16), (ONE, 64), (BF16, 64)]
    assert all(row.outcome == "failed" and "was not built" in (row.reason or "") for row in rows)


def test_inference_is_measured_without_an_optimizer(child: Pipes) -> None:
    (row,) = measure(child, Workload(MLP, 4, mode="inference"), ONE)
    assert row.outcome == "ok"


def test_without_plans_every_sensible_one_is_measured(child: Pipes) -> None:
    plans = {row.plan.key: row.plan for row in measure(child, Workload(MLP, 4))}.values()
    assert {plan.precision for plan in plans if plan.is_cpu} == {"fp32", "bf16"}
    assert 1 in {plan.threads for plan in plans}


def test_a_measurement_says_how_many_cores_others_held(measured: list[Measurement]) -> None:
    held = {row.others_cores for row in measured}
    assert len(held) == 1
    assert all(cores is None or cores >= 0 for cores in held)


def test_one_job_measures_one_layout(child: Pipes) -> None:
    last = Plan("cpu", "fp32", 1, channels_last=True)
    plain, refused = measure(child, Workload(MLP, 4), ONE, last)
    assert (plain.outcome, refused.outcome) == ("ok", "unsupported")
    assert "job of their own" in (refused.reason or "")
    (alone,) = measure(child, Workload(MLP, 4), last)
    assert (alone.outcome, alone.plan) == ("ok", last)


def test_a_batch_that_memory_does_for_once_is_measured(child: Pipes) -> None:
    """A training loop holds one. Of two, which the measuring would hold, the limit does for one and a half."""
    flat = parse_model({"layers": [{"type": "linear", "out": 1}], "input_shape": [1000]})
    size, limit = 100_000, 600 * 10**6
    (row,) = measure(child, Workload(flat, size), ONE, seconds=1.0, batch_sizes=[size], memory_limit_bytes=limit)
    assert (row.outcome, row.reason) == ("ok", None)


def test_what_a_step_trains_counts_where_a_trace_has_told_it() -> None:
    """A model does not: parts of it may get no gradient."""
    job = MeasureJob(Workload(MLP, 16), (ONE,), (16,), 0.5, 2**20)
    assert len(MeasureSession(job, lambda *_: None)._make_entries()) == 1
    told = MeasureSession(replace(job, gradient_bytes=2**19, optimizer_bytes=2**20), lambda *_: None)
    assert told._make_entries() == []
    (row,) = told._refused
    assert row.outcome == "out-of-memory"
    assert (row.reason or "").startswith("Weights, gradients, optimizer state and one batch alone take 0.0 GiB")


def test_a_batch_that_cannot_be_made_costs_only_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, too, where no plan is forked, as of devices alone."""
    program = """
import random, torch

def few_rows():
    rows = torch.randn(500, 4)
    def make_batch(size):
        return rows[random.sample(range(500), size)], torch.zeros(size, dtype=torch.long)
    return torch.nn.Linear(4, 2), make_batch
"""
    (tmp_path / "few_rows_to_sample.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    workload = Workload(python_model("few_rows_to_sample:few_rows"), 64)
    session = MeasureSession(MeasureJob(workload, (ONE,), (64, 1024), 0.5, 2**40), lambda *_: None)
    entries = session._make_entries()
    assert [session._runs[id(entry)].batch_size for entry in entries] == [64, 1024]
    with pytest.raises(ValueError, match="larger than population"):
        entries[1].run(1)
