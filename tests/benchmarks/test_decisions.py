"""How answers are held against the best plan of a long measurement, and what of a run that goes wrong is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.advisor.request import Request
from app.advisor.summary import trace_of_summary
from benchmarks import decisions
from benchmarks.decisions import (
    MODELS,
    Decision,
    decide,
    decide_each,
    default_label,
    default_plan,
    describe,
    describe_summary,
    summarise,
)
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.workload.description import Plan
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_gpu, a_survey, a_workload

REFERENCE = {"cpu fp32, 1 thread": 0.010, "cpu fp32, 2 threads": 0.012}


def a_decision(**chosen: str | None) -> Decision:
    return Decision("iris", 120, REFERENCE, dict(chosen), {})


def test_the_slowdown_is_against_the_best_plan_of_the_reference() -> None:
    decision = a_decision(quick="cpu fp32, 1 thread", instant="cpu fp32, 2 threads")
    assert decision.best == "cpu fp32, 1 thread"
    assert decision.slowdown("quick") == 0
    assert decision.slowdown("instant") == pytest.approx(0.2)


def test_a_plan_that_did_not_run_is_not_counted_as_fast() -> None:
    assert a_decision(quick="cuda:0 fp16").slowdown("quick") is None
    assert a_decision(quick=None).slowdown("quick") is None
    assert "did not run" in describe(a_decision(quick="cuda:0 fp16"))


def test_the_summary_averages_over_the_models() -> None:
    rows = [a_decision(quick="cpu fp32, 1 thread"), a_decision(quick="cpu fp32, 2 threads"), a_decision(quick=None)]
    summary = summarise(rows, "quick")
    assert summary["mean_slowdown"] == pytest.approx(0.1)
    assert summary["worst_slowdown"] == pytest.approx(0.2)
    assert (summary["best_named"], summary["named"], summary["models"]) == (1, 2, 3)
    assert describe_summary({"summary": {"quick": summary}}).startswith("quick: 10.0% slower than the best on average")


def test_the_default_is_the_first_gpu_or_else_every_thread_in_fp32() -> None:
    assert default_plan(a_survey(), [ONE, ONE_BF16, TWO]) == TWO
    assert default_plan(a_survey(gpus=[a_gpu()]), [ONE, TWO]) == Plan("cuda:0", "fp32")


def test_the_default_of_a_gpu_is_told_by_the_better_of_fp32_and_tf32_where_cudnn_computes() -> None:
    dense, seconds = trace_of_summary(a_workload()), {"cuda:0 fp32": 3.0, "cuda:0 tf32": 2.0, "cuda:0 bf16": 1.0}
    first, *others = dense.operations
    convolves = replace(dense, operations=(replace(first, kind="convolution"), *others))
    gpu = Plan("cuda:0", "fp32")
    assert default_label(gpu, seconds, dense) == "cuda:0 fp32"
    assert default_label(gpu, seconds, convolves) == "cuda:0 tf32"
    assert default_label(gpu, {"cuda:0 bf16": 1.0}, convolves) == "cuda:0 fp32"  # which did not run, and is not fast
    assert default_label(TWO, seconds, convolves) == TWO.label


def test_the_ten_models_are_ten_and_all_are_accepted() -> None:
    assert len(MODELS) == len({name for name, _, _ in MODELS}) == 10
    for _, document, _ in MODELS:
        assert parse_model(document).content


def test_a_model_that_cannot_be_decided_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def decided(_asked: Any, name: str, _document: Any, _batch_size: int, _seconds: float) -> Decision:
        if name == "lstm":
            raise RuntimeError("No plan ran in the reference.")
        return replace(a_decision(quick="cpu fp32, 1 thread"), model=name)

    monkeypatch.setattr(decisions, "decide", decided)
    nobody: Any = None
    said: list[str] = []
    kept: list[int] = []
    models = [("iris", {}, 120), ("lstm", {}, 8), ("digits", {}, 64)]
    found, rows = asyncio.run(decide_each(nobody, models, 1.0, said.append, lambda rows: kept.append(len(rows))))
    assert [decision.model for decision in found] == ["iris", "digits"]
    assert rows[1] == {"model": "lstm", "batch_size": 8, "error": "RuntimeError: No plan ran in the reference."}
    assert [row["model"] for row in rows] == ["iris", "lstm", "digits"]
    assert kept == [1, 2, 3]
    assert said[1] == "lstm, batch 8: RuntimeError: No plan ran in the reference."


def test_a_reference_in_which_nothing_ran_is_no_decision() -> None:
    class Asked:
        async def survey(self) -> Survey:
            return a_survey()

        async def recommend(self, request: Request) -> None: ...

        async def measure(self, request: Request, **choices: Any) -> list[Measurement]:
            return [Measurement(ONE, 120, "pageable", "failed", "It did not run.")]

    asked: Any = Asked()
    with pytest.raises(RuntimeError, match="No plan ran"):
        asyncio.run(decide(asked, *MODELS[0], 1.0))
