"""The store's file, left behind by a kill, or removed and replaced while it is open."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from app.store import Store
from app.store.database import Database
from app.store.machine import Machine
from app.store.store import FILE_NAME
from tests.app.test_store import MEASUREMENT, PROFILE, WORKLOAD, in_store


def test_what_was_written_before_a_kill_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still stands in the write-ahead log, which only a close moves into the file."""
    killed = tmp_path / "killed"

    async def leave_a_log(store: Store) -> None:
        await store.keep_profile(PROFILE)
        shutil.copytree(tmp_path / "running", killed)

    def full(*_: object) -> NoReturn:
        raise sqlite3.OperationalError("database or disk is full")

    async def read(store: Store) -> None:
        assert await store.profile("f1") == PROFILE
        assert store.trouble is not None

    in_store(tmp_path / "running", leave_a_log)
    assert (killed / f"{FILE_NAME}-wal").stat().st_size > 0
    monkeypatch.setattr("app.store.database._connect_in_turn", full)
    in_store(killed, read)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_removed_or_replaced_meanwhile_is_made_anew_or_used(tmp_path: Path, replaced: bool) -> None:
    folder, other = tmp_path / "data", tmp_path / "other"

    async def put_in_its_place(store: Store) -> None:
        await store.keep_profile(replace(PROFILE, fingerprint="f2"))

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        shutil.rmtree(folder)
        if replaced:
            other.rename(folder)
        await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
        assert store.trouble is None
        assert await store.profile("f1") is None
        assert "removed or replaced" in str(store.lost)

    async def read(store: Store) -> None:
        assert await store.measurements("f1", WORKLOAD) == [MEASUREMENT]
        assert (await store.profile("f2") is not None) == replaced

    in_store(other, put_in_its_place)
    in_store(folder, use)
    in_store(folder, read)


@pytest.mark.parametrize("used_meanwhile", [False, True])
def test_a_folder_that_was_away_for_a_while_is_no_loss(tmp_path: Path, *, used_meanwhile: bool) -> None:
    """As where a mount drops out and is there again; what is written meanwhile goes to memory, or to a new file."""
    folder, away = tmp_path / "data", tmp_path / "away"

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        folder.rename(away)
        if not used_meanwhile:
            folder.touch()
        await store.open()
        assert "not used any more" in str(store.lost)
        assert await store.profile("f1") is None
        folder.rename(tmp_path / "meanwhile")
        away.rename(folder)
        await store.open()
        assert (store.trouble, store.lost) == (None, None)
        assert await store.profile("f1") == PROFILE

    in_store(folder, use)


MACHINE = Machine("this one")


def note(database: Database) -> None:
    """Not yet in the file itself, but in its log."""
    with database.connection as connection:
        connection.execute("INSERT INTO jobs VALUES ('1', 'measurement', 0.0, '{}')")


def knows_it(database: Database) -> bool:
    return bool(database.connection.execute("SELECT 1 FROM jobs WHERE id = '1'").fetchall())


def test_of_two_processes_that_meet_a_damaged_file_at_once_one_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    first, second = Database(path, MACHINE), Database(path, MACHINE)
    first.replace_damaged()
    note(first)
    second.replace_damaged()
    assert not first.is_gone
    assert knows_it(second)
    assert len([*tmp_path.glob("*.damaged-*")]) == 1
    for database in (first, second):
        database.close()


def test_a_file_that_another_process_put_in_a_damaged_one_s_place_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"this is no database" * 100)
    others: list[Database] = []

    def damaged(*_: object) -> NoReturn:
        monkeypatch.undo()
        others.append(Database(path, MACHINE))
        note(others[0])
        raise sqlite3.DatabaseError("file is not a database")

    monkeypatch.setattr("app.store.database._connect_in_turn", damaged)
    database = Database(path, MACHINE)
    assert knows_it(database)
    assert not others[0].is_gone
    for each in (database, *others):
        each.close()
