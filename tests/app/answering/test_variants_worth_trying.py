"""Which variants of the best plan are worth a trial here, and what time each has."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Request, recommend
from app.advisor.denormals import DENORMAL_SHARE
from app.advisor.environments import KEEP_MEMORY
from app.advisor.summary import trace_of_summary
from app.answering import variants
from app.answering.trial_time import (
    FEWEST_STEPS,
    LEAST_COMPILE_SECONDS,
    LEAST_TURN_SECONDS,
    LONG_TURN_SECONDS,
    SHARE,
    SHARE_COMPILING,
    STEPS_A_TURN,
    affordable,
    least_seconds,
    least_turn_seconds,
    seconds_kept_back,
)
from app.answering.variants import environment_here, guess_launch_share, variants_of, with_a_best
from probes.hardware import Accelerator
from probes.measurement import Overheads
from probes.trace import Affine, Trace
from probes.workload.description import ModelDescription, Plan, Workload
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU

KEEPING = replace(ONE, environment=dict(KEEP_MEMORY))
FLUSHING, COMPILED = replace(ONE, flush_denormal=True), replace(ONE, compiled=True)


IMAGES = ((2, 3, 32, 32), (8, 3, 3, 3), (8,))  # a convolution's input, its weights and its bias
VOLUMES = ((2, 3, 32, 32, 32), (8, 3, 3, 3, 3), (8,))


def a_trace(kind: Any = "elementwise", shapes: tuple[tuple[int, ...], ...] = ()) -> Trace:
    """Of steps that compute for long, or of convolutions that do."""
    dense = trace_of_summary(a_workload(16))
    assert dense is not None
    return replace(dense, operations=tuple(replace(each, kind=kind, shapes=shapes) for each in dense.operations))


def worth_trying(trace: Trace | None, samples: int | None = None, **changes: Any) -> tuple[Plan, ...]:
    """Of an answer whose best plan is ONE, measured. samples: of the data that are told to be there."""
    rows = [a_measurement(ONE, 16, 0.1, **changes)]
    workload = replace(a_workload(16), dataset_samples=samples)
    return variants_of(a_survey(), recommend(a_survey(), None, None, rows, Request(workload)), trace, rows)


@pytest.fixture
def _no_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "environment_here", lambda: None)


@pytest.mark.usefixtures("_no_glibc")
def test_channels_last_is_tried_where_there_are_convolutions_of_images() -> None:
    assert worth_trying(a_trace("convolution", IMAGES)) == (replace(ONE, channels_last=True),)
    assert worth_trying(a_trace("elementwise", IMAGES)) == ()


@pytest.mark.usefixtures("_no_glibc")
@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 32), (8, 3, 3), (8,)), ((2, 1, 32, 32), (8, 1, 3, 3)), ((2, 8, 1, 1), (4, 8, 1, 1)), VOLUMES],
    ids=["signals", "one channel", "one place", "volumes"],
)
def test_channels_last_is_not_tried_where_nothing_would_lie_otherwise_or_torch_refuses_it(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    assert worth_trying(a_trace("convolution", shapes)) == ()


@pytest.mark.usefixtures("_no_glibc")
def test_channels_last_is_not_tried_of_a_model_with_volumes_beside_images() -> None:
    images, volumes = a_trace("convolution", IMAGES), a_trace("convolution", VOLUMES)
    assert worth_trying(replace(images, operations=(*images.operations, *volumes.operations))) == ()


@pytest.mark.usefixtures("_no_glibc")
def test_flushing_is_tried_where_steps_were_seen_to_make_denormals() -> None:
    assert worth_trying(a_trace(), denormal_share=DENORMAL_SHARE) == (FLUSHING,)
    assert worth_trying(a_trace(), denormal_share=0.0) == ()
    assert worth_trying(a_trace(), denormal_share=None) == ()


@pytest.mark.usefixtures("_no_glibc")
def test_flushing_is_tried_on_the_users_own_code_unless_it_was_seen_to_make_none() -> None:
    own = Workload(ModelDescription("python", "mine:net", {"target": "mine:net"}), 16)
    answer = replace(recommend(a_survey(), None, None, [], Request(a_workload(16))), workload=own, recommended=ONE)
    assert variants_of(a_survey(), answer, a_trace(), []) == (FLUSHING,)
    assert variants_of(a_survey(), answer, a_trace(), [a_measurement(ONE, 16, 0.1, denormal_share=0.0)]) == ()


@pytest.mark.usefixtures("_no_glibc")
def test_compiling_is_tried_where_issuing_operations_is_a_real_share_of_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: None)
    issuing = Overheads(transfer_seconds=0.0, launch_seconds=0.05, compute_seconds=0.05)
    computing = replace(issuing, launch_seconds=0.01, compute_seconds=0.09)
    assert worth_trying(a_trace(), overheads=issuing) == (COMPILED,)
    assert worth_trying(replace(a_trace(), compiled=True), overheads=issuing) == (), "its owner has done so"
    assert worth_trying(a_trace(), overheads=computing) == ()
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: "There is no C++ compiler here.")
    assert worth_trying(a_trace(), overheads=issuing) == ()


@pytest.mark.usefixtures("_no_glibc")
def test_compiling_is_not_tried_for_a_run_that_is_over_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: None)
    issuing = Overheads(transfer_seconds=0.0, launch_seconds=0.05, compute_seconds=0.05)
    enough = int(16 * LEAST_COMPILE_SECONDS / 0.1)
    assert worth_trying(a_trace(), enough + 16, overheads=issuing) == (COMPILED,)
    assert worth_trying(a_trace(), enough - 16, overheads=issuing) == ()


def test_what_needs_no_trace_is_tried_of_a_model_that_cannot_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "environment_here", lambda: KEEP_MEMORY)
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: None)
    assert worth_trying(None) == (KEEPING,)
    issuing = Overheads(transfer_seconds=0.0, launch_seconds=0.05, compute_seconds=0.05)
    assert worth_trying(None, denormal_share=DENORMAL_SHARE, overheads=issuing) == (FLUSHING, COMPILED, KEEPING)


def test_before_any_time_is_known_the_first_plan_that_may_fit_stands_for_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variants, "environment_here", lambda: KEEP_MEMORY)
    estimate = recommend(a_survey(), None, None, [], Request(a_workload(16)))
    assert estimate.recommended is None
    first, second, *_ = (option.plan for option in estimate.options)
    (stand_in,) = with_a_best(estimate)
    assert stand_in.recommended == first
    assert variants_of(a_survey(), stand_in, None, []) == (replace(first, environment=dict(KEEP_MEMORY)),)
    too_large = replace(estimate.options[0], fits=False)
    (other,) = with_a_best(replace(estimate, options=(too_large, *estimate.options[1:])))
    assert other.recommended == second
    known = replace(estimate, recommended=second)
    assert with_a_best(known) == [known]


def test_before_any_time_is_known_each_device_has_a_plan_that_may_be_the_best() -> None:
    """On a machine with a card the CPU's first plan would keep no time for what a card's steps give reason to."""
    estimate = recommend(a_survey(gpus=[a_gpu()]), None, None, [], Request(a_workload(16)))
    assert {found.recommended.device for found in with_a_best(estimate) if found.recommended} == {"cpu", "cuda:0"}


def test_what_limits_a_step_that_nobody_measured_is_guessed_from_its_trace() -> None:
    large, small = a_trace(), a_trace()
    tiny = Affine(10.0, 1.0)
    few = tuple(replace(each, flops=tiny, read_bytes=tiny, written_bytes=tiny) for each in small.operations)
    assert guess_launch_share(replace(small, operations=few), 16) > 0.9
    assert guess_launch_share(large, 16) < 0.1
    assert guess_launch_share(replace(small, operations=()), 16) == 0.0


def on_a_card(*gpus: Accelerator, **changes: Any) -> tuple[Plan, ...]:
    """Of an answer whose best plan is the card's, measured."""
    rows, survey = [a_measurement(GPU, 16, 0.1, data="pinned", **changes)], a_survey(gpus=gpus)
    answer = recommend(survey, None, None, rows, Request(replace(a_workload(16), data="pinned")))
    assert answer.recommended == GPU
    return variants_of(survey, answer, a_trace("convolution", IMAGES), rows)


