"""A job's end, asked for more than once."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreError
from app.jobs import FINISHED, REMEMBERED_RESULTS, Job, Jobs, State
from app.keeping import Kept, OnProgress
from app.lab import Lab, Ticket
from app.settings import Settings
from app.store import Store
from app.store.jobs import OWNER
from app.store.machine import Machine
from tests.app.test_store_rubbish import flip_a_bit
from tests.app.test_store_trouble import no_room


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


def test_a_request_to_end_a_job_that_has_ended_waits_until_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the store takes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    room = threading.Event()

    async def use() -> None:
        lab, store, end = Lab(Settings(data_dir=tmp_path)), Store(tmp_path), asyncio.Event()
        jobs = Jobs(lab, store)

        async def work(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
            await end.wait()
            return Kept({}, None)

        job = await jobs.start("measurement", 1.0, work)
        store._thread.submit(room.wait, 60)
        end.set()
        while job.state != "succeeded":  # noqa: ASYNC110 - its event tells of a change that has come
            await asyncio.sleep(0)
        ending = asyncio.create_task(jobs.cancel(job))
        await asyncio.sleep(0.05)
        room.set()
        await ending
        kept = await store.job("measurement", job.id)
        assert kept is not None
        assert kept["state"] == job.state == "succeeded"
        await store.close()
        await lab.close()

    asyncio.run(use())


def test_results_that_the_store_has_are_let_go_and_still_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def give(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
        return Kept({"measurements": []}, None)

    async def use() -> None:
        lab, store = Lab(Settings(data_dir=tmp_path)), Store(tmp_path)
        jobs, done = Jobs(lab, store), list[Job]()
        for _ in range(REMEMBERED_RESULTS + 1):
            job = await jobs.start("measurement", 1.0, give)
            assert job.task is not None
            await job.task
            done.append(job)
        assert [job.is_let_go for job in done] == [True] + [False] * REMEMBERED_RESULTS
        assert done[0].document()["result"] is None
        for job in done:
            document = await jobs.document("measurement", job.id)
            assert document is not None
            assert (document["state"], document["result"]) == ("succeeded", {"measurements": []})
        await store.close()
        await lab.close()

    asyncio.run(use())


def test_results_that_could_not_be_stored_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "file").touch()  # in the folder's place

    async def give(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
        return Kept({"measurements": []}, None)

    async def use() -> None:
        lab, store = Lab(Settings(data_dir=tmp_path)), Store(tmp_path / "file")
        jobs = Jobs(lab, store)
        for _ in range(REMEMBERED_RESULTS + 1):
            job = await jobs.start("measurement", 1.0, give)
            assert job.task is not None
            await job.task
        assert all(job.document()["result"] is not None for job in jobs._jobs.values())
        await store.close()
        await lab.close()

    asyncio.run(use())


async def give_nothing(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
    return Kept({"measurements": []}, None)


async def with_an_end_that_is_not_stored(jobs: Jobs) -> Job:
    """A measurement that began while there was room, and ended when there was none."""
    end = asyncio.Event()

    async def work(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
        await end.wait()
        return await give_nothing(ticket, report)

    job = await jobs.start("measurement", 1.0, work)
    assert job.task is not None
    with no_room():
        end.set()
        await job.task
    assert not job.is_stored
    return job


def test_how_a_job_ended_is_stored_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def use() -> None:
        lab, store = Lab(Settings(data_dir=tmp_path)), Store(tmp_path)
        jobs = Jobs(lab, store)
        job = await with_an_end_that_is_not_stored(jobs)
        with no_room():
            await jobs.save_unsaved()
        assert not job.is_stored
        await jobs.save_unsaved()
        after = await Jobs(lab, store).document("measurement", job.id)
        assert after is not None
        assert after == job.document()
        assert (after["state"], after["result"]) == ("succeeded", {"measurements": []})
        await store.close()
        await lab.close()

    asyncio.run(use())


def test_what_could_not_be_stored_of_a_job_stays_however_many_come_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("app.jobs.REMEMBERED_JOBS", 2)

    async def use() -> None:
        lab, store = Lab(Settings(data_dir=tmp_path)), Store(tmp_path)
        jobs = Jobs(lab, store)
        job = await with_an_end_that_is_not_stored(jobs)
        for _ in range(4):
            later = await jobs.start("measurement", 1.0, give_nothing)
            assert later.task is not None
            await later.task
        assert jobs.find("measurement", job.id) is job
        assert len(jobs._jobs) == 3, "the last one was looked for room before it ended"
        await store.close()
        await lab.close()

    asyncio.run(use())


def test_where_nobody_can_look_a_job_up_it_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.touch()  # a file in the folder's place

    async def use() -> None:
        lab, store = Lab(Settings(data_dir=folder)), Store(folder)
        with pytest.raises(StoreError, match="cannot be looked up"):
            await Jobs(lab, store).document("calibration", "of before")
        await store.close()
        await lab.close()

    asyncio.run(use())


def test_another_service_on_the_same_folder_is_told_when_a_job_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def use() -> None:
        lab, stores = Lab(Settings(data_dir=tmp_path)), [Store(tmp_path), Store(tmp_path)]
        here, there = (Jobs(lab, store) for store in stores)
        free, end = asyncio.Event(), asyncio.Event()

        async def work(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
            await free.wait()
            async with lab._slot.hold(ticket):
                await end.wait()
            return Kept({}, None)

        async def states() -> set[State]:
            (row,) = await there.recent("measurement")
            document = await there.document("measurement", job.id)
            assert document is not None
            return {row["state"], document["state"]}

        job = await here.start("measurement", 1.0, work)
        assert await states() == {"queued"}
        free.set()
        await job.changed()
        assert job.beginning is not None
        await job.beginning
        assert await states() == {"running"}
        end.set()
        assert job.task is not None
        await job.task
        assert await states() == {"succeeded"}
        for store in stores:
            await store.close()
        await lab.close()

    asyncio.run(use())


async def run_one(jobs: Jobs) -> str:
    job = await jobs.start("measurement", 1.0, give_nothing)
    assert job.task is not None
    await job.task
    return job.id


def test_jobs_of_two_services_on_one_folder_are_listed_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = itertools.count(10)
    monkeypatch.setattr("app.jobs._now", lambda: f"2026-11-30T10:{next(minutes)}:00Z")

    async def use() -> None:
        lab, stores = Lab(Settings(data_dir=tmp_path)), [Store(tmp_path), Store(tmp_path)]
        first, second = (Jobs(lab, store) for store in stores)
        names = [await run_one(jobs) for jobs in (second, first, second, first)]
        for jobs in (first, second):
            assert [row["id"] for row in await jobs.recent("measurement")] == names[::-1]
        for store in stores:
            await store.close()
        await lab.close()

    asyncio.run(use())


@pytest.mark.parametrize("lost", [b'id"', b"created_at"])
def test_a_stored_job_that_lost_what_it_is_listed_by_costs_no_other(tmp_path: Path, lost: bytes) -> None:
    async def run_two() -> list[str]:
        lab, store = Lab(Settings(data_dir=tmp_path)), Store(tmp_path)
        jobs = Jobs(lab, store)
        names = [await run_one(jobs) for _ in range(2)]
        await store.close()
        await lab.close()
        return names

    async def list_stored() -> list[str]:
        lab, store = Lab(Settings(data_dir=tmp_path)), Store(tmp_path)
        rows = await Jobs(lab, store).recent("measurement")
        await store.close()
        await lab.close()
        return [row["id"] for row in rows]

    older, _ = asyncio.run(run_two())
    flip_a_bit(tmp_path, "jobs", "document", lost)
    assert asyncio.run(list_stored()) == [older]


def test_another_machines_jobs_are_not_listed_and_not_said_to_have_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        lab = Lab(Settings(data_dir=tmp_path))
        theirs, ours = (Store(tmp_path, Machine(key)) for key in ("theirs", "ours"))
        there, here = Jobs(lab, theirs), Jobs(lab, ours)
        begun = asyncio.Event()

        async def work(ticket: Ticket, report: OnProgress) -> Kept[dict[str, Any]]:
            begun.set()
            await asyncio.sleep(60)
            return Kept({}, None)

        job = await there.start("measurement", 1.0, work)
        await begun.wait()
        assert await here.recent("measurement") == []
        found = await here.document("measurement", job.id)
        assert found is not None
        assert found["state"] not in FINISHED
        assert OWNER not in found
        monkeypatch.setattr("app.job_owners.LONGEST_SECONDS", -1.0)  # as long ago
        ended = await here.document("measurement", job.id)
        assert ended is not None
        assert (ended["state"], ended["code"]) == ("failed", "ended")
        await there.close()
        for store in (theirs, ours):
            await store.close()
        await lab.close()

    asyncio.run(use())
