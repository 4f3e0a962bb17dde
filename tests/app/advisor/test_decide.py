"""The whole answer: its document, its choice, and its honesty about what is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor import InvalidRequest, Request, recommend
from app.advisor.plans import candidate_plans
from probes.measurement import Measurement
from probes.workload.description import Plan
from tests.app.advisor.answered import ALL_FOUR, answer, measured
from tests.app.advisor.build import (
    ONE,
    TWO,
    a_gpu,
    a_measurement,
    a_survey,
    a_workload,
)
from tests.app.advisor.machine import GPU, a_profile


class Counted(list[Measurement]):
    """How often it was gone through."""

    passes = 0

    def __iter__(self) -> Iterator[Measurement]:
        self.passes += 1
        return super().__iter__()


def test_measurements_are_gone_through_as_often_for_many_plans_as_for_few() -> None:
    """A store may hold hundreds of them, and a machine eight cards."""
    passes: list[int] = []
    for cards in (1, 8):
        rows = Counted(a_measurement(plan, size, 0.1 * size) for plan in (ONE, GPU) for size in (4, 16, 64))
        gpus = [a_gpu(id=f"GPU-{place}", name=f"card {place}", torch_device=f"cuda:{place}") for place in range(cards)]
        recommend(a_survey(gpus=gpus), a_profile((ONE, GPU)), None, rows, Request(a_workload()))
        passes.append(rows.passes)
    assert passes[0] == passes[1]


def test_the_document_has_the_fields_that_were_promised() -> None:
    document = answer(measured(**ALL_FOUR)).to_json()
    assert set(document) == {
        "schema_version",
        "workload",
        "recommended",
        "verdict",
        "confidence",
        "options",
        "crossovers",
        "curves",
        "settings",
        "reasons",
        "load",
        "snippet",
    }
    assert {"model", "batch_size", "mode", "parameters", "flops_per_step"} <= set(document["workload"])
    assert set(document["recommended"]) == {"device", "precision", "threads", "environment", "batch_size"}
    option = document["options"][0]
    assert {
        "device",
        "precision",
        "threads",
        "environment",
        "fits",
        "why_not",
        "basis",
        "step_seconds",
        "samples_per_second",
        "breakdown_seconds",
        "memory",
        "max_batch_size",
    } <= set(option)
    assert set(option["step_seconds"]) == {"median", "low", "high"}
    assert set(option["breakdown_seconds"]) == {"transfer", "launch", "compute", "synchronize"}
    assert set(option["memory"]) == {
        "weights_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "activations_bytes",
        "overhead_bytes",
        "fragmentation_bytes",
        "peak_bytes",
        "available_bytes",
        "allocated_peak_bytes",
        "reserved_peak_bytes",
        "process_peak_bytes",
    }
    crossover = document["crossovers"][0]
    assert set(crossover) == {
        "from",
        "to",
        "data",
        "kind",
        "batch_size",
        "low",
        "high",
        "medians_cross_at",
        "launch_bound_until",
        "launch_bound_at_largest",
        "break_even_steps",
        "basis",
        "looked_at",
    }
    assert set(crossover["from"]) == {"device", "precision", "threads"}
    assert set(document["curves"]) == {"batch_sizes", "plans"}
    assert set(document["curves"]["plans"][0]) == {"device", "precision", "threads", "step_seconds"}
    assert set(document["reasons"][0]) == {"code", "text", "evidence"}
    json.dumps(document, allow_nan=False)


def test_the_fastest_measured_plan_is_recommended_with_its_time() -> None:
    found = answer(measured(**ALL_FOUR))
    assert found.recommended == TWO
    assert found.verdict.startswith("Train on the CPU with 2 threads: 600 ms a step, 1.7 times as fast as")
    assert found.confidence is not None
    assert found.confidence > 0.99
    assert found.options[0].basis == "measured"
    assert found.options[0].samples_per_second == pytest.approx(16 / 0.6)


def test_what_is_hardly_faster_is_not_said_to_be_one_time_as_fast() -> None:
    found = answer(measured(**{**ALL_FOUR, "one": 0.626}))
    assert found.recommended == TWO
    assert ", about as fast as the CPU with one thread" in found.verdict


def test_what_cannot_be_told_apart_goes_to_the_cheaper_plan() -> None:
    found = answer(measured(**{**ALL_FOUR, "one": 0.605}))
    assert found.recommended == ONE
    assert "too close to call against the CPU with 2 threads" in found.verdict
    assert "too-close-to-call" in {reason.code for reason in found.reasons}


@pytest.mark.parametrize(
    ("halved", "said"),
    [
        ((), "too close to call against cuda:0 in fp32, and either will do"),
        ((Plan("cuda:0", "bf16"),), "cuda:0 in bf16 and cuda:0 in fp32, none of which is cheaper"),
        ((Plan("cuda:1", "bf16"), Plan("cuda:0", "bf16")), "1 more, none of which is cheaper"),
    ],
)
def test_no_card_is_called_the_cheaper_of_two_that_are_unlike(halved: tuple[Plan, ...], said: str) -> None:
    cards = [a_gpu(), a_gpu(id="GPU-2", name="NVIDIA T400", torch_device="cuda:1")]
    times = ((Plan("cuda:0"), 0.101), (Plan("cuda:1"), 0.1), *((plan, 0.0995) for plan in halved))
    rows = [a_measurement(plan, 16, seconds) for plan, seconds in times]
    precision = "auto" if halved else "fp32"
    found = recommend(a_survey(gpus=cards), None, None, rows, Request(a_workload(16), precision, ("cuda",)))
    assert found.recommended == Plan("cuda:1")
    assert said in found.verdict
    reason = next(reason for reason in found.reasons if reason.code == "too-close-to-call")
    assert "as the quickest of those that take the least" in reason.text


def test_a_batch_between_measured_ones_is_probed() -> None:
    found = answer(measured(**ALL_FOUR), batch_size=8)
    assert {option.basis for option in found.options} == {"probed"}


def test_without_calibration_and_measurement_no_time_is_made_up() -> None:
    found = answer()
    assert found.recommended is None
    assert found.confidence is None
    assert found.snippet is None
    assert all(option.step_seconds is None and option.basis is None for option in found.options)
    assert not found.nothing_fits
    assert "crosspoint calibrate" in found.verdict
    assert [reason.code for reason in found.reasons] == ["no-calibration"]
    assert found.curve_batch_sizes == ()


def test_a_plan_that_was_not_measured_leaves_the_confidence_open_and_is_named() -> None:
    found = answer(measured(one=1.0, two=0.6))
    assert found.recommended == TWO
    assert found.confidence is None
    (reason,) = [reason for reason in found.reasons if reason.code == "no-calibration"]
    assert "cpu bf16, 2 threads" in reason.text


def test_a_device_that_is_not_here_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest):
        recommend(a_survey(), None, None, [], Request(a_workload(), devices=("cuda:0",)))


@given(
    seconds=st.lists(st.none() | st.floats(1e-5, 100), min_size=12, max_size=12),
    spread=st.floats(0, 0.9),
    batch=st.sampled_from([1, 2, 3, 7, 16, 64, 1000]),
    usable=st.sampled_from([None, 0, 10**8, 10**9, 10**12]),
    cores=st.sampled_from([None, 0.5, 1.0, 2.0, 3.0, 64.0]),
    mode=st.sampled_from(["training", "inference"]),
    data=st.sampled_from(["resident", "pageable", "pinned"]),
    gpu=st.booleans(),
    calibrated=st.booleans(),
    log_every=st.sampled_from([None, 1, 100]),
)
def test_whatever_was_measured_the_answer_is_whole(
    seconds: list[float | None],
    spread: float,
    batch: int,
    usable: int | None,
    cores: float | None,
    mode: str,
    data: str,
    gpu: bool,
    calibrated: bool,
    log_every: int | None,
) -> None:
    survey = a_survey(usable_cores=cores, usable_bytes=usable, gpus=[a_gpu()] if gpu else [])
    request = Request(a_workload(batch_size=batch, mode=mode, data=data, log_every=log_every))
    profile = a_profile((ONE, TWO, GPU)) if calibrated else None
    plans = candidate_plans(survey, request)
    rows = [
        a_measurement(plan, size, middle, spread)
        for plan, size, middle in zip(plans * 3, [batch, 2 * batch, 5] * 4, seconds, strict=False)
        if middle is not None
    ]
    found = recommend(survey, profile, None, rows, request)
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert found.verdict.endswith(".")
    told = {option.plan.key for option in found.options}
    tried_there = {row.plan.key for row in rows if row.batch_size == batch}
    assert told <= {plan.key for plan in plans}
    left_out = [plan for plan in plans if plan.key not in told]
    assert all(calibrated and plan.is_cpu and plan.threads not in (1, 2) for plan in left_out)
    assert not tried_there & {plan.key for plan in left_out}
    if found.recommended is not None:
        head = found.options[0]
        assert found.recommended == head.plan
        assert head.fits is not False
        assert document["snippet"]
    for option in found.options:
        if option.step_seconds is not None:
            assert option.step_seconds.low <= option.step_seconds.median <= option.step_seconds.high
        if option.fits is False:
            assert option.step_seconds is None
            assert option.why_not
    for text in (found.verdict, *(reason.text for reason in found.reasons)):
        assert text.endswith(".")
        assert not {"None", "nan", "inf"} & set(re.findall(r"\w+", text))
    for crossover in found.crossovers:
        assert (crossover.batch_size is not None) == (crossover.kind == "at")
        if crossover.low is not None and crossover.high is not None and crossover.batch_size is not None:
            assert crossover.low <= crossover.batch_size <= crossover.high


def test_another_machines_plan_is_answered_for_where_its_profile_has_it_with_an_environment_alone() -> None:
    active = replace(TWO, environment={"OMP_WAIT_POLICY": "ACTIVE"})
    made = a_profile((TWO,), fingerprint="elsewhere")
    points = tuple(replace(point, plan=active) for point in made.points)
    networks = tuple(replace(network, plan=active) for network in made.networks)
    request = Request(a_workload(), profile="made-up")
    found = recommend(a_survey(), replace(made, points=points, networks=networks), None, [], request)
    assert found.recommended == active
    assert [curve.plan for curve in found.curves] == [active]
