import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from probes.checked import Refused
from probes.context import Context, ContextOperation, OperationCost, contexts_to_json, variant_of
from probes.context_check import check_contexts
from probes.issued import Issued
from probes.workload.description import Plan

RELU = ContextOperation("aten.relu", "elementwise", "", "float32", 0.0, 4096.0, 4096.0)
PRODUCT = ContextOperation("aten.mm", "matmul", "", "float32", 1e6, 4096.0, 1024.0)
COSTS = (OperationCost(RELU, 2, 2e-6, 0.1), OperationCost(PRODUCT, 1, 1e-5, 0.0))
CONTEXTS = (
    Context("a", 8, "training", Plan("cpu", "fp32", 1), COSTS),
    Context("a", 8, "training", Plan("cpu", "fp32", 2), COSTS, Issued(40, 9, 12)),
)


PLANS = [context.plan for context in CONTEXTS]


def plan_of(value: object, place: str) -> Plan:
    if isinstance(value, dict):
        return Plan.from_json(value)
    assert isinstance(value, int)
    return PLANS[value]


def written(contexts: Sequence[Context]) -> dict[str, Any]:
    return contexts_to_json(contexts, PLANS.index)


def test_contexts_survive_a_journey_and_each_operation_is_written_once() -> None:
    document = json.loads(json.dumps(written(CONTEXTS)))
    assert json.dumps(document["operations"]) == "[[0, 0, 4096, 4096], [1, 1000000, 4096, 1024]]"
    assert document["kernels"] == [["aten.relu", "elementwise", "", "float32"], ["aten.mm", "matmul", "", "float32"]]
    assert check_contexts(document, plan_of) == CONTEXTS


def test_what_works_through_blocks_is_written_with_their_size() -> None:
    blocks = PRODUCT._replace(grain=2.5e5)
    context = replace(CONTEXTS[0], costs=(OperationCost(blocks, 1, 1e-5, 0.0), OperationCost(PRODUCT, 1, 1e-5, 0.0)))
    document = json.loads(json.dumps(written([context])))
    assert document["operations"] == [[0, 10**6, 4096, 1024, 250_000], [0, 10**6, 4096, 1024]]
    assert check_contexts(document, plan_of) == (context,)


def test_a_context_by_the_devices_clock_says_so_and_others_say_nothing() -> None:
    contexts = (replace(CONTEXTS[0], clock="device"), CONTEXTS[1])
    document = json.loads(json.dumps(written(contexts)))
    assert [row.get("clock") for row in document["contexts"]] == ["device", None]
    assert check_contexts(document, plan_of) == contexts
    document["contexts"][0]["clock"] = "wall"
    with pytest.raises(Refused, match="clock"):
        check_contexts(document, plan_of)


def test_a_context_that_is_reckoned_says_so_and_others_say_nothing() -> None:
    contexts = (replace(CONTEXTS[0], reckoned=True), CONTEXTS[1])
    document = json.loads(json.dumps(written(contexts)))
    assert [row.get("reckoned") for row in document["contexts"]] == [True, None]
    assert check_contexts(document, plan_of) == contexts
    document["contexts"][0]["reckoned"] = "yes"
    with pytest.raises(Refused, match="reckoned has to be true or false"):
        check_contexts(document, plan_of)


def test_a_step_that_several_plans_ran_is_written_once() -> None:
    counted = tuple(replace(context, issued=None) for context in CONTEXTS)
    document = written(counted)
    assert len(document["steps"]) == 1
    assert document["steps"][0]["operations"] == ((0, 2), 1)
    assert check_contexts(json.loads(json.dumps(document)), plan_of) == counted
    assert [row["nanoseconds"] for row in document["contexts"]] == [[2000, 10000]] * 2
    assert document["contexts"][0]["spreads"] == [10, 0]


