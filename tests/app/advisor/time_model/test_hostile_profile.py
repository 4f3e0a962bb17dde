"""Whatever is changed in a real profile: it is refused, or every estimate made from it is finite and positive."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.advisor import Request, recommend
from app.advisor.recommendation import Recommendation
from app.advisor.request import InvalidRequest
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.predicted import fit_all_plans
from probes import bounds
from probes.machine_facts import DeviceFacts, MachineFacts
from probes.profile import InvalidProfile, Profile
from probes.trace import Affine, Operation, Trace
from probes.workload.description import MODES, Mode, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_survey, a_workload
from tests.app.advisor.machine import a_profile
from tests.app.advisor.time_model.test_device_steps import a_card, a_network, a_trace
from tests.app.advisor.time_model.test_device_steps import row as of_trace

REAL = json.loads((Path(__file__).parents[1] / "data" / "real_profile.json").read_text(encoding="utf-8"))


def _smaller(document: dict[str, Any]) -> dict[str, Any]:
    """One plan, and few points of each constant: an example then takes milliseconds."""
    points = [row for row in document["points"] if row["plan"]["precision"] == "fp32"]
    networks = [row for row in document["networks"] if row["plan"]["precision"] == "fp32"]
    return {**document, "points": points[::3], "networks": networks}


SMALL = json.dumps(Profile.from_json(_smaller(REAL)).to_json())

rubbish = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from([0, 0.0, -0.0, 1e-12, 1e-9, 1e-300, 1e6, 1e18, 1e300, 5e-324, 1, 2**63]),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _mutate(draw: Any, value: Any) -> None:
    """Walk to a random place in the document and put rubbish there, take it away, or double what is there."""
    holder, key = value, draw(st.sampled_from(sorted(value)))
    for _ in range(8):
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner) or draw(st.integers(0, 9)) == 0:
            break
        holder = inner
        key = draw(st.sampled_from(sorted(inner)) if isinstance(inner, dict) else st.integers(0, len(inner) - 1))
    action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "scale"]))
    if action == "remove":
        del holder[key]
    elif action == "scale" and isinstance(holder[key], int | float):
        holder[key] = holder[key] * draw(st.sampled_from([-1, 0, 1e-9, 1e9]))
    else:
        holder[key] = draw(rubbish)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_it_is_refused_or_every_estimate_is_finite_and_positive(data: st.DataObject) -> None:
    document = json.loads(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        if document:
            _mutate(data.draw, document)
    try:
        profile = Profile.from_json(document)
    except InvalidProfile:
        return
    _check_estimates(profile)


def _check_estimates(profile: Profile) -> int:
    """How many options have a time."""
    return _check_times(
        recommend(a_survey(usable_cores=1.0), profile, None, [], Request(a_workload(), precision="fp32"))
    )


def test_points_of_convolutions_that_compute_nothing_price_none() -> None:
    """A profile of before operations were clocked in steps, whose roof of convolutions was looked for and not found."""
    profile = a_profile((ONE,))
    nothing = [replace(point, constant="convolution", flops=0.0) for point in profile.points[1:3]]
    hostile = replace(profile, points=(*profile.points, *nothing))
    dense = trace_of_summary(a_workload())
    convolved = replace(dense, operations=tuple(replace(each, kind="convolution") for each in dense.operations))
    answer = recommend(a_survey(usable_cores=1.0), hostile, convolved, [], Request(a_workload(), precision="fp32"))
    assert _check_times(answer) == 1


def _check_times(answer: Recommendation) -> int:
    """How many options have a time."""
    for option in answer.options:
        if option.step_seconds is not None:
            low, middle, high = option.step_seconds.low, option.step_seconds.median, option.step_seconds.high
            assert 0 < low <= middle <= high < math.inf
    assert all(value is None or 0 < value < math.inf for curve in answer.curves for value in curve.step_seconds)
    json.dumps(answer.to_json(), allow_nan=False)
    return sum(option.step_seconds is not None for option in answer.options)


factors = st.sampled_from([1e-9, 1e-4, 0.1, 1.0, 10.0, 1e4, 1e9])


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_lies_within_the_bounds_give_estimates_all_the_same(data: st.DataObject) -> None:
    """Every point and network may be off by any factor, its sizes too: nothing overflows, and nothing becomes zero."""
    document = json.loads(SMALL)
    for row in document["points"]:
        _scale(row["seconds"], data.draw(factors))
        for name, rate in (("flops", bounds.MAX_THREAD_FLOPS), ("bytes", bounds.MAX_THREAD_BYTES)):
            most = min(rate * row["seconds"]["low"], 1e18)
            row[name] = min(max(row[name] * data.draw(factors), 1.0), most) if row[name] else 0.0
    for row in document["networks"]:
        _scale(row["seconds"], data.draw(factors))
    assert _check_estimates(Profile.from_json(document)) == 1


def _scale(seconds: dict[str, Any], factor: float) -> None:
    for name in ("low", "median", "high"):
        seconds[name] = min(max(seconds[name] * factor, 1e-12), 1e6)


def _a_rig() -> Profile:
    """Another machine, with a card whose operations were clocked."""
    facts = MachineFacts("A CPU", 2, 2.0, 8 * 10**9, (DeviceFacts("cuda:0", "A card", 24 * 10**9, "8.6"),))
    card, cpu = a_card(), a_profile((ONE,))
    points, networks = (*cpu.points, *card.points), (*cpu.networks, *card.networks)
    return replace(card, name="rig", fingerprint="another", hardware=facts, points=points, networks=networks)


RIG = json.dumps(_a_rig().to_json())
# What an estimate looks for by its name, and names that are almost one of those.
WORDS = (
    "cpu cuda:0 cuda:7 fp32 tf32 bf16 fp16 training inference host device view matmul recurrent attention random "
    "elementwise bandwidth dispatch transfer aten.mm aten.add_ aten.bernoulli_ aten.mkldnn_rnn_layer2 aten._cudnn_rnn "
    "aten._scaled_dot_product"
)
words = st.sampled_from(WORDS.split())
VARIABLES = {"MALLOC_TRIM_THRESHOLD_": "68719476736"}
LAYER = Operation("recurrent", "aten.mkldnn_rnn_layer2", "forward", "float32", 1, *[Affine(0.0, 1e5)] * 3, ((9, 1, 8),))
TRACES = (
    None,  # a summary's
    a_network(20, 1e8, 1e5),
    a_trace(of_trace("relu", "elementwise", 1, 0.0, 32.0)),
    a_trace(of_trace("view", "view", 1, 0.0, 0.0)),
    a_trace(LAYER, of_trace("native_dropout", "random", 2, 0.0, 1e4)),
)


def _rename(draw: Any, value: Any) -> None:
    """Put a word in the place of another one, wherever one stands."""
    places: list[tuple[Any, Any]] = []
    holders = [value]
    while holders:
        holder = holders.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in items:
            if isinstance(inner, dict | list):
                holders.append(inner)
            elif isinstance(inner, str) and len(inner) > 2:
                places.append((holder, key))
    if places:
        holder, key = draw(st.sampled_from(places))
        holder[key] = draw(words)


def _cut(draw: Any, document: dict[str, Any]) -> None:
    """By hand: the points of some constants, the networks or the contexts are left out, or a plan sets variables."""
    what = draw(st.sampled_from(["points", "networks", "contexts", "plans"]))
    if what == "points":
        left = draw(st.sets(st.sampled_from(sorted({str(row["constant"]) for row in document["points"]}))))
        document["points"] = [row for row in document["points"] if row["constant"] in left]
    elif what == "plans":
        draw(st.sampled_from(document["plans"]))["environment"] = VARIABLES
    else:
        document[what] = document[what][: draw(st.integers(0, 3))]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(TRACES), st.sampled_from(MODES))
def test_another_machines_profile_is_refused_or_answers_with_times_that_are_finite_and_positive(
    data: st.DataObject, trace: Trace | None, mode: Mode
) -> None:
    """Or says what it was not calibrated for."""
    document = json.loads(RIG)
    for change in data.draw(st.lists(st.sampled_from([_cut, _rename, _mutate]), max_size=3)):
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # of what was changed before
            change(data.draw, document)
    try:
        profile = Profile.from_json(document)
    except InvalidProfile:
        return
    _check_answer(profile, trace, mode)


def _check_answer(profile: Profile, trace: Trace | None, mode: Mode) -> None:
    workload = a_workload(mode=mode) if trace is None else Workload(parse_model(LINEAR), 16, mode=mode)
    trace = None if trace is None else replace(trace, mode=mode)
    fit_all_plans(profile)
    try:
        answer = recommend(a_survey(), profile, trace, [], Request(workload, profile=profile.name))
    except InvalidRequest:
        return
    _check_times(answer)


LINEAR = {"layers": [{"type": "linear", "out": 4}], "input_shape": [4]}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("constants", [{"matmul", "normalization"}, {"matmul", "bandwidth"}, {"matmul", "elementwise"}])
@pytest.mark.parametrize("environment", [{}, VARIABLES])
def test_a_profile_that_was_cut_by_hand_answers_what_it_can(
    mode: Mode, trace: Trace | None, constants: set[str], environment: dict[str, str]
) -> None:
    document = json.loads(RIG)
    norm = next(point for point in document["points"] if point["constant"] == "bandwidth")
    document["points"] = [row for row in (*document["points"], {**norm, "constant": "normalization"})
                          if row["constant"] in constants]  # fmt: skip
    document["networks"] = document["contexts"] = []
    for plan in document["plans"]:
        plan["environment"] = environment
    _check_answer(Profile.from_json(document), trace, mode)