def test_on_a_device_what_is_of_a_cpu_alone_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's allocator nor its denormals."""
    monkeypatch.setattr(variants, "environment_here", lambda: KEEP_MEMORY)
    computing = Overheads(transfer_seconds=0.0, launch_seconds=0.0, compute_seconds=0.1)
    assert on_a_card(a_gpu(), denormal_share=1.0, overheads=computing) == (replace(GPU, channels_last=True),)


def test_on_a_device_compiling_is_tried_where_launches_are_a_real_share_and_it_is_not_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()
    monkeypatch.setattr(variants, "why_not_compile", asked.append)
    launching = Overheads(transfer_seconds=0.0, launch_seconds=0.05, compute_seconds=0.05)
    both = (replace(GPU, compiled=True), replace(GPU, channels_last=True))
    for capability in ("7.0", "9.0", None):
        assert on_a_card(a_gpu(compute_capability=capability), overheads=launching) == both
    assert on_a_card(a_gpu(compute_capability="6.1"), overheads=launching) == both[1:]
    assert set(asked) == {"cuda:0"}


def test_what_limits_a_device_is_what_it_waits_for() -> None:
    """Issuing goes on while it computes: a step of many products has none of its time from that."""
    tiny = Affine(10.0, 1.0)
    few = tuple(replace(each, flops=tiny, read_bytes=tiny, written_bytes=tiny) for each in a_trace().operations)
    many = tuple(replace(each, flops=Affine(0.0, 1e9)) for each in few)
    of_few, of_many = (replace(a_trace(), operations=operations) for operations in (few, many))
    assert guess_launch_share(of_few, 16, on_cpu=False) > 0.9
    assert guess_launch_share(of_many, 16, on_cpu=False) == 0.0
    assert guess_launch_share(replace(of_many, device=of_few), 16, on_cpu=False) > 0.9


