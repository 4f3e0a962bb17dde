"""A trace is made once for all who ask for it, and what was measured before it teaches from then on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.request import Request
from app.errors import LabError
from app.service import Crosspoint
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_measurement
from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint

IRIS = Workload(parse_model("iris-mlp"), 64)


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def tracing(folder: Path) -> tuple[str, ...]:
    """A child that has one trace for whatever it is asked, and writes each job down."""
    (folder / "trace.json").write_text(json.dumps(a_profile().networks[0].trace.to_json()), encoding="utf-8")
    return serving(
        f"open({str(folder / 'jobs')!r}, 'a').write(line)",
        f"say(event='result', job=job['job'], result=json.load(open({str(folder / 'trace.json')!r})))",
    )


def jobs(folder: Path) -> int:
    return len((folder / "jobs").read_text(encoding="utf-8").splitlines())


def test_a_model_that_several_ask_for_at_once_is_traced_once(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        sizes = (8, 16, 32, 64)  # a trace is for every batch size
        answers = await asyncio.gather(
            *(crosspoint.recommend(Request(replace(IRIS, batch_size=size))) for size in sizes),
            *(crosspoint.trace(IRIS) for _ in range(4)),
        )
        assert len(answers) == 8
        await crosspoint.trace(replace(IRIS, mode="inference"))

    with_crosspoint(tmp_path, use, tracing(tmp_path))
    assert jobs(tmp_path) == 2


def test_a_trace_goes_on_when_who_asked_first_leaves_and_serves_who_asked_meanwhile(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        first, second = (asyncio.create_task(crosspoint.trace(IRIS)) for _ in range(2))
        while not (tmp_path / "jobs").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.001)
        first.cancel()
        assert (await second).operations
        assert first.cancelled()

    with_crosspoint(tmp_path, use, tracing(tmp_path))
    assert jobs(tmp_path) == 1


def test_a_trace_that_failed_is_tried_again_by_who_asks_next(tmp_path: Path) -> None:
    program = serving('say(event="failed", job=job["job"], code="invalid-model", reason="No.")')

    async def use(crosspoint: Crosspoint) -> None:
        found = await asyncio.gather(*(crosspoint.trace(IRIS) for _ in range(3)), return_exceptions=True)
        assert {getattr(error, "code", None) for error in found} == {"invalid-model"}
        with pytest.raises(LabError, match="No"):
            await crosspoint.trace(IRIS)

    with_crosspoint(tmp_path, use, program)


def test_what_was_measured_of_a_model_that_nobody_had_traced_teaches_once_it_is_traced(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        document = {"measurements": [a_measurement(ONE, 64, 1e-3).to_json()]}
        await crosspoint.keep_measurements(survey, IRIS, document)
        assert await crosspoint.store.lessons(survey.fingerprint) == []
        await crosspoint.trace(IRIS)
        (lesson,) = await crosspoint.store.lessons(survey.fingerprint)
        assert (lesson.plan, lesson.batch_size, lesson.seconds) == (ONE, 64, 1e-3)

    with_crosspoint(tmp_path, use, tracing(tmp_path))