@pytest.mark.parametrize("seconds", [6.763e-07, 1.234e-05, 9.999e-03, 3.0, 1.001e-09, 812.4])
@pytest.mark.parametrize("spread", [0.0, 0.051, 0.0012, 1.2, 7e-07])
def test_no_number_is_another_after_the_journey(seconds: float, spread: float) -> None:
    context = replace(CONTEXTS[0], costs=(OperationCost(RELU, 2, seconds, spread),))
    (found,) = check_contexts(json.loads(json.dumps(written([context]))), plan_of)
    assert found == context


def test_contexts_of_the_first_schema_are_read() -> None:
    rows = [
        {
            "network": context.network,
            "batch_size": context.batch_size,
            "mode": context.mode,
            "plan": context.plan.to_json(),
            "issued": context.issued,
            "costs": [[0, 2, 2e-6, 0.1], [1, 1, 1e-5, 0.0]],
        }
        for context in CONTEXTS
    ]
    document = json.loads(json.dumps({"operations": [RELU[:7], PRODUCT[:7]], "contexts": rows}))
    assert check_contexts(document, plan_of) == CONTEXTS


def test_a_profile_from_before_contexts_has_none() -> None:
    assert check_contexts({}, plan_of) == ()


@pytest.mark.parametrize(
    "row",
    [{"nanoseconds": [-1, 1]}, {"nanoseconds": [0, 1]}, {"nanoseconds": [1]}, {"nanoseconds": [1, 1, 1]},
     {"nanoseconds": ["1", 1]}, {"nanoseconds": [None, 1]}, {"nanoseconds": [1e300, 1]}, {"nanoseconds": [10**5000, 1]},
     {"nanoseconds": [True, 1]}, {"nanoseconds": "ab"}, {"nanoseconds": 3}, {"nanoseconds": [float("nan"), 1]},
     {"spreads": [-1, 0]}, {"spreads": [0]}, {"spreads": [1e30, 0]}, {"step": 7}, {"step": -1}, {"step": "0"},
     {"step": None}, {"step": 0.5}],
)  # fmt: skip
def test_times_that_no_clock_can_have_told_are_refused(row: dict[str, object]) -> None:
    document = written(CONTEXTS)
    document["contexts"][1].update(row)
    with pytest.raises(Refused, match="contexts"):
        check_contexts(document, plan_of)


@pytest.mark.parametrize("ran", [[7, 1], [-1, 1], [0, 0], [0], [0, 1, 1], "ab", None, [0, 1.5], ["0", 1]])
def test_steps_of_operations_that_are_not_there_are_refused(ran: object) -> None:
    document = written(CONTEXTS)
    document["steps"][0]["operations"] = [ran, [1, 1]]
    with pytest.raises(Refused, match="steps"):
        check_contexts(document, plan_of)


@pytest.mark.parametrize(
    "cost",
    [[0, 1, -1e-6, 0.1], [0, 1, 0.0, 0.1], [7, 1, 1e-6, 0.1], [-1, 1, 1e-6, 0.1], [0, 0, 1e-6, 0.1],
     [0, 1, 1e-6, -0.1], [0, 1, 1e9, 0.1], [0, 1, "1", 0.1], [0, 1, None, 0.1], [0, 1, 1e-6], [0, 1, 1e-6, 0.1, 4],
     "abcd"],
)  # fmt: skip
def test_costs_that_no_clock_can_have_told_are_refused(cost: object) -> None:
    document = written(CONTEXTS)
    document["contexts"][0] |= {"network": "a", "batch_size": 8, "mode": "training", "costs": [cost]}
    with pytest.raises(Refused, match="contexts"):
        check_contexts(document, plan_of)


@pytest.mark.parametrize(
    "issued",
    [[-1, 0, 0], [1, 2], [1, 2, 3, 4], "abc", 3, [1.5, 0, 0], [True, 0, 0], [float("nan"), 0, 0], [10**12, 0, 0]],
)
def test_counts_that_no_step_can_have_are_refused(issued: object) -> None:
    document = written(CONTEXTS)
    document["steps"][1]["issued"] = issued
    with pytest.raises(Refused, match="issued"):
        check_contexts(document, plan_of)


