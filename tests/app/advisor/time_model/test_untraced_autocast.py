"""Steps under autocast of which only the step in fp32 is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.summary import trace_of_summary
from app.advisor.time_model.predicted import predict
from app.advisor.time_model.untraced_autocast import fresh_bytes, operations_under
from probes.context import Clock, Context, ContextOperation, OperationCost
from probes.profile import Profile
from probes.trace import Affine, Knot, Trace
from probes.workload.description import Mode, Plan
from tests.app.advisor.build import ONE, ONE_BF16, a_summary, a_workload
from tests.app.advisor.machine import GPU, a_profile, truth_of

BF16 = Plan("cuda:0", "bf16")
PLAIN = {ONE_BF16.key: ONE, BF16.key: GPU}
BATCH = 64
FLOOR, SLOW = 1e-6, 8.0


def a_trace(mode: Mode = "training") -> Trace:
    """Which moves bytes above all."""
    model = a_summary(parameters=100_000, flops_per_sample=1e4, activation_bytes_per_sample=9e7, operations=16)
    return trace_of_summary(replace(a_workload(), model=model, mode=mode))


def clocked(plan: Plan, clock: Clock) -> Context:
    """Under autocast: fp32, as an optimizer has it, takes eight times as long a byte."""
    bandwidth = truth_of(PLAIN[plan.key]).bandwidth
    costs = []
    for dtype, times in (("bfloat16", 1.0), ("float32", SLOW)):
        for moved in (10.0**power for power in range(3, 10)):
            operation = ContextOperation("aten.relu", "elementwise", "", dtype, 0.0, moved / 2, moved / 2)
            costs.append(OperationCost(operation, 1, FLOOR + times * moved / bandwidth, 0.0))
    return Context("a", 8, "training", plan, tuple(costs), clock=clock)


def calibrated(plan: Plan) -> Profile:
    points = [replace(point, plan=plan) for point in a_profile((PLAIN[plan.key],)).points]
    clocks: tuple[Clock, ...] = ("host",) if plan.is_cpu else ("host", "device")
    contexts = tuple(clocked(plan, clock) for clock in clocks)
    return replace(a_profile(()), points=tuple(points), networks=(), contexts=contexts)


@pytest.mark.parametrize("plan", [ONE_BF16, BF16], ids=lambda plan: plan.device)
def test_a_model_that_is_known_by_its_totals_moves_half_the_bytes_in_bf16(plan: Plan) -> None:
    """By what bf16 takes there, and not by what the optimizer's fp32 does."""
    trace = replace(a_trace(), operations=tuple(each for each in a_trace().operations if each.kind == "elementwise"))
    moved = sum(
        each.count * (each.read_bytes.at(BATCH) + each.written_bytes.at(BATCH))
        for each in trace.operations
        if each.phase != "optimizer"
    )
    step = predict(calibrated(plan), plan, trace, None)
    assert step is not None
    seconds = step.breakdown(BATCH, "resident").compute
    assert seconds == pytest.approx(moved / 2 / truth_of(PLAIN[plan.key]).bandwidth, rel=0.15)


@pytest.mark.parametrize(("mode", "times"), [("training", 2), ("inference", 1)])
def test_each_weight_is_cast_once_a_step_and_its_gradient_back(mode: Mode, times: int) -> None:
    trace = a_trace(mode)
    casts = operations_under(trace, "fp16")[len(trace.operations) :]
    assert [each.count for each in casts] == [trace.parameter_tensors] * times
    moved = sum(each.count * (each.read_bytes.at(BATCH) + each.written_bytes.at(BATCH)) for each in casts)
    assert moved == pytest.approx(times * 1.5 * trace.parameter_bytes)
    assert casts[0].dtype == "float16"
    assert operations_under(replace(trace, parameter_tensors=0), "fp16")[len(trace.operations) :] == ()


def test_numbers_of_other_types_and_the_optimizers_stay_as_they_are() -> None:
    trace = a_trace()
    whole = replace(trace.operations[0], dtype="int64")
    trace = replace(trace, operations=(whole, *trace.operations))
    found = operations_under(trace, "bf16")
    assert found[0] == whole
    assert {each.dtype for each in found[1:] if each.phase == "forward"} == {"bfloat16"}
    steps = [each for each in trace.operations if each.phase == "optimizer"]
    assert [each for each in found if each.phase == "optimizer"] == steps


def test_a_step_that_was_traced_under_autocast_stays_as_it_was_traced() -> None:
    cast = replace(a_trace().operations[0], read_bytes=Affine(1.0, 2.0))
    trace = replace(a_trace(), autocast_operations=(cast,), autocast_heap_fresh=(Knot(1, 10), Knot(2, 20)))
    assert operations_under(trace, "bf16") == (cast,)
    assert fresh_bytes(trace, "bf16", 2) == 20
    for precision in ("fp32", "tf32"):
        assert operations_under(trace, precision) == trace.operations
    assert operations_under(replace(a_trace(), operations=()), "bf16") == ()


def test_a_step_that_was_not_finds_half_as_much_fresh_as_in_fp32() -> None:
    trace = replace(a_trace(), heap_fresh=(Knot(1, 100), Knot(2, 200)))
    assert (fresh_bytes(trace, "fp32", 2), fresh_bytes(trace, "bf16", 2)) == (200, 100)
