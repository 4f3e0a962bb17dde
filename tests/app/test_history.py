"""What the machine was: kept when it changes, in words, bounded, and sound after a kill."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.service import Crosspoint
from app.settings import Settings
from app.store import Store, history
from app.store.store import FILE_NAME
from probes.fingerprint import hash_identity, read_identity
from probes.hardware import Accelerator
from tests.app.test_store import in_store
from tests.probes.test_fingerprint import SURVEY, hanging, with_card, with_cpu, with_software

FIRST = read_identity(SURVEY)
SMALLER = read_identity(with_cpu(usable_cores=4.0))


def test_a_state_is_kept_when_it_changes_and_what_changed_is_said(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        for identity in (FIRST, FIRST, SMALLER, SMALLER, FIRST):
            await store.keep_state(identity)
        states = await store.history()
        assert [state["changes"] for state in states] == [["usable cores 4 -> 16"], ["usable cores 16 -> 4"], []]
        assert [state["fingerprint"] for state in states] == [*map(hash_identity, (FIRST, SMALLER, FIRST))]
        assert await store.identity() == FIRST
        assert len(await store.history(1)) == 1

    in_store(tmp_path, use)


def test_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_STATES", 3)

    async def use(store: Store) -> None:
        for cores in range(6):
            await store.keep_state(read_identity(with_cpu(usable_cores=float(cores))))
        assert [state["changes"] for state in await store.history()][-1] == ["usable cores 2 -> 3"]
        assert len(await store.history()) == 3

    in_store(tmp_path, use)


def test_nothing_in_it_leads_to_a_person_or_a_serial_number(tmp_path: Path) -> None:
    in_store(tmp_path, lambda store: store.keep_state(FIRST))
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"NVIDIA H100" in content
    assert b"GPU-1" not in content
    assert b"somewhere" not in content


def test_rows_that_cannot_be_read_cost_themselves_only(tmp_path: Path) -> None:
    in_store(tmp_path, lambda store: store.keep_state(FIRST))
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("INSERT INTO history (seen_at, fingerprint, identity, changes) VALUES (1e300, 'x', '[', '')")
    connection.close()

    async def use(store: Store) -> None:
        assert await store.identity() is None
        assert len(await store.history()) == 1
        await store.keep_state(SMALLER)
        assert (await store.history())[0]["changes"] == []

    in_store(tmp_path, use)


KILLED = """
import asyncio, itertools, sys
from pathlib import Path
from app.store import Store
from probes.fingerprint import read_identity
from tests.probes.test_fingerprint import with_cpu

async def main():
    store = Store(Path(sys.argv[1]))
    for cores in itertools.count(1):
        await store.keep_state(read_identity(with_cpu(usable_cores=float(cores))))
        print(cores, flush=True)

asyncio.run(main())
"""


def test_a_kill_while_it_is_written_leaves_it_whole(tmp_path: Path) -> None:
    writer = subprocess.Popen((sys.executable, "-c", KILLED, str(tmp_path)), stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    written = 0
    for line in writer.stdout:
        written = int(line)
        if written == 20:
            writer.kill()
    writer.wait(60)
    writer.stdout.close()

    async def use(store: Store) -> None:
        states = await store.history()
        assert store.trouble is None
        assert written <= len(states) <= written + 1
        assert all(len(state["changes"]) == 1 for state in states[:-1])

    in_store(tmp_path, use)


def surveys_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *taken: object) -> list[tuple[str, int]]:
    """Fingerprint and length of the history after each of these surveys, in one service."""

    async def use() -> list[tuple[str, int]]:
        found = []
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            for survey in taken:
                monkeypatch.setattr("probes.survey.take_survey", lambda *_, survey=survey, **__: survey)
                seen = await crosspoint.survey(fresh=True)
                await crosspoint.note_state(seen)
                found.append((seen.fingerprint, len(await crosspoint.history())))
        return found

    return asyncio.run(use())


NO_CARDS = replace(SURVEY, accelerators=())
HUNG = hanging(replace(with_software(nvidia_driver="550.54"), accelerators=(Accelerator("pci-1"),)), "nvidia")


def test_a_hung_driver_makes_no_new_fingerprint_and_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, hung, after, gone = surveys_of(tmp_path, monkeypatch, SURVEY, HUNG, SURVEY, NO_CARDS)
    assert before == hung == after
    assert gone[0] != before[0]
    assert gone[1] == 2


def test_a_driver_that_hangs_from_the_start_is_remembered_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = surveys_of(tmp_path, monkeypatch, SURVEY)
    assert surveys_of(tmp_path, monkeypatch, HUNG) == [before]


def test_what_nobody_knows_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = surveys_of(tmp_path, monkeypatch, HUNG, SURVEY)
    assert (first[1], later[1]) == (0, 1)
    assert first[0] != later[0]


def test_another_driver_is_one_line(tmp_path: Path) -> None:
    cards = tuple(replace(card, driver_version="560.28") for card in with_card().accelerators)
    after = read_identity(replace(with_software(nvidia_driver="560.28"), accelerators=cards))

    async def use(store: Store) -> None:
        await store.keep_state(FIRST)
        await store.keep_state(after)
        assert (await store.history())[0]["changes"] == ["NVIDIA driver 550.54 -> 560.28"]

    in_store(tmp_path, use)
