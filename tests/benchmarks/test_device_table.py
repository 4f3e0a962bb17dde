"""What a real card took, told anew by the code that is here: an NVIDIA H200's steps, memory and operations."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from app.advisor.operation_prices.device_operations import on_device, same_kernel
from app.advisor.recommendation import Interval
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.features import _sized
from app.advisor.time_model.step_estimate import StepEstimate
from app.lessons import MOST_WORKLOADS
from app.store.lessons import LessonRow
from benchmarks.device_between import leave_out
from benchmarks.device_steps import (
    NOT_CLOCKED,
    Step,
    error,
    experience_for,
    of_other_models,
    read,
    read_profile,
    read_steps,
    tell,
)
from benchmarks.device_table import CHOOSERS, DEFAULT, _chosen, crossing, print_decisions, print_steps
from benchmarks.workloads import WORKLOADS
from probes.microtrain.tracing import trace_workload
from probes.signature import Signature, signature_of
from probes.trace import Operation, Trace, _operation_from_row
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, a_workload

H200 = Path(benchmarks.__file__).parent / "results" / "2026-11-26-nvidia-h200-xeon-16-cores"
# Of the families of the table, what is traced in a second or two.
NAMES = ("iris", "dense deep", "image plain", "lstm", "gru", "encoder", "roberta inference")
HEAVY = ("attention", "convolution", "matmul", "recurrent")
Document = dict[str, Any]


@pytest.fixture(scope="module")
def truth() -> list[Document]:
    found: list[Document] = read(H200, "truth")
    return found


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    rows = {row.name: row for row in WORKLOADS}
    return {name: trace_workload(rows[name].workload(), devices=True) for name in NAMES}


@pytest.fixture(scope="module")
def steps(truth: list[Document], traces: dict[str, Trace]) -> list[Step]:
    return tell(read_steps(truth, "device"), read_profile(H200), traces)


def counted(operations: list[Operation]) -> tuple[int, Counter[str]]:
    """All, and those of heavy kinds by name."""
    rows = [(same_kernel(_sized(each, 8)), each.count) for each in operations]
    heavy: Counter[str] = Counter()
    for each, times in rows:
        if each.kind in HEAVY:
            heavy[each.name] += times
    return sum(times for _, times in rows), heavy


@pytest.mark.parametrize("name", NAMES)
def test_a_step_traced_for_a_device_runs_what_the_card_ran(
    name: str, truth: list[Document], traces: dict[str, Trace]
) -> None:
    """But for the batch's own copies, some views, and copies of weights that cuDNN wants in a row."""
    ran = next(row for row in truth if row["name"] == name and row["operations"])["operations"]
    trace = traces[name]
    for precision, within in (("fp32", 0.05), ("bf16", 0.3 if name in ("lstm", "gru") else 0.05)):
        operations = on_device(trace.on(cpu=False).operations_under(precision), trace.parameter_tensors)
        told, heavy = counted(operations)
        true, truly = counted([_operation_from_row(row) for row in ran[precision]])
        assert told == pytest.approx(true, rel=within, abs=5)
        assert heavy == truly


def test_memory_at_the_peak_is_what_the_card_allocated(steps: list[Step]) -> None:
    """What kernels of recurrent layers and of convolutions take inside is not known."""
    rows = [(step, step.allocated, step.memory) for step in steps if step.family in ("dense", "attention", "text")]
    assert len({step.plan.key for step, _, _ in rows}) == 4
    for step, told, memory in rows:
        assert told is not None
        assert memory is not None
        assert told == pytest.approx(memory[0], rel=0.1), step


