"""The store's file, left behind by a kill, or removed and replaced while it is open."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from app.store import Store
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

    async def read(store: Store) -> None:
        assert await store.measurements("f1", WORKLOAD) == [MEASUREMENT]
        assert (await store.profile("f2") is not None) == replaced

    in_store(other, put_in_its_place)
    in_store(folder, use)
    in_store(folder, read)
