"""What a lab says to those whose measurement it ends."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from app.errors import LabError
from app.lab import Lab
from app.lab.child import Child
from app.lab.temporary_folder import CHILD, LEAST_AGE_SECONDS
from app.settings import Settings
from tests.app.lab.programs import ECHO, serving

# As the real one: when who sends it jobs is gone, it leaves.
LEAVING = ('say(event="progress", job=job["job"], fraction=0)', "sys.stdin.read()", "sys.exit(0)")
LEAVING_BY_ITSELF = (LEAVING[0], LEAVING[-1])


@pytest.mark.parametrize(("closing", "words"), [(True, "shutting down"), (False, "exit code 0")])
def test_whoever_waits_while_it_closes_is_told_so_and_not_that_a_process_ended(
    closing: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def use() -> None:
        lab = Lab(Settings(data_dir=tmp_path), serving(*(LEAVING if closing else LEAVING_BY_ITSELF)))
        started = asyncio.Event()
        job = asyncio.create_task(lab.run({"kind": "measure"}, lambda _: started.set()))
        await asyncio.wait_for(started.wait(), 30)
        if closing:
            await lab.close()
        with pytest.raises(LabError, match=words):
            await job
        await lab.close()

    asyncio.run(use())


def test_a_result_that_has_come_is_given_whoever_cancels_while_its_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    leaving = serving('say(event="result", job=job["job"], result={"points": 1})', "sys.stdin.read()")
    end, begun = Child.end, asyncio.Event()

    async def begin_to_end(child: Child) -> None:
        begun.set()
        await end(child)

    monkeypatch.setattr(Child, "end", begin_to_end)

    async def use() -> None:
        lab = Lab(Settings(data_dir=tmp_path), leaving)
        job = asyncio.create_task(lab.run({"kind": "calibrate"}))
        await asyncio.wait_for(begun.wait(), 30)
        job.cancel()
        assert await job == {"points": 1}
        assert not lab.measuring
        assert not lab._living
        await lab.close()

    asyncio.run(use())


def test_what_a_killed_command_left_is_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine where no service ever runs, too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{CHILD}left"
    left.mkdir()
    os.utime(left, (time.time() - 2 * LEAST_AGE_SECONDS,) * 2)

    async def use() -> None:
        lab = Lab(Settings(data_dir=tmp_path), ECHO)
        await lab.run({"kind": "measure"})
        await lab.close()

    asyncio.run(use())
    assert not list(tmp_path.glob(f"{CHILD}*"))
