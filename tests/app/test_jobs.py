"""A job's end, asked for more than once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.jobs import Jobs
from app.keeping import Kept, OnProgress
from app.lab import Lab, Ticket
from app.settings import Settings
from app.store import Store


def test_a_second_request_to_end_a_job_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not cut off the ending of the job's process."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ended: list[str] = []

    async def use() -> None:
        lab, store, begun = Lab(Settings(data_dir=tmp_path)), Store(tmp_path), asyncio.Event()
        jobs = Jobs(lab, store)

        async def work(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
            try:
                begun.set()
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.2)  # as a process takes to end
                ended.append("ended")
            return Kept({}, None)

        job = await jobs.start("measurement", 1.0, work)
        await begun.wait()
        first = asyncio.create_task(jobs.cancel(job))
        await asyncio.sleep(0.05)
        await jobs.cancel(job)
        assert ended == ["ended"]
        await first
        assert job.state == "cancelled"
        await store.close()
        await lab.close()

    asyncio.run(use())
