"""Steps of real processes, one a plan."""

from __future__ import annotations

import sys

import pytest

from benchmarks.truth import LEAST_PROCESSES, LEAST_STEPS, Truth, count_faults, measure_in_turns
from probes.microtrain.processes.fresh_processes import Fresh
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model

DENSE = {"layers": [{"type": "linear", "out": 300}, "relu", {"type": "linear", "out": 10}], "input_shape": [64]}

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@on_linux
def test_every_plan_has_its_turns_and_the_steps_it_needs() -> None:
    plans = [Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)]
    found = measure_in_turns(Workload(parse_model(DENSE), 32), plans, 0.1)
    assert [row.plan for row in found] == plans
    for row in found:
        assert row.outcome == "ok"
        assert row.batch_size == 32
        assert row.step is not None
        assert row.slow_share is not None
        assert row.steps >= LEAST_STEPS
        assert row.memory is not None
        assert (row.memory.process_bytes or 0) > 2**26


@on_linux
def test_pages_that_steps_find_fresh_are_counted() -> None:
    """What is larger than 32 MiB is mapped anew by every step and given back (mallopt(3)); small tensors stay."""
    wide = {"layers": [{"type": "linear", "out": 4096}], "input_shape": [8]}
    (mapped,) = measure_in_turns(Workload(parse_model(wide), 4096), [Plan("cpu", "fp32", 1)], 0.1)
    (kept,) = measure_in_turns(Workload(parse_model(DENSE), 4), [Plan("cpu", "fp32", 1)], 0.1)
    assert isinstance(mapped, Truth)
    assert isinstance(kept, Truth)
    largest_page = 2**21  # where the system gives huge pages
    assert (mapped.faults or 0) >= 4 * 4096 * 4096 / largest_page
    assert (kept.faults or 0) < 100


def test_nobody_counts_the_faults_of_a_process_that_is_gone() -> None:
    assert count_faults(None) is None
    assert count_faults(2**31 - 1) is None


@on_linux
def test_each_plan_has_one_process_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = [], Fresh.end
    monkeypatch.setattr(Fresh, "end", lambda fresh: (begun.append(fresh.pid), end(fresh)))
    plans = [Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)]
    found = measure_in_turns(Workload(parse_model(DENSE), 32), plans, 0.1)
    assert all(row.outcome == "ok" for row in found)
    assert len(set(begun)) >= LEAST_PROCESSES * len(plans)


@on_linux
def test_a_plan_that_fails_costs_the_others_nothing() -> None:
    plans = [Plan("cpu", "fp32", 0), Plan("cpu", "fp32", 1)]
    lost, fine = measure_in_turns(Workload(parse_model(DENSE), 4), plans, 0.1)
    assert lost.outcome == "failed"
    assert (lost.reason or "").startswith("cpu fp32, 0 threads: ")
    assert fine.outcome == "ok"


@on_linux
def test_what_a_plan_dies_of_is_told() -> None:
    model = {"layers": [{"type": "linear", "out": 3}], "input_shape": [2**17]}
    (lost,) = measure_in_turns(Workload(parse_model(model), 2**24), [Plan("cpu", "fp32", 1)], 0.1)  # 8 TiB of input
    assert lost.outcome == "failed"
    assert "cpu fp32, 1 thread: Memory ran out" in (lost.reason or "")


def test_a_device_s_plans_are_refused() -> None:
    with pytest.raises(RuntimeError, match="plans on a CPU"):
        measure_in_turns(Workload(parse_model(DENSE), 4), [Plan("cuda:0")], 0.1)
