"""A document that is rubbish, or no text at all, costs itself: what lies beside it is read, and more can be kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.store import Store
from app.store.store import FILE_NAME
from probes.fingerprint import hash_identity
from tests.app.test_history import FIRST, SMALLER
from tests.app.test_lessons import a_row
from tests.app.test_store import MEASUREMENT, PROFILE, WORKLOAD, in_store


def flip_a_bit(folder: Path, table: str, column: str, word: bytes) -> None:
    """The highest of this word's first letter, in the newest row: what it is then is no UTF-8."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        statement = f"SELECT rowid, CAST({column} AS BLOB) FROM {table} ORDER BY rowid DESC LIMIT 1"
        row, text = connection.execute(statement).fetchone()
        assert word in text
        broken = text.replace(word, bytes([word[0] | 0x80]) + word[1:], 1)
        connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE rowid = ?", (broken, row))


def test_a_flipped_bit_in_a_measurement_costs_no_other(tmp_path: Path) -> None:
    rows = [replace(MEASUREMENT, batch_size=size) for size in (8, 16, 32)]

    async def keep(store: Store) -> None:
        await store.keep_measurements("f1", WORKLOAD, rows[:2])

    async def use(store: Store) -> None:
        assert await store.measurements("f1", WORKLOAD) == rows[:1]
        await store.keep_measurements("f1", WORKLOAD, rows[2:])
        assert await store.measurements("f1", WORKLOAD) == [rows[0], rows[2]]

    in_store(tmp_path, keep)
    flip_a_bit(tmp_path, "measurements", "document", b"batch_size")
    in_store(tmp_path, use)


def test_a_flipped_bit_in_a_lesson_costs_no_other(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        assert [row.batch_size for row in await store.lessons("f1")] == [1]

    in_store(tmp_path, lambda store: store.keep_lessons("f1", [a_row(1), a_row(2)]))
    flip_a_bit(tmp_path, "lessons", "plan", b"device")
    in_store(tmp_path, use)


@pytest.mark.parametrize("word", [b"fingerprint", b'"fingerprint'])
def test_a_flipped_bit_in_a_profile_leaves_those_before_it(tmp_path: Path, word: bytes) -> None:
    """In a member's name, and in what makes it JSON."""
    first, second = (replace(PROFILE, duration_seconds=seconds) for seconds in (1.0, 2.0))

    async def keep(store: Store) -> None:
        for profile in (first, second):
            await store.keep_profile(profile, profile)

    async def use(store: Store) -> None:
        assert await store.profile("f1") == await store.named_profile("here") == first
        assert await store.calibrations("here", "f1", 9) == [first]
        assert [head["name"] for head in await store.profile_heads()] == ["here"]
        assert await store.calibration_times("here", "f1", PROFILE.method)

    in_store(tmp_path, keep)
    for column in ("document", "calibration"):
        flip_a_bit(tmp_path, "profiles", column, word)
    in_store(tmp_path, use)


def test_a_flipped_bit_in_what_a_machine_was_does_not_keep_what_it_is_from_being_told(tmp_path: Path) -> None:
    async def keep(store: Store) -> None:
        for identity in (SMALLER, FIRST):
            await store.keep_state(identity)

    async def use(store: Store) -> None:
        await store.keep_state(SMALLER)
        assert await store.identity() == SMALLER
        assert [state["fingerprint"] for state in await store.history()][0::2] == [hash_identity(SMALLER)] * 2

    in_store(tmp_path, keep)
    flip_a_bit(tmp_path, "history", "identity", b'"limits')
    in_store(tmp_path, use)


def test_a_flipped_bit_in_a_job_costs_no_other(tmp_path: Path) -> None:
    async def keep(store: Store) -> None:
        for name in ("1", "2"):
            await store.keep_job({"id": name, "kind": "measurement"})

    async def use(store: Store) -> None:
        assert [job.get("id") for job in await store.jobs("measurement")] == ["1"]

    in_store(tmp_path, keep)
    flip_a_bit(tmp_path, "jobs", "document", b'"kind')
    in_store(tmp_path, use)
