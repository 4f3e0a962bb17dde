import pytest

from probes.context import Context, contexts_to_json
from probes.context_check import check_contexts
from probes.microtrain.calibration.operation_clock import ClockedStep, clock_step, merge_costs, record_step, still_grows
from probes.microtrain.measuring.workbench import Workbench
from probes.microtrain.step import applied
from probes.microtrain.traces.recording import Record
from probes.workload.description import Mode, Plan, Precision, Workload
from probes.workload.models import parse_model

LAYERS = [
    {"type": "conv2d", "out": 4, "kernel": 3},
    {"type": "batch_norm"},
    {"type": "dropout", "p": 0.1},
    {"type": "flatten"},
    {"type": "linear", "out": 3},
]


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_each_operation_that_a_real_step_runs_is_clocked_once(mode: Mode, precision: Precision) -> None:
    workload = Workload(parse_model({"layers": LAYERS, "input_shape": [3, 8, 8]}), 4, mode=mode)
    plan = Plan("cpu", precision, 1)
    with applied(plan):
        step = Workbench(workload, frozenset({"cpu"})).make_step(plan, 4)
        step()
        records, _ = record_step(step)
        clocked = [clock_step(step) for _ in range(3)]
    assert [len(step.seconds) for step in clocked] == [len(step.faults) for step in clocked] == [len(records)] * 3
    costs = merge_costs(records, clocked)
    assert sum(cost.times for cost in costs) == len(records)
    assert all(cost.seconds > 0 and cost.spread >= 0 for cost in costs)
    names = {cost.operation.name for cost in costs}
    assert {"aten.convolution", "aten.addmm"} <= names
    assert ("aten.convolution_backward" in names) == (mode == "training")


def test_a_step_that_ran_something_else_is_not_counted() -> None:
    assert merge_costs([], [ClockedStep([1e-6])]) == ()


def test_operations_add_up_to_the_step_though_another_one_is_slow_in_each() -> None:
    kinds = ("aten.relu", "aten.tanh", "aten.relu", "aten.sigmoid")
    records = [Record("forward", "elementwise", name, "float32", ((4,),), 4, 16, 16) for name in kinds]
    clocked = [ClockedStep([2e-6 if place == slow else 1e-6 for place in range(4)]) for slow in range(4)]
    costs = merge_costs(records, clocked)
    assert {cost.operation.name: cost.times for cost in costs} == {"aten.relu": 2, "aten.tanh": 1, "aten.sigmoid": 1}
    assert sum(cost.seconds * cost.times for cost in costs) == pytest.approx(5e-6, rel=1e-3)


def test_one_step_in_which_everything_was_slow_does_not_count() -> None:
    record = Record("forward", "elementwise", "aten.relu", "float32", ((4,),), 4, 16, 16)
    (cost,) = merge_costs([record, record], [ClockedStep(each) for each in ([1e-6, 3e-6], [2e-6, 2e-6], [9e-6, 9e-6])])
    assert (cost.times, cost.seconds) == (2, pytest.approx(2e-6))


def test_what_a_burst_made_hundreds_of_times_as_long_comes_back_from_a_profile_as_it_was() -> None:
    record = Record("forward", "elementwise", "aten.relu", "float32", ((4,),), 4, 16, 16)
    plan = Plan("cpu", "fp32", 1)
    costs = merge_costs([record], [ClockedStep([1e-6])] * 8 + [ClockedStep([301.46e-6])] * 2)
    assert costs[0].spread == 150.2
    context = Context("a", 1, "training", plan, costs)
    assert check_contexts(contexts_to_json([context], lambda _: 0), lambda *_: plan) == (context,)


def _two_operations() -> list[Record]:
    names = ("aten.relu", "aten.tanh")
    return [Record("forward", "elementwise", name, "float32", ((4,),), 4, 16, 16) for name in names]


def test_what_an_operation_took_while_the_heap_grew_under_it_does_not_count() -> None:
    grown, settled = ClockedStep([18e-3, 2e-3], [8000, 0]), ClockedStep([5e-3, 4e-3], [0, 500])
    costs = merge_costs(_two_operations(), [grown, settled])
    assert {cost.operation.name: cost.seconds for cost in costs} == {
        "aten.relu": pytest.approx(5e-3),
        "aten.tanh": pytest.approx(2e-3),
    }


def test_growth_that_moves_among_equal_operations_counts_in_none_of_them() -> None:
    record, _ = _two_operations()
    steps = [ClockedStep([18e-3, 5e-3], [8000, 0]), ClockedStep([5e-3, 18e-3], [0, 8000])]
    (cost,) = merge_costs([record, record], steps)
    assert (cost.times, cost.seconds) == (2, pytest.approx(5e-3))


def test_an_operation_that_always_finds_fresh_pages_is_told_by_all_steps_with_about_as_few() -> None:
    """One of which met a burst."""
    found = ((40e-3, 811), (4e-3, 812), (4e-3, 814), (9e-3, 2000))
    relu, _ = merge_costs(_two_operations(), [ClockedStep([taken, 1e-3], [faults, 0]) for taken, faults in found])
    assert relu.seconds == pytest.approx(4e-3)


def test_a_heap_still_grows_while_one_operation_has_met_fresh_pages_in_every_step() -> None:
    assert still_grows([ClockedStep([1e-3, 1e-3], [8000, 0])])
    assert still_grows([ClockedStep([1e-3, 1e-3], [8000, 0]), ClockedStep([1e-3, 1e-3], [4000, 90])])
    assert not still_grows([ClockedStep([1e-3, 1e-3], [8000, 0]), ClockedStep([1e-3, 1e-3], [0, 8000])])
    assert not still_grows([ClockedStep([1e-3, 1e-3], [2, 1])])
    assert not still_grows([ClockedStep([1e-3])])  # nobody counted
