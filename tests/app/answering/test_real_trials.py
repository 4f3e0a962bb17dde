"""Trials of variants in real processes, of models that really step."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.advisor.denormals import DENORMAL_SHARE
from app.answering import trials
from app.answering.trial_time import LEAST_TURNS, PROCESSES
from probes.compilers import why_not_compile
from probes.measurement import Measurement
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.app.answering.trial_runs import (
    CHANNELS_LAST,
    CNN,
    COMPILED,
    FLUSHING,
    KEEPING,
    MLP,
    SWIN,
    glibc_only,
    run,
)
from tests.probes.microtrain.measuring.test_compiled import QUICK

SLOW_BEGIN_SECONDS = 5.0


def run_for_real(
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_told: Callable[[Measurement], bool] = lambda found: True,
    seconds: float = 6.0,
    **changes: Any,
) -> Measurement:
    """Two turns each, of real processes. Where the machine is so slow at this moment that nothing comes of them: with
    the time that they would have for a model that takes long to build."""
    monkeypatch.setattr(trials, "MOST_TURNS", LEAST_TURNS)
    found = run(data_dir, None, seconds=seconds, **changes)
    if found is None or not is_told(found):
        more = PROCESSES * LEAST_TURNS * SLOW_BEGIN_SECONDS
        found = run(data_dir, None, seconds=seconds + more, **{**changes, "begin_seconds": SLOW_BEGIN_SECONDS})
    assert found is not None
    return found


@glibc_only
def test_a_plan_runs_with_its_environment_in_a_real_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_for_real(tmp_path, monkeypatch)
    assert found.outcome == "ok"
    assert found.plan == KEEPING
    assert found.step is not None
    assert found.control is not None
    assert min(found.step.samples) > 0
    assert min(found.control.samples) > 0
    assert found.memory is not None
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_network_of_convolutions_runs_channels_last_in_a_real_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_for_real(tmp_path, monkeypatch, workload=Workload(CNN, 2), plan=CHANNELS_LAST)
    assert (found.outcome, found.plan) == ("ok", CHANNELS_LAST)
    assert found.control is not None
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_fading_network_shows_its_denormals_and_what_flushing_changes_in_real_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload(python_model("tests.probes.microtrain.fading:fading"), 16, "inference")
    found = run_for_real(
        tmp_path, monkeypatch, lambda found: found.denormal_share is not None, workload=workload, plan=FLUSHING
    )
    assert (found.outcome, found.plan) == ("ok", FLUSHING)
    assert found.control is not None
    assert found.denormal_share is not None
    assert found.denormal_share >= DENORMAL_SHARE  # the control's


def test_a_config_s_model_runs_channels_last_in_processes_that_import_the_library_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"step_seconds": 0.1, "begin_seconds": 0.5}
    found = run_for_real(tmp_path, monkeypatch, seconds=10.0, workload=Workload(SWIN, 4), plan=CHANNELS_LAST, **seconds)
    assert (found.outcome, found.plan) == ("ok", CHANNELS_LAST)
    assert found.control is not None


@pytest.mark.skipif(why_not_compile() is not None, reason=str(why_not_compile()))
def test_a_compiled_plan_runs_in_a_real_process_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    found = run_for_real(tmp_path, monkeypatch, seconds=120.0, workload=Workload(MLP, 4, "inference"), plan=COMPILED)
    assert (found.outcome, found.plan) == ("ok", COMPILED)
    assert found.control is not None
    assert found.startup_seconds is not None
    assert found.startup_seconds > 0
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert not list(tmp_path.glob("crosspoint-compile-*"))