NO_OPERATIONS: list[object] = [
    [7, 0, 1, 1], [-1, 0, 1, 1], ["0", 0, 1, 1], [None, 0, 1, 1], [0, -1, 1, 1], [0, 0, 1], [0, 0, 1, float("nan")],
    [0, 0, 1, 1, -1], [0, 0, 1, 1, 1, 1], 3, ["aten.relu", "view", "", "float32", 0, 1, 1],
]  # fmt: skip
NO_KERNELS: list[object] = [
    ["aten.relu", "magic", "", "float32"], ["<script>", "view", "", "float32"], ["aten.relu", "view", "", "float 32"],
    ["aten.relu", "view", "", "float32", 0], ["aten.relu", "view", ""], "abcd", 3, None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("member", "entry"),
    [*(("operations", entry) for entry in NO_OPERATIONS), *(("kernels", entry) for entry in NO_KERNELS)],
)
def test_operations_and_kernels_that_no_trace_has_are_refused(member: str, entry: object) -> None:
    document = written(CONTEXTS)
    document[member][0] = entry
    with pytest.raises(Refused, match=member):
        check_contexts(document, plan_of)


@pytest.mark.parametrize(
    "operation",
    [["aten.relu", "magic", "", "float32", 0, 1, 1], ["<script>", "view", "", "float32", 0, 1, 1],
     ["aten.relu", "view", "", "float32", -1, 1, 1], ["aten.relu", "view", "", "float32", 0, 1], 3],
)  # fmt: skip
def test_operations_of_earlier_schemas_are_checked_alike(operation: object) -> None:
    with pytest.raises(Refused, match="operations"):
        check_contexts({"operations": [operation]}, plan_of)


def test_convolutions_are_told_apart_by_what_their_kernels_mix() -> None:
    image = (8, 16, 32, 32)
    assert variant_of("aten.convolution", (image, (32, 16, 3, 3))) == "2d-spatial"
    assert variant_of("aten.convolution", (image, (32, 16, 1, 1), (32,))) == "2d-pointwise"
    assert variant_of("aten.convolution", (image, (16, 1, 3, 3))) == "2d-depthwise"
    assert variant_of("aten.convolution", ((8, 16, 100), (32, 16, 5))) == "1d-spatial"
    assert variant_of("aten.convolution", ((8, 1, 100), (16, 1, 5))) == "1d-image"
    assert variant_of("aten.convolution_backward", ((8, 24, 9, 9), (8, 3, 9, 9), (24, 3, 3, 3))) == "2d-image-ragged"
    large = ("aten.convolution_backward", (image, image, (16, 1, 5, 5)))
    assert variant_of(*large) == "2d-depthwise-large"
    assert variant_of(*large, channels_last=True) == "2d-depthwise-large-last"
    assert variant_of("aten.convolution", (image, (16, 1, 3, 3)), channels_last=True) == "2d-depthwise-last"
    assert variant_of("aten.convolution", (image, (16, 1, 3, 3)), strided=True) == "2d-depthwise-strided"
    assert variant_of(*large, channels_last=True, strided=True) == "2d-depthwise-large-strided-last"
    assert variant_of("aten.convolution", (image, (32, 16, 3, 3)), strided=True) == "2d-spatial"
    assert variant_of("aten.convolution", (image, (32, 16, 3, 3)), channels_last=True) == "2d-spatial"
    assert variant_of("aten.convolution", (image, (4, 4, 3, 3))) == "2d-grouped"  # no image of four channels
    assert variant_of("aten.convolution", ((8, 24, 9, 9), (32, 24, 3, 3))) == "2d-spatial-ragged"
    assert variant_of("aten.convolution", (image, (32, 16, 3, 3)), dilated=True) == "2d-spatial-dilated"
    assert variant_of("aten.convolution", (image, (16, 8, 2, 2)), transposed=True) == "2d-transposed"
    assert variant_of("aten.convolution_backward", (image, image, (16, 1, 3, 3))) == "2d-depthwise"
    assert variant_of("aten.mm", ((3, 4), (4, 5))) == ""
    assert variant_of("aten.convolution", ()) == ""