def test_nothing_is_tried_where_nothing_is_recommended() -> None:
    answer = recommend(a_survey(), None, None, [], Request(a_workload(16)))
    assert answer.recommended is None
    assert variants_of(a_survey(), answer, a_trace("convolution", IMAGES), []) == ()


def test_each_variant_that_the_time_does_for_has_what_it_needs_and_its_part_of_the_rest() -> None:
    least = least_seconds(3.0, compiled=False)
    assert affordable((FLUSHING, KEEPING), 2 * least + 4.0, 3.0) == [(FLUSHING, least + 2.0), (KEEPING, least + 2.0)]
    assert affordable((COMPILED, KEEPING), least + 1.0, 3.0) == [(KEEPING, least + 1.0)]
    assert affordable((COMPILED, KEEPING), LEAST_COMPILE_SECONDS + least, 3.0) == [
        (COMPILED, LEAST_COMPILE_SECONDS + least)
    ]
    assert affordable((FLUSHING,), least - 0.1, 3.0) == []


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_offered_nothing(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert environment_here() is None


def test_another_c_library_is_offered_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError("unrecognized configuration name")  # as on musl

    monkeypatch.setattr(os, "confstr", unknown)
    assert environment_here() is None


def test_the_processes_start_counts_within_the_time() -> None:
    assert seconds_kept_back((KEEPING,), 60.0, 3.0) == pytest.approx(SHARE * 60)
    assert seconds_kept_back((KEEPING,), 60.0, 15.0) == 0
    assert seconds_kept_back((KEEPING,), 5.0, 3.0) == 0
    assert seconds_kept_back((COMPILED, KEEPING), 60.0, 3.0) == pytest.approx(SHARE_COMPILING * 60)
    assert seconds_kept_back((COMPILED, KEEPING), 30.0, 3.0) == pytest.approx(SHARE * 30)


def test_no_time_is_kept_back_where_there_is_nothing_to_try() -> None:
    assert seconds_kept_back((), 60.0, 3.0) == 0
    assert seconds_kept_back((COMPILED,), 30.0, 3.0) == 0


def test_no_time_is_kept_back_for_a_trial_whose_steps_are_too_long_for_it() -> None:
    """Two processes, two turns each, of as many steps as a turn takes."""
    long_steps = (SHARE * 60 - 2 * 3.0) / (2 * 2 * FEWEST_STEPS)
    short, long = (least_turn_seconds(factor * long_steps) for factor in (0.99, 1.01))
    assert seconds_kept_back((FLUSHING,), 60.0, 3.0, short) == pytest.approx(SHARE * 60)
    assert seconds_kept_back((FLUSHING,), 60.0, 3.0, long) == 0
    ((plan, _),) = affordable((FLUSHING, KEEPING), SHARE * 60, 3.0, short)
    assert plan == FLUSHING
    assert affordable((FLUSHING, KEEPING), SHARE * 60, 3.0, long) == []


def test_a_turn_has_fewer_steps_where_they_are_long() -> None:
    assert least_turn_seconds(None) == least_turn_seconds(0.01) == LEAST_TURN_SECONDS
    assert least_turn_seconds(0.3) == pytest.approx(STEPS_A_TURN * 0.3)
    assert least_turn_seconds(0.6) == pytest.approx(LONG_TURN_SECONDS)
    assert least_turn_seconds(0.9) == pytest.approx(FEWEST_STEPS * 0.9)


def test_each_turn_has_time_for_building_the_model() -> None:
    assert least_turn_seconds(0.3, 2.5) == pytest.approx(2.5 + STEPS_A_TURN * 0.3)
    weighty = least_turn_seconds(0.01, 2.5)
    assert least_seconds(3.0, weighty, compiled=False) == pytest.approx(2 * 3.0 + 2 * 2 * 3.5)
    assert seconds_kept_back((KEEPING,), 60.0, 3.0, least_turn_seconds(0.01, 4.0)) == 0
