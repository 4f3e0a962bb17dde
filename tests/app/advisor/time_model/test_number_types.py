"""Steps on numbers of another type than their plan's: whose prices tell of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor import Request, recommend
from app.advisor.time_model.features import number_type_of, work_in
from app.advisor.time_model.predicted import predict, untold_type
from probes.microtrain.tracing import trace_workload
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.app.advisor.build import ONE, ONE_BF16, a_survey

PROGRAM = """
import torch
from torch import nn


def make(precision):
    def build():
        net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).to(precision)
        return net, lambda n: (torch.randn(n, 64, dtype=precision), torch.randint(0, 8, (n,)))
    return build


plain, double, half = make(torch.float32), make(torch.float64), make(torch.bfloat16)
"""
RESULTS = Path(__file__).parents[4] / "benchmarks/results/2026-11-26-amd-epyc-zen-4-2-cores"
BATCH = 64


@pytest.fixture(scope="module")
def profile() -> Profile:
    return Profile.from_json(json.loads((RESULTS / "estimates_added_up_profile_1.json").read_text()))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "number_types.py").write_text(PROGRAM)
    names = ("plain", "double", "half")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        return {name: trace_workload(Workload(python_model(f"number_types:{name}"), BATCH)) for name in names}


def told(profile: Profile, trace: Trace, plan: object) -> float | None:
    predicted = predict(profile, plan, trace, None)  # type: ignore[arg-type]
    interval = None if predicted is None else predicted.at(BATCH, "pageable")
    return None if interval is None else interval.median


def test_the_type_is_that_of_most_of_the_arithmetic(traces: dict[str, Trace]) -> None:
    found = {
        name: tuple(number_type_of(work_in(trace, precision)) for precision in ("fp32", "bf16"))
        for name, trace in traces.items()
    }
    assert found == {
        "plain": ("float32", "bfloat16"),
        "double": ("float64", "float64"),
        "half": ("bfloat16", "bfloat16"),
    }
    assert number_type_of(work_in(traces["plain"], "fp16")) == "float16"  # though autocast was traced to bf16
    assert number_type_of(work_in(traces["half"], "fp16")) == "float16"
    assert number_type_of(work_in(traces["double"], "fp16")) == "float64"
    nothing = replace(traces["plain"], operations=(), autocast_operations=())
    assert number_type_of(work_in(nothing, "fp32")) is None


def test_weights_in_bf16_are_told_by_what_computes_in_bf16(profile: Profile, traces: dict[str, Trace]) -> None:
    """Without autocast, too; a plan of another precision has nothing to say of them."""
    half = traces["half"]
    plain = told(profile, half, ONE)
    assert plain is not None
    assert plain == pytest.approx(told(profile, half, ONE_BF16), rel=0.1)  # autocast casts next to nothing of it
    assert predict(profile, ONE, half, None).model.plan == ONE_BF16  # type: ignore[union-attr]
    assert predict(profile, ONE, traces["plain"], None).model.plan == ONE  # type: ignore[union-attr]
    assert untold_type(profile, ONE, half) is None


@pytest.mark.parametrize("plan", [ONE, ONE_BF16], ids=lambda plan: plan.label)
def test_what_no_calibration_clocked_is_not_predicted(profile: Profile, traces: dict[str, Trace], plan: object) -> None:
    assert told(profile, traces["double"], plan) is None
    assert untold_type(profile, plan, traces["double"]) == "float64"  # type: ignore[arg-type]
    assert told(profile, traces["plain"], plan) is not None


def test_it_is_said_by_name_with_what_tells_the_time(profile: Profile, traces: dict[str, Trace]) -> None:
    """Another calibration would say no more."""
    workload = Workload(python_model("number_types:double"), BATCH)
    for effort, advised in (("instant", "effort quick measures this very model"), ("quick", "measuring for longer")):
        here = replace(profile, fingerprint=a_survey().fingerprint)
        answer = recommend(a_survey(), here, traces["double"], [], Request(workload, effort=effort))  # type: ignore[arg-type]
        said = " ".join((answer.verdict, *(reason.text for reason in answer.reasons)))
        assert "No calibration of such a plan has clocked float64" in said
        assert advised in said
        assert "crosspoint calibrate" not in said
