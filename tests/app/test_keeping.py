"""What took long to measure is kept, whoever goes away meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from app.errors import StoreError
from app.jobs import Job
from app.keeping import forward_progress, say_waiting, to_its_end
from app.lab import Ticket


def test_who_is_cancelled_while_a_result_is_kept_gets_it_all_the_same() -> None:
    kept: list[str] = []

    async def keep(begun: asyncio.Event, may_end: asyncio.Event) -> str:
        begun.set()
        await may_end.wait()
        kept.append("kept")
        return "result"

    async def use() -> str:
        begun, may_end = asyncio.Event(), asyncio.Event()
        asking = asyncio.create_task(to_its_end(keep(begun, may_end)))
        await begun.wait()
        for _ in range(2):
            asking.cancel()
            await asyncio.sleep(0)
        may_end.set()
        return await asking

    assert asyncio.run(use()) == "result"
    assert kept == ["kept"]


def test_what_fails_meanwhile_fails() -> None:
    async def fail() -> None:
        raise StoreError("This was not saved.")

    with pytest.raises(StoreError, match="not saved"):
        asyncio.run(to_its_end(fail()))


def test_a_job_that_waited_says_so_no_more_once_it_begins_and_is_not_done_before_its_end() -> None:
    ticket, begun = Ticket(1.0), list[bool]()
    job = Job("calibration", ticket)
    ticket.on_start = lambda: begun.append(True)
    say_waiting(ticket, job.report)
    assert ticket.on_wait is not None
    ticket.on_wait()
    assert "waiting" in job.document()["message"]
    ticket.on_start()
    assert (job.document()["message"], begun) == ("starting", [True])
    forward_progress(job.report)({"fraction": 1.4, "message": "micro-networks"})
    assert job.document()["progress"] < 1
    job.finish("succeeded")
    assert job.document()["progress"] == 1
