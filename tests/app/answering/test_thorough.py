"""What `thorough` does beyond `quick`: it keeps time for variants of the best plan, and offers what paid."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.environments import KEEP_MEMORY
from app.answering import real_steps, trial_time, variants
from app.answering.answer_notes import AnswerNotes
from app.answering.real_steps import RealSteps
from app.answering.trial_time import IMPORT_SECONDS, LEAST_TURN_SECONDS, SHARE
from app.keeping import say_nothing
from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings
from probes import survey as surveys
from probes.hardware import Survey
from probes.measurement import Measurement, MemoryPeak
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU
from tests.app.answering.test_trials import answering, compiling
from tests.app.answering.trial_runs import glibc_only
from tests.app.opened import with_crosspoint

IRIS = Workload(parse_model("iris-mlp"), 4)
ASKED = Request(IRIS, effort="thorough", time_limit_seconds=60.0, precision="fp32", devices=("cpu",))


def thorough(folder: Path, program: tuple[str, ...], asked: Request = ASKED) -> Recommendation:
    """IRIS is traced for real, and measured by a program."""

    async def session() -> Recommendation:
        settings = Settings(data_dir=folder)
        async with Crosspoint(settings) as crosspoint:
            await crosspoint.trace(IRIS)
            await crosspoint.lab.close()
            crosspoint.lab = Lab(settings, program)
            return await crosspoint.recommend(asked)

    return asyncio.run(session())


@glibc_only
def test_a_thorough_answer_offers_what_paid_on_the_best_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(real_steps, "read_allocators", lambda root: ("libtcmalloc_minimal.so.4",))
    found = thorough(tmp_path, answering(0.5))
    assert found.recommended is not None
    assert found.recommended.environment == KEEP_MEMORY
    assert {"environment-pays", "allocator-installed"} <= {reason.code for reason in found.reasons}
    assert "LD_PRELOAD" not in str(found.settings)


def test_a_thorough_answer_compiles_where_dispatch_is_the_limit_and_says_what_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(variants, "environment_here", lambda: None)
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: None)
    monkeypatch.setattr("app.answering.compilable.why_not_compile", lambda *_: None)
    monkeypatch.setattr(trial_time, "LEAST_COMPILE_SECONDS", 2.0)
    found = thorough(tmp_path, compiling())
    assert found.recommended is not None
    assert found.recommended.compiled
    (reason,) = (reason for reason in found.reasons if reason.code == "compile-pays")
    assert reason.evidence["break_even_steps"] == pytest.approx(20, abs=1)


@glibc_only
def test_a_thorough_answer_is_silent_where_it_did_not_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = thorough(tmp_path, answering(1.0))
    assert found.recommended is not None
    assert found.recommended.environment == {}
    assert "malloc" not in str(found.to_json()).lower()


@glibc_only
def test_a_trial_that_fails_costs_the_answer_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dying = tuple(word.replace("assert (kept", "assert not kept; assert (kept") for word in answering(0.5))
    found = thorough(tmp_path, dying)
    assert found.options[0].basis == "measured"
    assert "not-measured" not in {reason.code for reason in found.reasons}


@glibc_only
def test_a_trial_that_told_nothing_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    caplog.set_level("INFO", "app.answering")
    thorough(tmp_path, answering(0.5, lines=["if kept: row['steps'] = 1"]))
    (line,) = (line for line in caplog.messages if "told nothing" in line)
    assert "MALLOC_MMAP_THRESHOLD_" in line


def noting(folder: Path) -> str:
    """Writes down the seconds of each job, and whether it has the environment."""
    return f"print(job['seconds'], bool(kept), file=open({str(folder / 'jobs')!r}, 'a'))"


def jobs(folder: Path) -> list[tuple[float, bool]]:
    lines = (folder / "jobs").read_text(encoding="utf-8").splitlines()
    return [(float(seconds), kept == "True") for seconds, kept in map(str.split, lines)]


def building_takes(seconds: float, program: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.replace("'noise': {}", f"'noise': {{}}, 'to_begin_seconds': {seconds}") for word in program)


@glibc_only
def test_what_building_the_model_took_is_on_each_turn_of_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    thorough(tmp_path, building_takes(0.2, answering(0.5, lines=[noting(tmp_path)])))
    turns = [seconds for seconds, kept in jobs(tmp_path) if kept]
    assert turns[0] == pytest.approx(LEAST_TURN_SECONDS + IMPORT_SECONDS + 0.2)
    assert len(turns) >= 2


@glibc_only
def test_nothing_is_tried_where_building_takes_too_long_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    thorough(tmp_path, building_takes(60.0, answering(0.5, lines=[noting(tmp_path)])))
    assert not any(kept for _, kept in jobs(tmp_path))


def test_all_the_time_is_the_plans_where_there_is_nothing_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(variants, "environment_here", lambda: None)
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: "There is no C++ compiler here.")
    thorough(tmp_path, answering(0.5, lines=[noting(tmp_path)]))
    (contest, _), *_ = jobs(tmp_path)
    assert contest > (1 - SHARE) * 60.0 + 3.0


def test_time_is_kept_where_two_processes_fit_and_it_does_for_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "environment_here", lambda: KEEP_MEMORY)
    request = Request(a_workload(16), effort="thorough")

    class Nothing:
        async def measurements(self, *_: object) -> list[Measurement]:
            return []

    def kept(peak_bytes: int, to_begin_seconds: float = 0.0) -> float:
        row = a_measurement(ONE, 16, 0.1, memory=MemoryPeak(process_bytes=peak_bytes))
        steps = RealSteps(cast(Any, Nothing()), request, say_nothing, AnswerNotes())
        steps.to_begin_seconds = to_begin_seconds
        answer = recommend(a_survey(), None, None, [row], request)
        return asyncio.run(steps.seconds_for_variants(a_survey(), answer, None, 3.0))

    assert kept(10**9) == pytest.approx(SHARE * 60.0)
    assert kept(6 * 10**9) == 0
    assert kept(10**9, to_begin_seconds=5.0) == 0


@glibc_only
def test_a_model_that_cannot_be_followed_has_the_variants_that_need_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    refused = "say(event='failed', job=job['job'], code='unsupported', reason='It asks its numbers.')"
    plan = "row['plan'] = job['plans'][0]"
    program = tuple(
        word.replace(plan, f"if job['kind'] == 'trace': {refused}; continue\n    {plan}") for word in answering(0.5)
    )

    async def use(crosspoint: Crosspoint) -> Recommendation:
        return await crosspoint.recommend(ASKED)

    found = with_crosspoint(tmp_path, use, program)
    assert {"not-traced", "environment-pays"} <= {reason.code for reason in found.reasons}
    assert found.recommended is not None
    assert found.recommended.environment == KEEP_MEMORY


def test_a_thorough_answer_compiles_for_a_card_that_waits_for_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card and its steps are a program's: what is told is which trials there are, and what becomes of them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(variants, "why_not_compile", lambda *_: None)
    monkeypatch.setattr("app.answering.compilable.why_not_compile", lambda *_: None)
    monkeypatch.setattr(trial_time, "LEAST_COMPILE_SECONDS", 2.0)
    take = surveys.take_survey

    def with_card(*arguments: Any, **named: Any) -> Survey:
        return replace(take(*arguments, **named), accelerators=(a_gpu(),))

    monkeypatch.setattr(surveys, "take_survey", with_card)
    launching = {"transfer_seconds": 0.0, "launch_seconds": 0.06, "synchronize_seconds": 0.0, "compute_seconds": 0.04}
    known = {"startup_seconds": 1.0, "data": IRIS.data, "overheads": launching}
    program = tuple(
        word.replace("compiled = row", f"row.update({known!r})\n    compiled = row")
        for word in compiling("row['startup_seconds'] = 11.0")
    )

    found = thorough(tmp_path, program, replace(ASKED, devices=("cuda:0",)))
    assert found.recommended == replace(GPU, compiled=True)
    (reason,) = (reason for reason in found.reasons if reason.code == "compile-pays")
    assert reason.evidence["break_even_steps"] == pytest.approx((11.0 - 1.0) / 0.05, abs=2)
    assert found.snippet is not None
    assert "torch.compile(model)" in found.snippet
    assert found.settings["compile"] is True
    assert "cuda:0 in fp32, compiled" in found.verdict
