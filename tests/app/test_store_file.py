"""The store's file, left behind by a kill, or removed and replaced while it is open."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from app.store import Store
from app.store.database import Database
from app.store.machine import Machine
from app.store.store import FILE_NAME
from tests.app.test_store import MEASUREMENT, PROFILE, WORKLOAD, in_store


async def keep(store: Store) -> None:
    await store.keep_profile(PROFILE)


def leave_a_log(folder: Path, killed: Path) -> None:
    """As an earlier version did that was killed: what it wrote last stands in the log beside the file."""

    in_store(folder, keep)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        connection.execute("UPDATE profiles SET fingerprint = 'f2'")
        connection.commit()
        shutil.copytree(folder, killed)
    assert (killed / f"{FILE_NAME}-wal").stat().st_size > 0


def test_what_was_written_before_a_kill_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise sqlite3.OperationalError("database or disk is full")

    async def read(store: Store) -> None:
        assert await store.profile("f2") is not None
        assert store.trouble is not None

    leave_a_log(tmp_path / "running", tmp_path / "killed")
    monkeypatch.setattr("app.store.database._connect_in_turn", full)
    in_store(tmp_path / "killed", read)


def test_a_write_that_was_cut_off_is_taken_back_and_never_read_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, killed = tmp_path / "running", tmp_path / "killed"

    def full(*_: object) -> NoReturn:
        raise sqlite3.OperationalError("database or disk is full")

    async def find_none(store: Store) -> None:
        assert await store.profile("f2") is None
        assert store.unreadable is not None

    async def find(store: Store) -> None:
        assert await store.profile("f1") == PROFILE

    in_store(folder, keep)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that it is written before its end
        connection.execute("UPDATE profiles SET fingerprint = 'f2'")
        connection.execute("INSERT INTO jobs VALUES ('1', 'measurement', 0.0, ?)", ("x" * 100_000,))
        shutil.copytree(folder, killed)
    with monkeypatch.context() as patched:
        patched.setattr("app.store.database._connect_in_turn", full)
        in_store(killed, find_none)
    in_store(killed, find)


def test_the_log_of_a_file_that_was_moved_away_is_kept(tmp_path: Path) -> None:
    folder, away = tmp_path / "killed", tmp_path / "away"
    path, log = folder / FILE_NAME, folder / f"{FILE_NAME}-wal"

    async def read(store: Store) -> None:
        assert await store.profile("f2") is None

    async def read_again(store: Store) -> None:
        assert await store.profile("f2") is not None

    leave_a_log(tmp_path / "running", folder)
    before = log.read_bytes()
    path.rename(away)
    in_store(folder, read)
    (aside,) = folder.glob("*.left-*-wal")
    assert aside.read_bytes() == before
    away.rename(path)
    aside.rename(log)
    in_store(folder, read_again)


def test_a_file_is_whole_by_itself_while_it_is_open(tmp_path: Path) -> None:
    def beside() -> list[Path]:
        return [*tmp_path.iterdir()]

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        assert {path.name for path in beside()} == {FILE_NAME}

    in_store(tmp_path, use)


def test_a_file_that_is_moved_away_and_back_holds_what_it_held(tmp_path: Path) -> None:
    path, away = tmp_path / FILE_NAME, tmp_path / "away"

    async def use(store: Store) -> None:
        await store.keep_profile(replace(PROFILE, fingerprint="f2"))
        path.rename(away)
        assert await store.profile("f1") is None
        await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
        assert "removed or replaced" in str(store.lost)
        away.rename(path)
        await read(store)
        assert (store.trouble, store.lost) == (None, None)

    async def read(store: Store) -> None:
        assert await store.profile("f1") == PROFILE
        assert await store.profile("f2") is not None
        assert await store.measurements("f1", WORKLOAD) == []

    for work in (keep, use, read):
        in_store(tmp_path, work)


@pytest.mark.parametrize("first", ["who has it open", "another process", "who comes later"])
def test_a_backup_that_takes_the_file_s_place_holds_what_it_held(tmp_path: Path, first: str) -> None:
    """Whoever is the first to look into it. By renaming, as rsync does."""
    path, backup = tmp_path / FILE_NAME, tmp_path / "backup"

    async def use(store: Store) -> None:
        await store.keep_profile(replace(PROFILE, fingerprint="f2"))
        backup.rename(path)
        if first == "another process":
            other = Store(tmp_path)
            await read(other)
            await other.keep_profile(replace(PROFILE, fingerprint="f3"))
            await other.close()
        if first != "who comes later":
            await read(store)
            assert "removed or replaced" in str(store.lost)
            assert (await store.profile("f3") is not None) == (first == "another process")

    async def read(store: Store) -> None:
        assert await store.profile("f1") == PROFILE
        assert await store.profile("f2") is None

    in_store(tmp_path, keep)
    shutil.copy(path, backup)
    in_store(tmp_path, use)
    in_store(tmp_path, read)


def test_an_older_state_of_the_file_is_not_taken_for_the_file_that_went(tmp_path: Path) -> None:
    """Though it is by its number, which is given again to what is made when the file is gone."""
    path, away = tmp_path / FILE_NAME, tmp_path / "away"

    async def use(store: Store) -> None:
        await store.keep_profile(replace(PROFILE, fingerprint="f2"))
        path.rename(away)
        await store.open()
        away.write_bytes(older)
        away.rename(path)
        assert await store.profile("f1") == PROFILE
        assert await store.profile("f2") is None
        assert "not used any more" in str(store.lost)

    in_store(tmp_path, keep)
    older = path.read_bytes()
    in_store(tmp_path, use)


def test_of_a_damaged_file_that_takes_the_place_of_one_both_are_told(tmp_path: Path) -> None:
    path, other = tmp_path / FILE_NAME, tmp_path / "other"

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        other.rename(path)
        assert await store.profile("f1") is None
        assert "removed or replaced" in str(store.lost)
        assert "was damaged" in str(store.lost)

    other.write_bytes(b"this is no database" * 100)
    in_store(tmp_path, use)


def test_what_is_written_while_the_file_is_moved_is_written_to_the_one_that_is_used(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME

    async def use(store: Store) -> None:
        await store.open()
        path.rename(tmp_path / "away")
        gone = iter([False])  # at the moment when it is looked
        database = store._database
        assert database is not None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Database, "is_gone", property(lambda _: next(gone, True)))
            await store.keep_profile(PROFILE)
        assert store.trouble is None

    async def read(store: Store) -> None:
        assert await store.profile("f1") == PROFILE

    in_store(tmp_path, use)
    in_store(tmp_path, read)


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
