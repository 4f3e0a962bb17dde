"""When each plan is measured in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.advisor.recommendation import Breakdown, Interval, MemoryParts, Option
from app.advisor.request import Request
from app.answering import measuring_time
from app.answering.apart import WANTED_STEPS, may_all_run_apart, may_run_apart, start_options
from app.service import Crosspoint
from probes.measurement import METHOD
from probes.microtrain.measuring import contest
from probes.microtrain.measuring.forking import LEAST_STEPS_APART
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, TWO
from tests.app.lab.programs import program
from tests.app.opened import with_crosspoint

GIB = 2**30
CUDA = Plan("cuda:0")
IRIS = Workload(parse_model("iris-mlp"), 64)
BERT = parse_model({"huggingface": {"model_type": "bert"}, "task": "text-classification"})


def an_option(plan: Plan, seconds: float | None, **memory: int | None) -> Option:
    step = None if seconds is None else Interval(seconds, seconds, seconds)
    parts = MemoryParts(**{"peak_bytes": GIB, "available_bytes": 8 * GIB, **memory})
    return Option(plan, True, None, "predicted", step, None, Breakdown(), parts, None)


def test_the_measuring_process_wants_as_many_steps() -> None:
    """Else one of the two decides alone, by whichever is more. The service imports nothing that imports torch."""
    assert WANTED_STEPS == LEAST_STEPS_APART


def test_the_measuring_process_calls_the_same_plans_slow() -> None:
    """Else the contest has time for plans that do not use it, or none for some that do."""
    assert measuring_time.SLOW == contest.SLOW


def test_where_memory_and_time_do_for_all() -> None:
    both, steps = [an_option(ONE, 0.02), an_option(TWO, 0.01)], WANTED_STEPS
    assert may_run_apart(both, 0.03 * steps)
    assert not may_run_apart(both, 0.029 * steps)
    assert may_run_apart([an_option(plan, 0.01, peak_bytes=2 * GIB) for plan in (ONE, TWO)], 10.0)
    assert not may_run_apart([an_option(plan, 0.01, peak_bytes=2 * GIB + 1) for plan in (ONE, TWO)], 10.0)


def test_large_batches_take_their_time_though_small_ones_are_asked_for_too() -> None:
    """Forty times as long is slow of a plan, and not of a batch size."""

    class Told:
        def options(self, size: int) -> list[Option]:
            return [an_option(plan, 0.05 * size) for plan in (ONE, TWO)]

    def may(sizes: list[int], steps_at: int) -> bool:
        return may_all_run_apart(Told(), (ONE, TWO), sizes, WANTED_STEPS * 0.1 * steps_at)  # type: ignore[arg-type]

    for sizes in ([1, 40], [40, 1], [40, 1, 40]):
        assert may(sizes, 41)
        assert not may(sizes, 40)


def test_what_a_device_runs_counts_neither_way() -> None:
    on_device = an_option(CUDA, 9.0, peak_bytes=100 * GIB)
    assert may_run_apart([on_device, an_option(ONE, 0.01)], 10.0)
    assert not may_run_apart([on_device], 1000.0)
    assert not may_run_apart([], 10.0)


def test_unknown_times_are_left_to_the_process_and_unknown_memory_is_too_much() -> None:
    assert may_run_apart([an_option(ONE, None)], 1.0)
    assert not may_run_apart([an_option(ONE, 0.01, available_bytes=None)], 10.0)
    assert not may_run_apart([an_option(ONE, 0.01, peak_bytes=None)], 10.0)
    before_any_measurement = {"peak_bytes": None, "allocated_peak_bytes": GIB}
    assert may_run_apart([an_option(ONE, None, **before_any_measurement)], 1.0)
    assert not may_run_apart([an_option(plan, None, **before_any_measurement) for plan in (ONE, TWO, ONE)], 1.0)


def test_what_forks_has_what_the_model_needs() -> None:
    assert start_options(IRIS) == ("--forks",)
    assert start_options(Workload(BERT, 2)) == ("--forks", "--configs")


def hearing(heard: Path) -> tuple[str, ...]:
    """Writes down each job with its command line; the steps take no time."""
    return program(
        "say(event='ready', torch='0', python='0', devices=[])",
        "for line in sys.stdin:",
        "    job = json.loads(line)",
        f"    print(json.dumps([sys.argv[1:], job.get('apart')]), file=open({str(heard)!r}, 'a'))",
        "    step = dict(median=1e-3, low=1e-3, high=1e-3, samples=[1e-3] * 9)",
        f"    row = dict(data='resident', outcome='ok', step=step, steps=90, method={METHOD})",
        "    rows = [dict(row, plan=p, batch_size=n) for n in job['batch_sizes'] for p in job['plans']]",
        "    say(event='result', job=job['job'], result=dict(measurements=rows, noise={}))",
    )


@pytest.mark.parametrize("fits", [True, False])
def test_the_measuring_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fits: bool) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if not fits:
        monkeypatch.setattr("app.answering.apart.MEMORY_SHARE", 0.0)
    heard = tmp_path / "heard"

    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.trace(IRIS)  # by the program's own tracer, which is real
        crosspoint.lab._program = hearing(heard)
        await crosspoint.recommend(Request(IRIS, effort="quick"))

    with_crosspoint(tmp_path, use)
    jobs: list[Any] = [json.loads(line) for line in heard.read_text(encoding="utf-8").splitlines()]
    assert jobs
    assert all(job[0][:-2] == ["--forks"] and job[1] == fits for job in jobs)