def test_a_step_is_told_and_so_is_who_limits_it(steps: list[Step]) -> None:
    errors = sorted(abs(error(step.told["instant"].median, step.seconds)) for step in steps)
    assert errors[len(errors) // 2] < math.log(2)
    small = [step for step in steps if step.workload == "iris"]
    assert {step.side for step in small} == {"issuing"}
    assert all(step.computing < 0.5 * step.told["instant"].median for step in small)


def test_a_batch_between_two_that_ran_is_told_by_the_clock_that_limits_it(
    truth: list[Document], traces: dict[str, Trace]
) -> None:
    """One that issuing limits was told as up to twice what it took, by what the kernels of a larger one took."""
    recurrent = [step for step in read_steps(truth, "device") if step.workload in ("lstm", "gru")]
    told = [row for row in leave_out(recurrent, read_profile(H200), traces) if len(row.ran) == 2]
    assert len(told) == 8  # each in four precisions
    assert max(abs(error(row.told.median, row.step.seconds)) for row in told) < math.log(1.15)
    assert all(row.held for row in told)


def test_what_other_models_took_brings_the_estimates_nearer(steps: list[Step]) -> None:
    def off(who: str) -> float:
        return sum(abs(error(step.told[who].median, step.seconds)) for step in steps)

    assert off("learned") < off("instant")


@pytest.mark.parametrize(
    ("seconds", "batch_size"),
    [
        ({1: (1.0, 4.0), 4: (2.0, 4.0), 16: (8.0, 4.0), 64: (32.0, 4.0)}, 8.0),
        ({1: (8.0, 4.0), 4: (2.0, 4.0), 16: (8.0, 4.0)}, 8.0),  # not the first time, but for good
        ({1: (8.0, 4.0), 4: (9.0, 4.0)}, 0.0),
        ({1: (8.0, 4.0), 4: (3.0, 4.0)}, None),
    ],
)
def test_a_crossing_is_where_it_stays(seconds: dict[int, tuple[float, float]], batch_size: float | None) -> None:
    assert crossing(seconds) == (None if batch_size is None else pytest.approx(batch_size))


def a_lesson(name: str, signature: Signature) -> LessonRow:
    return LessonRow(name, (name, "training", "adamw", ""), None, ONE, "pageable", 8, 1.1, signature, 1.0, "")


def test_the_same_network_in_the_other_mode_teaches_nothing() -> None:
    signature = signature_of(trace_of_summary(a_workload()), 8)
    assert signature is not None
    rows = [a_lesson(name, signature) for name in ("tabular", "tabular inference", "iris")]
    assert [row.workload_key for row in of_other_models(rows, "tabular inference")] == ["iris"]
    assert [row.workload_key for row in of_other_models(rows, "iris")] == ["tabular", "tabular inference"]


def test_of_very_many_other_models_the_nearest_teach_as_they_would_a_service() -> None:
    trace = trace_of_summary(a_workload())
    same = signature_of(trace, 16)
    assert same is not None
    apart = [replace(same, log_step=same.log_step + 0.1 * number) for number in range(30)]
    rows = [a_lesson(f"model {number}", signature) for number, signature in enumerate(reversed(apart))]
    found = experience_for(rows, "iris", 16, trace)
    nearest = {f"model {number}" for number in range(30 - MOST_WORKLOADS, 30)}
    assert {lesson.workload for lesson in found.lessons} == nearest
    assert all(lesson.log_ratio == pytest.approx(math.log(1.1)) for lesson in found.lessons)


FP32, TF32, BF16 = Plan("cuda:0", "fp32"), Plan("cuda:0", "tf32"), Plan("cuda:0", "bf16")


def a_run(device_seconds: float | None, seconds: float = 2.0) -> Document:
    memory = {"allocated_bytes": 1, "reserved_bytes": 2}
    run = {"plan": FP32.to_json(), "batch_size": 8, "seconds": {"median": seconds}}
    return {**run, "device_seconds": device_seconds, "memory": memory}


@pytest.mark.parametrize(
    ("clocked", "device", "side"),
    [
        ((1.75, 2.0), 1.875, "computing"),
        ((None, 1.9), 1.9, "computing"),
        ((0.1, None), 0.1, "issuing"),
        ((None, None), None, NOT_CLOCKED),
    ],
)
def test_what_no_process_clocked_is_not_known_and_no_sign_that_issuing_is_the_limit(
    clocked: tuple[float | None, ...], device: float | None, side: str
) -> None:
    row = {"kind": "device", "name": "iris", "family": "dense", "mode": "training"}
    (step,) = read_steps([{**row, "runs": [a_run(seconds)]} for seconds in clocked], "device")
    assert (step.device, step.side) == (device, side)


def test_steps_that_were_not_clocked_stand_in_a_row_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    print_steps([a_step(FP32, 1.0, 1.0), a_step(BF16, 1.0, 1.0)])
    out = capsys.readouterr().out
    assert "| instant, not clocked | 0.0% | 0.0% | +0.0% | 100% | 2 |" in out
    assert "is the limit" not in out


def a_step(plan: Plan, seconds: float, told: float) -> Step:
    step = Step("w", "dense", "training", plan, 8, seconds, None, None)
    step.estimates = dict.fromkeys(
        ("instant", "learned"), StepEstimate(Interval(told, 0.8 * told, 1.2 * told), "predicted")
    )
    return step


def test_what_is_named_is_what_the_product_names_of_plans_that_it_cannot_tell_apart() -> None:
    rows = [a_step(TWO, 1.0, 1.0), a_step(ONE, 1.1, 1.02)]
    chosen = _chosen(rows, "instant", {})
    assert chosen is not None
    assert chosen.plan == ONE  # the cheaper one, which is not the least median


def convolving(trace: Trace) -> Trace:
    first, *others = trace.operations
    return replace(trace, operations=(replace(first, kind="convolution"), *others))


def test_torch_s_default_is_in_tf32_where_cudnn_computes_and_never_another_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dense = trace_of_summary(a_workload())
    rows = [a_step(BF16, 1.0, 1.0), a_step(TF32, 2.0, 2.0), a_step(FP32, 3.0, 3.0), a_step(ONE, 9.0, 9.0)]
    for trace, expected in ((dense, FP32), (convolving(dense), TF32)):
        chosen = _chosen(rows, DEFAULT, {"w": trace})
        assert chosen is not None
        assert chosen.plan == expected
    without = [step for step in rows if step.plan != FP32]
    assert _chosen(without, DEFAULT, {"w": dense}) is None  # fp32 did not run, and nothing else is torch's default
    print_decisions(without, {"w": dense})
    assert f"| {DEFAULT} |  |  | 0.0% | 1 |" in capsys.readouterr().out
    assert DEFAULT in CHOOSERS
