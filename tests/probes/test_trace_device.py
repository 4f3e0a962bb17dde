"""A trace within a trace: the step as a device runs it, written, read, and looked at when somebody else wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.operation_prices.device_operations import on_device
from app.advisor.summary import trace_of_summary
from probes import bounds
from probes.checked import Refused
from probes.trace import SCHEMA_VERSION, Affine, Operation, Trace
from probes.trace_check import READABLE, check_trace
from tests.app.advisor.build import a_workload

Document = dict[str, Any]
LINE = Affine(0.0, 8.0)
RECURRENT = Operation("recurrent", "crosspoint._cudnn_rnn", "forward", "float32", 1, LINE, LINE, LINE, grain=12.0)
ROW = ["recurrent", "crosspoint._cudnn_rnn", "forward", "float32", 1, [0, 8], [0, 8], [0, 8], [[7, 16, 6]], "", 12]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def on_a_cpu() -> Trace:
    return trace_of_summary(a_workload())


def with_device() -> Trace:
    trace = on_a_cpu()
    return replace(trace, devices=True, device=replace(trace, operations=(RECURRENT,)))


def a_document(**changes: Any) -> Document:
    """changes: of the device's."""
    document = with_device().to_json()
    document["device"] |= changes
    return document


def an_operation(place: int, value: Any) -> Document:
    return a_document(operations=[[*ROW[:place], value, *ROW[place + 1 :]]])


def test_each_place_has_its_step() -> None:
    trace = with_device()
    assert trace.on(cpu=True) is trace
    assert trace.on(cpu=False) is trace.device
    alone = replace(trace, device=None)
    assert alone.on(cpu=True) is alone.on(cpu=False) is alone


def test_a_journey_as_text_changes_nothing() -> None:
    trace = with_device()
    document = json.loads(json.dumps(trace.to_json(), allow_nan=False))
    assert document["device"]["device"] is None
    assert document["device"]["schema_version"] == SCHEMA_VERSION
    assert Trace.from_json(document) == trace
    assert Trace.from_json(on_a_cpu().to_json()) == on_a_cpu()


def test_a_trace_that_knows_nothing_of_devices_is_read() -> None:
    document = on_a_cpu().to_json()
    del document["device"], document["devices"]
    for read in (Trace.from_json(document), check_trace(document, "trace")):
        assert read.device is None
        assert not read.devices


@pytest.mark.parametrize("schema", READABLE[:-1])
def test_older_traces_have_none(schema: str) -> None:
    document = {**on_a_cpu().to_json(), "schema_version": schema}
    del document["device"], document["devices"]
    assert check_trace(document, "trace").device is None


def test_a_document_stays_as_it_was() -> None:
    document = a_document()
    before = json.dumps(document)
    Trace.from_json(document)
    check_trace(document, "trace")
    assert json.dumps(document) == before


def test_one_that_can_be_is_reckoned_with() -> None:
    checked = check_trace(a_document(), "trace")
    assert checked.device is not None
    assert checked.device.operations == (RECURRENT,)
    assert checked.devices


def test_packed_texts_in_it_are_not_opened() -> None:
    checked = check_trace(a_document(allocations="eJw" * 1000, autocast_allocations="eJw"), "trace").device
    assert checked is not None
    assert (checked.allocations, checked.autocast_allocations) == ("", "")


def test_a_device_of_a_device_is_passed_over() -> None:
    inners: list[Any] = [with_device().to_json(), "x", 5, {"schema_version": "99"}, [[]]]
    for inner in inners:
        for read in (Trace.from_json(a_document(device=inner)), check_trace(a_document(device=inner), "trace")):
            assert read.device is not None
            assert read.device.device is None


def test_nesting_without_end_is_not_followed() -> None:
    document = with_device().to_json()
    for _ in range(10_000):
        document = {**document, "device": document}
    assert check_trace(document, "trace").on(cpu=False).device is None
    assert Trace.from_json(document).on(cpu=False).device is None


@pytest.mark.parametrize(
    "device", ["x", "", 0, 1, 1.5, True, False, [], [1], [["schema_version", SCHEMA_VERSION]], {1: 2}]
)
def test_what_is_no_object_is_refused(device: Any) -> None:
    document = {**with_device().to_json(), "device": device}
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(document, "trace")
    with pytest.raises((KeyError, TypeError, ValueError)):
        Trace.from_json(document)


@pytest.mark.parametrize("schema", ["0", "", None, int(SCHEMA_VERSION), [SCHEMA_VERSION], SCHEMA_VERSION + " "])
def test_another_schema_is_refused(schema: Any) -> None:
    document = a_document(schema_version=schema)
    with pytest.raises(Refused, match=r"trace\.device\.schema_version"):
        check_trace(document, "trace")
    with pytest.raises(ValueError, match="schema"):
        Trace.from_json(document)


