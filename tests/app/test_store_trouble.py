"""A store that cannot be written, or not any more: a full disk, a folder that is none, a file that is damaged."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from app.errors import RETRY_SECONDS, StoreError
from app.settings import HOMELESS
from app.store import Store
from app.store.store import FILE_NAME, READ, REMEMBERED_PROFILES
from app.upkeep import TROUBLE_SECONDS
from probes.profile import Profile
from tests.app.test_store import PROFILE, in_store


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """What this process writes into files meanwhile fails, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_an_error_that_says_so_and_reading_goes_on(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        database = store._database
        assert database is not None
        await store._run(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchall())
        with pytest.raises(StoreError, match=r"not saved: .*full"):
            await store.keep_job({"id": "1", "kind": "measurement", "text": "x" * 1_000_000})
        assert await store.profile("f1") == PROFILE

    in_store(tmp_path, use)


def test_a_write_that_failed_is_told_until_one_succeeds_or_the_next_look_finds_room(tmp_path: Path) -> None:
    async def fail(store: Store) -> None:
        with no_room(), pytest.raises(StoreError, match="not saved"):
            await store.keep_profile(PROFILE)
        assert "cannot be written" in str(store.trouble)

    async def use(store: Store) -> None:
        await store.open()
        await fail(store)
        with no_room():
            await store.open()
            await store.forget_profiles("nobody's")  # writes nothing
        assert "cannot be written" in str(store.trouble)
        assert store.unreadable is None
        await store.open()
        assert store.trouble is None
        await fail(store)
        await store.keep_profile(PROFILE)
        assert store.trouble is None

    in_store(tmp_path, use)


def test_a_disk_with_room_for_little_is_not_said_to_have_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a look writes fits, and a profile does not: with each look it was said that all is well again."""
    large = {"id": "1", "kind": "measurement", "state": "succeeded", "text": "x" * 1_000_000}

    async def use(store: Store) -> None:
        await store.open()

        def limit(pages: int) -> Callable[[sqlite3.Connection], object]:
            return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

        ((used,),) = await store._run(lambda connection: connection.execute("PRAGMA page_count").fetchall())
        await store._run(limit(used + 20))
        for _ in range(2):
            with pytest.raises(StoreError, match="full"):
                await store.keep_job(large)
            await store.open()
            assert store.trouble is None
        assert "can be written again" not in caplog.text
        await store._run(limit(10**6))
        await store.keep_job(large)
        await store.keep_job({**large, "id": "2"})
        assert caplog.text.count("can be written again") == 1

    in_store(tmp_path, use)


def test_whoever_holds_the_file_for_reading_is_told_until_a_write_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.database.BUSY_SECONDS", 0.05)

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as browser:
            browser.execute("BEGIN")
            assert browser.execute("SELECT * FROM profiles").fetchall()
            with pytest.raises(StoreError, match="another process holds it"):
                await store.keep_job({"id": "1", "kind": "measurement"})
            assert "another process holds it" in str(store.trouble)
            assert await store.profile("f1") == PROFILE
        await store.keep_job({"id": "1", "kind": "measurement"})
        assert store.trouble is None

    in_store(tmp_path, use)


def test_a_file_that_a_failed_write_left_damaged_is_begun_anew_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: object) -> None:
        monkeypatch.undo()  # the new file is whole
        raise sqlite3.DatabaseError("file is not a database")

    async def use(store: Store) -> None:
        await store.open()
        with no_room(), pytest.raises(StoreError, match="not saved"):
            await store.keep_profile(PROFILE)
        monkeypatch.setattr("app.store.database._try_to_write", damaged)
        await store.open()
        await store.keep_profile(PROFILE)
        assert store.trouble is None

    in_store(tmp_path, use)
    assert list(tmp_path.glob("*.damaged-*"))


def test_what_is_asked_after_the_end_is_an_error_of_the_store_s(tmp_path: Path) -> None:
    async def use() -> None:
        store = Store(tmp_path)
        await store.close()
        with pytest.raises(StoreError, match="shutting down"):
            await store.profile("f1")

    asyncio.run(use())


def test_where_there_can_be_no_file_the_store_works_and_says_that_nothing_is_saved(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")

    async def use(store: Store) -> None:
        with pytest.raises(StoreError, match="not saved"):
            await store.keep_profile(PROFILE)
        assert await store.profile("f1") == PROFILE
        with pytest.raises(StoreError, match="not removed"):
            await store.forget_profiles("here")
        assert store.trouble is not None

    in_store(tmp_path / "file" / "below", use)


def test_without_a_home_folder_the_store_works_and_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def use(store: Store) -> None:
        await store.open()
        with pytest.raises(StoreError, match=r"not saved: .*set CROSSPOINT_DATA_DIR"):
            await store.keep_profile(PROFILE)
        assert await store.profile("f1") == PROFILE

    in_store(HOMELESS, use)
    assert list(tmp_path.iterdir()) == []


def test_a_profile_is_parsed_once_whoever_asks_and_however_often_nothing_can_be_saved(tmp_path: Path) -> None:
    """What is fitted to it goes by its identity."""

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        first, second = await asyncio.gather(store.profile("f1"), store.profile("f1"))
        assert first is second is not None
        with no_room(), pytest.raises(StoreError):
            await store.keep_profile(PROFILE)
        with no_room():
            await store.open()
        await store.open()
        assert await store.profile("f1") is first
        for other in range(REMEMBERED_PROFILES + 1):
            await store.keep_profile(replace(PROFILE, fingerprint=f"other {other}", name=f"other {other}"))
            await store.profile(f"other {other}")
            assert await store.profile("f1") is first
        assert len(store._profiles) == REMEMBERED_PROFILES

    in_store(tmp_path, use)


def test_of_those_who_ask_for_a_profile_at_once_one_parses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, parsed = Profile.from_json, list[str]()

    def read_noted(document: dict[str, Any]) -> Profile:
        parsed.append(document["name"])
        return read(document)

    monkeypatch.setattr(Profile, "from_json", read_noted)

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        await asyncio.gather(*(store.profile("f1") for _ in range(6)))

    in_store(tmp_path, use)
    assert parsed == [PROFILE.name]


def test_a_store_that_could_not_be_written_is_used_once_it_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.touch()  # a file in the folder's place

    async def use() -> None:
        store = Store(folder)
        with pytest.raises(StoreError):
            await store.keep_profile(PROFILE)
        await store.open()
        assert store.trouble is not None
        folder.unlink()
        await store.open()
        assert store.trouble is None
        await store.keep_profile(PROFILE)
        await store.close()
        again = Store(folder)
        assert await again.profile(PROFILE.fingerprint) == PROFILE
        await again.close()

    asyncio.run(use())


def test_a_store_that_was_opened_on_a_full_disk_says_so_and_saves_the_first_thing_that_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> NoReturn:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    async def keep(store: Store) -> None:
        await store.keep_profile(PROFILE)

    async def use(store: Store) -> None:
        with pytest.raises(StoreError, match=r"not saved: .* \(database or disk is full\); make room on the disk of "):
            await store.keep_profile(PROFILE)
        assert store.unreadable is None
        assert await store.profile("f1") == PROFILE
        monkeypatch.undo()
        await store.keep_profile(replace(PROFILE, fingerprint="f2"))
        assert store.trouble is None
        assert await store.profile("f2") is not None

    in_store(tmp_path, keep)
    monkeypatch.setattr("app.store.database._try_to_write", full)
    in_store(tmp_path, use)


def test_one_that_could_not_be_written_is_tried_again_sooner_than_a_refused_request_is_told_to_come_back() -> None:
    assert TROUBLE_SECONDS < RETRY_SECONDS


@pytest.mark.parametrize(
    "change",
    ["PRAGMA user_version = 3", "PRAGMA user_version = -5", "PRAGMA user_version = 0", "DROP TABLE paces"],
)
def test_a_store_of_an_unknown_schema_is_left_alone_and_the_error_says_what_to_do(tmp_path: Path, change: str) -> None:
    path = tmp_path / FILE_NAME

    async def keep(store: Store) -> None:
        await store.keep_profile(PROFILE)

    async def use(store: Store) -> None:
        with pytest.raises(StoreError, match=r"not saved: the store's file holds other tables .*; move it out of"):
            await store.keep_profile(PROFILE)
        assert "CROSSPOINT_DATA_DIR" in str(store.unreadable)
        assert path.read_bytes() == before
        path.rename(tmp_path / "elsewhere")
        await store.keep_profile(PROFILE)
        assert store.trouble is None

    in_store(tmp_path, keep)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
    before = path.read_bytes()
    in_store(tmp_path, use)


def test_a_folder_in_the_file_s_place_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()

    async def use(store: Store) -> None:
        with pytest.raises(StoreError, match=r"not saved: a folder lies where .*; move it elsewhere, or"):
            await store.keep_profile(PROFILE)

    in_store(tmp_path, use)


def test_a_file_that_can_only_be_read_is_not_moved_away_for_what_reading_it_says(tmp_path: Path) -> None:
    """Beside whoever writes it, it may look damaged and be sound."""

    def broken(connection: sqlite3.Connection) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        assert store._database is not None
        store._database.trouble = "the store cannot be written"
        with pytest.raises(StoreError, match="malformed"):
            await store._run(broken, READ)
        assert await store.profile(PROFILE.fingerprint) == PROFILE

    in_store(tmp_path, use)
    assert not list(tmp_path.glob("*.damaged-*"))
