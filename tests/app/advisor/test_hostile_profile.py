"""Whatever is changed in a real profile: it is refused, or every estimate made from it is finite and positive."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.advisor import Request, recommend
from probes.profile import InvalidProfile, Profile
from tests.app.advisor.build import a_survey, a_workload

REAL = json.loads((Path(__file__).parent / "data" / "real_profile.json").read_text(encoding="utf-8"))


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
    answer = recommend(a_survey(usable_cores=1.0), profile, None, [], Request(a_workload(), precision="fp32"))
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
        row["flops"], row["bytes"] = (
            min(max(row[name] * data.draw(factors), 1.0), 1e18) if row[name] else 0.0 for name in ("flops", "bytes")
        )
    for row in document["networks"]:
        _scale(row["seconds"], data.draw(factors))
    assert _check_estimates(Profile.from_json(document)) == 1


def _scale(seconds: dict[str, Any], factor: float) -> None:
    for name in ("low", "median", "high"):
        seconds[name] = min(max(seconds[name] * factor, 1e-12), 1e6)