def test_a_newer_schema_is_told_as_what_it_is() -> None:
    document = a_document(schema_version="99")
    with pytest.raises(Refused, match="a newer crosspoint made it"):
        check_trace(document, "trace")
    with pytest.raises(ValueError, match="schema"):
        Trace.from_json(document)


def test_a_schema_has_to_be_there() -> None:
    document = a_document()
    del document["device"]["schema_version"]
    with pytest.raises(Refused):
        check_trace(document, "trace")
    with pytest.raises(ValueError, match="schema"):
        Trace.from_json({**document, "device": {}})


HUGE = [1e30, 10**400, -(10**400), float("inf"), float("-inf"), float("nan"), "1", None, True, [], {}]


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("name", ["parameters", "frozen_parameters", "parameter_bytes", "optimizer_bytes"])
def test_numbers_beyond_any_machine_are_refused(name: str, number: Any) -> None:
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(a_document(**{name: number}), "trace")


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("name", ["activation_bytes", "input_bytes", "activation_peaks", "autocast_peaks"])
def test_and_lines_of_them(name: str, number: Any) -> None:
    line = [number, 1]
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(a_document(**{name: [line] if name.endswith("peaks") else line}), "trace")


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("place", [4, 10])
def test_and_operations_with_them(place: int, number: Any) -> None:
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(an_operation(place, number), "trace")


@pytest.mark.parametrize("place", [5, 6, 7])
@pytest.mark.parametrize("line", [[-1, 0], [0, -1], [0], [0, 1, 2], [1e30, 0], [0, float("nan")], 5, "ab", None])
def test_and_with_work_that_cannot_be(place: int, line: Any) -> None:
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(an_operation(place, line), "trace")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "quantum"), (0, None), (1, "x" * 1000), (1, "two\nlines"), (1, 5), (2, "sideways"), (3, 32),
        (8, [[-1]]), (8, [[1e30]]), (8, [["a"]]), (8, 5), (9, None), (9, "x" * 100),
    ],
)  # fmt: skip
def test_words_that_nobody_knows_are_refused(place: int, value: Any) -> None:
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(an_operation(place, value), "trace")


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "dreaming"}, {"optimizer": "magic"}, {"model_key": "x" * 1000}, {"torch_version": "a\nb"},
        {"evenly_routed": "yes"}, {"devices": 1}, {"batch_sizes": [0, 1]}, {"batch_sizes": 5}, {"batch_sizes": []},
        {"layers_dropped": 2.0}, {"layers_dropped": None},
        {"issued": "abc"}, {"operations": "abc"}, {"operations": {}}, {"operations": [[]]}, {"operations": [5]},
        {"operations": [ROW] * (bounds.MAX_TRACE_OPERATIONS + 1)}, {"kernel_peaks": [[1, 10]]},
        {"heap_fresh": [[2, 1], [1, 2]]}, {"autocast_refused": "a\nb"}, {"what": 1},
    ],
)  # fmt: skip
def test_a_devices_step_is_looked_at_like_a_cpus(changes: Document) -> None:
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(a_document(**changes), "trace")


@pytest.mark.parametrize("name", ["parameters", "operations", "activation_bytes", "batch_sizes", "model_key"])
def test_a_member_that_is_missing_makes_it_none(name: str) -> None:
    document = a_document()
    del document["device"][name]
    if name == "operations":  # they may be none, as in a trace by itself
        assert check_trace(document, "trace").on(cpu=False).operations == ()
        return
    with pytest.raises(Refused, match=r"trace\.device"):
        check_trace(document, "trace")


@given(name=st.sampled_from(sorted(with_device().to_json())), value=VALUES)
def test_whatever_a_member_is_it_is_read_or_refused(name: str, value: Any) -> None:
    try:
        checked = check_trace(a_document(**{name: value}), "trace")
    except Refused:
        return
    assert Trace.from_json(checked.to_json()) == checked


@given(place=st.integers(0, len(ROW) - 1), value=VALUES)
def test_whatever_an_operation_is_it_is_read_or_refused(place: int, value: Any) -> None:
    try:
        checked = check_trace(an_operation(place, value), "trace")
    except Refused:
        return
    device = checked.on(cpu=False)
    assert on_device(device.operations, device.parameter_tensors)


def test_a_layer_of_a_cpus_without_sides_does_not_stop_an_estimate() -> None:
    row = ["recurrent", "aten.mkldnn_rnn_layer", *ROW[2:8], [[]], "", 0]
    trace = check_trace(a_document(operations=[row]), "trace").on(cpu=False)
    assert on_device(trace.operations, trace.parameter_tensors)
