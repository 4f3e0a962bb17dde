"""What a real process holds while it trains, in one of its own, against what its trace says."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections import Counter, defaultdict
from statistics import median

import pytest

from app.advisor.memory_model.memory import activation_peaks, step_peaks
from app.advisor.memory_model.peaks import Peaks
from probes.allocations import Allocations
from probes.heap_peaks import MOST_HEAPS, HeapCurves, heap_curves
from probes.heap_steps import Simulation, Step
from probes.microtrain.tracing import trace_workload
from probes.trace import Affine, Trace
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.probes.small_pages import SMALL_PAGES

BLOCK = {"type": "transformer_encoder_layer", "heads": 4, "feedforward": 1024, "dropout": 0.1}
ENCODER = {
    "layers": [
        {"type": "embedding", "in": 500, "out": 256},
        BLOCK,
        BLOCK,
        BLOCK,
        BLOCK,
        "mean",
        {"type": "linear", "out": 3},
    ],
    "input_shape": [48],
}
BATCH = 96
MIB = 2**20

# The peak of what is resident over four steps, beyond what was before them; the batch and the state are made meanwhile.
# A step of one sample comes first: what libraries load and keep is not the heap's.
REAL = """
import json, sys
import torch
from probes.microtrain.processes.footprint import read_peak_bytes, read_resident_bytes
from probes.microtrain.models import build_model
from probes.microtrain.step import make_optimizer, make_step
from probes.workload.description import Plan, Workload

job = json.load(sys.stdin)
workload = Workload.from_json(job)
torch.set_num_threads(1)
make_optimizer("sgd", torch.nn.Linear(1, 1))  # torch imports its compiler with the first one
first = build_model(workload.model)
make_step(first, [first.make_batch(1, None)], Plan("cpu"), mode=workload.mode, optimizer=workload.optimizer,
          data="resident")()
del first
built = build_model(workload.model)
before = read_resident_bytes()
step = make_step(built, [built.make_batch(workload.batch_size, None)], Plan("cpu"), mode=workload.mode,
                 optimizer=workload.optimizer, data="resident")
for _ in range(4):
    step()
print(read_peak_bytes() - before)
"""

# What a step finds fresh of the system, on average.
FAULTS = f"""{SMALL_PAGES}
import json, sys
import torch
from probes.microtrain.processes.footprint import count_page_faults
from probes.microtrain.models import build_model
from probes.microtrain.step import make_step
from probes.workload.description import Plan, Workload

workload = Workload.from_json(json.load(sys.stdin))
torch.set_num_threads(1)
built = build_model(workload.model)
step = make_step(built, [built.make_batch(workload.batch_size, None)], Plan("cpu"), mode=workload.mode,
                 optimizer=workload.optimizer, data="resident")
for _ in range(3):
    step()
before = count_page_faults()
for _ in range(5):
    step()
print((count_page_faults() - before) * 4096 / 5)
"""

on_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library: its rules are not simulated"
)


def traced(model: dict[str, object], batch: int = BATCH) -> tuple[Workload, Trace]:
    workload = Workload(parse_model(model), batch)
    return workload, trace_workload(workload)


@on_glibc
def test_a_real_process_holds_what_the_trace_says() -> None:
    """By the median of three processes: where freed blocks lie differs from one to the next."""
    workload, trace = traced(ENCODER)
    run = [sys.executable, "-c", REAL]
    sent = json.dumps(workload.to_json())
    took = [int(subprocess.run(run, input=sent, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    plan = Plan("cpu")
    kept = trace.gradient_bytes + trace.optimizer_bytes
    alive = kept + activation_peaks(trace, plan).at(BATCH)
    held = kept + step_peaks(trace, plan).at(BATCH)
    assert median(took) > 1.2 * alive  # by as much it would be too low
    assert held == pytest.approx(median(took), rel=0.2)


@on_glibc
def test_tensors_that_are_mapped_one_by_one_leave_nothing() -> None:
    _, trace = traced(ENCODER)
    shares = {
        size: step_peaks(trace, Plan("cpu")).at(size) / activation_peaks(trace, Plan("cpu")).at(size)
        for size in (96, 4000)
    }
    assert shares[96] > 1.2
    assert shares[4000] < 1.05


@on_glibc
def test_bf16_has_a_curve_of_its_own_and_both_grow_in_batch_size() -> None:
    _, trace = traced(ENCODER)
    for knots in (trace.heap_surplus, trace.autocast_heap_surplus):
        sizes = [knot.batch_size for knot in knots]
        assert sizes == sorted(set(sizes))
        assert knots[-1].bytes == knots[-2].bytes
    assert trace.heap_surplus != trace.autocast_heap_surplus


def test_without_the_order_of_allocations_nothing_is_said() -> None:
    assert heap_curves(None) == HeapCurves()


def test_what_is_mapped_by_itself_is_fresh_in_every_step() -> None:
    """A block above 32 MiB: the system's again as soon as it is freed."""
    line = Affine(0.0, 40.0 * MIB)
    fresh = heap_curves(Step(Allocations((line,), 0, (0, 1)), (0, 0))).fresh
    assert [knot.batch_size for knot in fresh[:3]] == [1, 2, 4]
    for knot in fresh:
        assert knot.bytes == pytest.approx(knot.batch_size * 40 * MIB, rel=0.01)


