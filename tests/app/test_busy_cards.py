"""A card on which others compute, in the answers of a Crosspoint and in what it keeps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.request import Request
from app.seen_before import with_devices, with_survey
from app.service import Crosspoint
from probes.hardware import Survey
from probes.measurement import MemoryPeak
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import GB, ONE, a_gpu, a_measurement, a_survey
from tests.app.advisor.machine import GPU, a_profile
from tests.app.opened import with_crosspoint

FIGURES = {"parameters": 10**7, "flops_per_sample": 10**11, "activation_bytes_per_sample": 10**6, "operations": 50}
SUMMARY = Workload(parse_model({"summary": FIGURES}), 8)
BUSY = a_gpu(utilization_percent=98.0)
LIKE = a_gpu(id="GPU-2", torch_device="cuda:1", utilization_percent=40.0)


@pytest.mark.parametrize("ours", [False, True])
def test_an_answer_says_who_computes_there_unless_it_may_be_we(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ours: bool
) -> None:
    from probes import survey as surveys

    take = surveys.take_survey

    def with_card(*arguments: Any, **named: Any) -> Survey:
        return replace(take(*arguments, **named), accelerators=(BUSY,))

    monkeypatch.setattr("probes.survey.take_survey", with_card)

    async def use(crosspoint: Crosspoint) -> list[str]:
        profile = a_profile((ONE, GPU), (await crosspoint.survey()).fingerprint)
        await crosspoint.store.keep_profile(profile, profile)
        if ours:
            crosspoint.lab._measured_at = math.inf  # just now, however long the answer takes
        answer = await crosspoint.recommend(Request(SUMMARY, "fp32", ("cuda",)))
        assert answer.recommended == GPU
        return [reason.text for reason in answer.reasons if reason.code == "busy-device"]

    told = with_crosspoint(tmp_path, use)
    assert len(told) == (0 if ours else 1)
    assert all("98 %" in text for text in told)


def test_a_measurement_keeps_who_computed_there_before() -> None:
    survey = a_survey(gpus=[BUSY])
    assert with_survey(a_measurement(GPU, 8, 0.1), survey).device_busy_fraction == 0.98
    assert with_survey(a_measurement(ONE, 8, 0.1), survey).device_busy_fraction is None
    refused = with_survey(a_measurement(GPU, 8, 0.1, outcome="out-of-memory", step=None), survey)
    assert refused.available_bytes == 23 * GB


def test_a_measurement_keeps_what_was_free_where_nobody_knows_what_it_took() -> None:
    survey = a_survey(gpus=[BUSY])
    assert with_survey(a_measurement(GPU, 8, 0.1, memory=MemoryPeak()), survey).available_bytes == 23 * GB
    known = a_measurement(GPU, 8, 0.1, memory=MemoryPeak(reserved_bytes=GB))
    assert with_survey(known, survey).available_bytes is None


def test_a_calibration_keeps_how_busy_its_cards_were_and_which_are_like_them() -> None:
    found = with_devices(a_profile((ONE, GPU)), a_survey(gpus=[BUSY, LIKE]))
    assert found.noise["device_busy_fraction"] == 0.98
    assert found.like == {"cuda:1": "cuda:0"}
    assert found.hardware is not None
    alone = with_devices(a_profile((ONE,)), a_survey(gpus=[BUSY, LIKE]))
    assert ("device_busy_fraction" in alone.noise, alone.like) == (False, {})
