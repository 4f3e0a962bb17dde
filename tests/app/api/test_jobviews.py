"""A job is listed for everybody: of what a stranger sent it repeats no more than a problem does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.advisor.request import InvalidRequest
from app.api.context import Context
from app.api.jobviews import start_job, stream_job
from app.api.measurements import _rows
from app.errors import LabError
from app.jobs import Jobs
from app.keeping import Kept, OnProgress
from app.lab import Lab, Ticket
from app.settings import Settings
from app.store import Store
from probes.measurement import Measurement
from tests.app.advisor.build import ONE

SENT = {"model": {"huggingface": {"model_type": "funnel", "pooling_type": "zqpool"}}, "batch_size": 2}
SAID = "transformers says: Got zqpool for `pooling_type` but only mean and max are supported."


async def documents_of(error: Exception, folder: Path) -> list[dict[str, Any]]:
    """A job that fails so, as all of those see it who may ask for it."""
    lab, store = Lab(Settings(data_dir=folder)), Store(folder)
    jobs = Jobs(lab, store)
    context = cast("Context", SimpleNamespace(jobs=jobs))

    async def work(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
        raise error

    accepted = json.loads(bytes((await start_job(context, "measurement", 1.0, work, SENT)).body))
    job = jobs.find("measurement", accepted["id"])
    assert job is not None
    assert job.task is not None
    await job.task
    (listed,), stored = await jobs.recent("measurement"), await store.job("measurement", job.id)
    told = [json.loads(event.raw_data or "") async for event in stream_job(job)]
    assert stored is not None
    await store.close()
    await lab.close()
    return [job.document(), listed, stored, *told]


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (LabError("invalid-model", SAID), "invalid-model", SAID.replace("zqpool", "…")),
        (InvalidRequest("Devices here: cpu."), "invalid-request", "Devices here: cpu."),
    ],
)
def test_the_reason_of_a_failed_job_shows_nobody_what_was_sent(
    error: Exception, code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for document in asyncio.run(documents_of(error, tmp_path)):
        assert (document["state"], document["code"], document["reason"]) == ("failed", code, reason)


def test_nor_does_the_reason_of_a_plan_that_failed_beside_others() -> None:
    failed = Measurement(plan=ONE, batch_size=2, data="pageable", outcome="failed", reason=SAID)
    (row,) = _rows([failed], SENT)
    assert row["reason"] == SAID.replace("zqpool", "…")
    assert _rows([Measurement(plan=ONE, batch_size=2, data="pageable", outcome="ok")], SENT)[0]["reason"] is None