@on_glibc
def test_a_real_process_faults_as_often_as_the_trace_says() -> None:
    """A table's gradient and what Adam makes of it are mapped anew in every step: 60,000 rows of 256 numbers."""
    layers = [{"type": "embedding", "in": 60_000, "out": 256}, "mean", {"type": "linear", "out": 3}]
    workload, trace = traced({"layers": layers, "input_shape": [16]}, 4)
    run = subprocess.run(
        [sys.executable, "-c", FAULTS], input=json.dumps(workload.to_json()), capture_output=True, text=True, check=True
    )
    told = Peaks(knots=trace.heap_fresh).at(4)
    assert told > 150 * MIB
    assert told == pytest.approx(float(run.stdout), rel=0.2)


@on_glibc
def test_a_small_step_finds_nothing_fresh_once_it_has_run_for_a_while() -> None:
    layers = [
        {"type": "linear", "out": 128},
        "relu",
        {"type": "linear", "out": 64},
        "relu",
        {"type": "linear", "out": 1},
    ]
    model = parse_model({"layers": layers, "input_shape": [30]})
    workload = Workload(model, 1024, mode="inference")
    told = Peaks(knots=trace_workload(workload).heap_fresh).at(1024)
    later = FAULTS.replace("range(3)", "range(200)").replace("range(5)", "range(50)").replace("/ 5)", "/ 50)")
    run = subprocess.run(
        [sys.executable, "-c", later],
        input=json.dumps(workload.to_json()),
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(run.stdout) < 2**15
    assert told < 2**15


def test_a_step_of_few_allocations_is_simulated_in_several_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: defaultdict[int, set[int]] = defaultdict(set)

    class Watched(Simulation):
        def __init__(self, step: Step, batch_size: int, seed: int = 0) -> None:
            seeds[batch_size].add(seed)
            super().__init__(step, batch_size, seed)

    monkeypatch.setattr("probes.heap_peaks.Simulation", Watched)
    line = Affine(0.0, MIB / 4)
    for count, heaps in ((20, MOST_HEAPS), (2000, 1)):
        seeds.clear()
        order = [event for made in range(1, count + 1) for event in (0, made)]
        heap_curves(Step(Allocations((line,) * count, 0, tuple(order)), (0, 0)))
        assert len(seeds[64]) == heaps
        assert seeds[64].isdisjoint(seeds[128])


def test_a_step_of_very_many_allocations_is_not_simulated_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a loop over tokens in Python: an RWKV of two layers makes 25,000 tensors a step."""
    steps: Counter[int] = Counter()  # by the simulated batch size

    class Counting(Simulation):
        def __init__(self, step: Step, batch_size: int, seed: int = 0) -> None:
            self.batch_size = batch_size
            super().__init__(step, batch_size, seed)

        def step(self) -> None:
            steps[self.batch_size] += 1

    monkeypatch.setattr("probes.heap_peaks.Simulation", Counting)
    ran = {}
    for count in (900, 6000):
        steps.clear()
        order = [event for made in range(1, count + 1) for event in (0, made)]
        heap_curves(Step(Allocations((Affine(64.0, 0.0),) * count, 0, tuple(order)), (0, 0)))
        ran[count] = count * steps.total()
        assert 1 in steps
    assert ran[6000] < ran[900] / 4
