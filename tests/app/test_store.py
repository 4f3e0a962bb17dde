"""The store keeps what is worth keeping, and never stands in the way of an answer."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.errors import StoreError
from app.store import Store
from app.store.profiles import KEPT_PROFILES_EACH
from app.store.schema import MIGRATIONS
from app.store.store import FILE_NAME
from probes.measurement import METHOD, Measurement, Timing
from probes.profile import Profile
from probes.trace import Affine, Operation, Trace
from probes.workload.description import ModelDescription, Plan, Workload

T = TypeVar("T")

WORKLOAD = Workload(ModelDescription("layers", "tiny", {"layers": [], "input_shape": [4]}), 8)
PLAN = Plan("cpu", "fp32", 1)
MEASUREMENT = Measurement(PLAN, 8, "pageable", "ok", step=Timing.from_samples([0.001, 0.002]), steps=20, steady=True)
OPERATION = Operation("matmul", "aten.mm", "forward", "float32", 1, Affine(0, 8), Affine(4, 4), Affine(0, 4), ((8, 4),))
TRACE = Trace(
    WORKLOAD.model.key,
    "training",
    "adamw",
    (2, 4),
    10,
    2,
    40,
    0,
    40,
    80,
    Affine(1, 2),
    Affine(0, 16),
    (OPERATION,),
    "2.13.0",
)
PROFILE = Profile("here", "2026-01-01T00:00:00Z", "f1", "a machine", {"torch": "2.13.0"}, "quick", 1.0, {}, (), ())


def in_store(folder: Path, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open a store, use it, close it."""

    async def session() -> T:
        store = Store(folder)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(session())


def test_what_one_process_keeps_the_next_one_reads(tmp_path: Path) -> None:
    async def keep(store: Store) -> None:
        await store.keep_trace(WORKLOAD, "2.13.0", TRACE)
        await store.keep_profile(PROFILE)
        await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
        await store.keep_job({"id": "1", "kind": "measurement", "state": "succeeded"})

    async def read(store: Store) -> None:
        assert await store.trace(WORKLOAD, "2.13.0") == TRACE
        assert await store.profile("f1") == await store.named_profile("here") == PROFILE
        assert await store.measurements("f1", WORKLOAD) == [MEASUREMENT]
        assert await store.job("measurement", "1") == {"id": "1", "kind": "measurement", "state": "succeeded"}

    in_store(tmp_path, keep)
    in_store(tmp_path, read)


def test_calibrations_are_kept_beside_the_profile_that_holds_them(tmp_path: Path) -> None:
    first, second, third = (replace(PROFILE, duration_seconds=float(number)) for number in (1, 2, 3))

    async def use(store: Store) -> None:
        await store.keep_profile(first, first)
        await store.keep_profile(replace(second, calibrations=2), second)
        assert await store.profile("f1") == replace(second, calibrations=2)
        assert await store.calibrations("here", "f1", 9) == [second, first]
        assert await store.calibrations("here", "f1", 1) == [second]
        assert await store.calibrations("there", "f1", 9) == await store.calibrations("here", "f2", 9) == []
        before, now = sorted(await store.calibration_times("here", "f1"))
        assert time.time() - 60 < before <= now <= time.time()
        await store.keep_profile(PROFILE)  # from elsewhere: what was measured before it does not count any more
        assert await store.calibrations("here", "f1", 9) == await store.calibration_times("here", "f1") == []
        await store.keep_profile(third, third)
        assert await store.calibrations("here", "f1", 9) == [third]

    in_store(tmp_path, use)


def test_what_was_made_elsewhere_is_not_taken_for_ours(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        await store.keep_trace(WORKLOAD, "2.13.0", TRACE)
        await store.keep_profile(PROFILE)
        await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
        assert await store.trace(WORKLOAD, "2.9.0") is None
        assert await store.trace(replace(WORKLOAD, optimizer="sgd"), "2.13.0") is None
        assert await store.profile("f2") is None
        assert await store.measurements("f2", WORKLOAD) == []
        assert await store.measurements("f1", replace(WORKLOAD, log_every=1)) == []

    in_store(tmp_path, use)


def test_a_trace_and_a_measurement_serve_every_batch_size_of_their_model(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        await store.keep_trace(WORKLOAD, "2.13.0", TRACE)
        await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
        assert await store.trace(replace(WORKLOAD, batch_size=64), "2.13.0") == TRACE
        assert await store.measurements("f1", replace(WORKLOAD, batch_size=64)) == [MEASUREMENT]

    in_store(tmp_path, use)


def test_a_step_of_inference_reads_no_loss_however_often_one_was_asked_for(tmp_path: Path) -> None:
    inference = replace(WORKLOAD, mode="inference")

    async def use(store: Store) -> None:
        await store.keep_measurements("f1", inference, [MEASUREMENT])
        assert await store.measurements("f1", replace(inference, log_every=10)) == [MEASUREMENT]

    in_store(tmp_path, use)


def test_the_latest_measurement_of_a_plan_counts(tmp_path: Path) -> None:
    later = replace(MEASUREMENT, steps=99)

    async def use(store: Store) -> None:
        await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
        await store.keep_measurements("f1", WORKLOAD, [later])
        assert await store.measurements("f1", WORKLOAD) == [later]

    in_store(tmp_path, use)


def test_what_was_measured_otherwise_is_not_read_and_takes_no_others_place(tmp_path: Path) -> None:
    other = replace(MEASUREMENT, method=METHOD + 1)

    async def use(store: Store) -> None:
        await store.keep_measurements("f1", WORKLOAD, [other])
        assert await store.measurements("f1", WORKLOAD) == []
        for _ in range(2):
            await store.keep_measurements("f1", WORKLOAD, [MEASUREMENT])
            assert await store.measurements("f1", WORKLOAD) == [MEASUREMENT]

    in_store(tmp_path, use)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM measurements").fetchone() == (2,)


def test_a_measurement_that_says_no_method_is_of_the_first() -> None:
    document = MEASUREMENT.to_json()
    del document["method"]
    assert Measurement.from_json(document).method == 1


def test_machines_that_share_a_store_keep_a_trace_each(tmp_path: Path) -> None:
    """Which kernels there are is the processor's, and what autocast runs."""
    one, other = (replace(TRACE, cpu=name) for name in ("one", "other"))

    async def use(store: Store) -> None:
        for trace in (one, other):
            await store.keep_trace(WORKLOAD, "2.13.0", trace)
        found = [await store.trace(WORKLOAD, "2.13.0", name) for name in ("one", "other", "third")]
        assert found == [one, other, None]
        await store.keep_trace(WORKLOAD, "2.13.0", TRACE)  # by a survey that could not tell the processor
        found = [await store.trace(WORKLOAD, "2.13.0", name) for name in ("one", "other", "third", "")]
        assert found == [one, other, TRACE, TRACE]
        await store.keep_trace(WORKLOAD, "2.13.0", one)
        assert await store.trace(WORKLOAD, "2.13.0") == one, "of whichever processor, the newest"

    in_store(tmp_path, use)


def test_a_store_from_before_traces_were_a_processors_keeps_them(tmp_path: Path) -> None:
    made = replace(TRACE, cpu="one")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        for script in MIGRATIONS[:5]:
            connection.executescript(script)
        connection.execute("PRAGMA user_version = 5")
        for optimizer, text in (("adamw", json.dumps(made.to_json())), ("sgd", "no document")):
            row = (WORKLOAD.model.key, "training", optimizer, "2.13.0", 1.0, text)
            connection.execute("INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?)", row)

    async def use(store: Store) -> None:
        assert [await store.trace(WORKLOAD, "2.13.0", name) for name in ("one", "other")] == [made, None]
        assert await store.trace(replace(WORKLOAD, optimizer="sgd"), "2.13.0", "one") is None

    in_store(tmp_path, use)


def test_measurements_come_in_the_order_in_which_they_were_taken(tmp_path: Path) -> None:
    rows = [replace(MEASUREMENT, batch_size=size) for size in (8, 16)]

    async def use(store: Store) -> None:
        for row in rows:
            await store.keep_measurements("f1", WORKLOAD, [row])
        assert await store.measurements("f1", WORKLOAD) == rows
        await store.keep_measurements("f1", WORKLOAD, rows[:1])
        assert await store.measurements("f1", WORKLOAD) == rows[::-1]

    in_store(tmp_path, use)


def test_a_profile_that_cannot_be_read_leaves_the_good_one_before_it(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        await store.keep_profile(replace(PROFILE, schema_version="from the future"))
        assert await store.profile("f1") == PROFILE

    in_store(tmp_path, use)


def test_history_is_kept_within_bounds(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        for number in range(KEPT_PROFILES_EACH + 3):
            await store.keep_profile(replace(PROFILE, duration_seconds=float(number)))
        latest = await store.profile("f1")
        assert latest is not None
        assert latest.duration_seconds == KEPT_PROFILES_EACH + 2

    in_store(tmp_path, use)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert connection.execute("SELECT count(*) FROM profiles").fetchone() == (KEPT_PROFILES_EACH,)
    connection.close()


@pytest.mark.parametrize(
    "rubbish", [b"this is no database" * 100, b"SQLite format 3\x00" + b"\xff" * 4096, b"\x00" * 8192]
)
def test_a_damaged_file_is_moved_aside_and_a_new_one_made(tmp_path: Path, rubbish: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(rubbish)

    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE)
        assert await store.profile("f1") == PROFILE
        assert store.trouble is None

    in_store(tmp_path, use)
    assert [path.read_bytes() for path in tmp_path.glob("*.damaged-*")] == [rubbish]


def test_damage_that_shows_while_running_costs_what_was_stored_and_nothing_else(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        for number in range(50):
            await store.keep_job({"id": str(number), "kind": "measurement", "text": "x" * 4000})
        await store.close()
        path = tmp_path / FILE_NAME
        path.write_bytes(path.read_bytes()[:4096] + os.urandom(path.stat().st_size - 4096))

    async def use_again(store: Store) -> None:
        await store.jobs("measurement")
        await store.keep_profile(PROFILE)
        assert await store.profile("f1") == PROFILE
        told.append(str(store.lost))

    told: list[str] = []
    asyncio.run(use(Store(tmp_path)))
    in_store(tmp_path, use_again)
    (aside,) = tmp_path.glob("*.damaged-*")
    assert told[0].endswith(f"what was in it lies beside the new one as {aside.name}.")


def test_a_profile_is_there_by_its_name_however_many_are_newer(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        for number in range(51):
            await store.keep_profile(replace(PROFILE, name=f"rig {number}", fingerprint=str(number)))
        assert "rig 0" not in {head["name"] for head in await store.profile_heads()}
        assert await store.has_profile("rig 0")
        assert not await store.has_profile("rig 51")

    in_store(tmp_path, use)


def test_a_store_of_a_newer_crosspoint_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = (tmp_path / FILE_NAME).read_bytes()

    async def use(store: Store) -> None:
        with pytest.raises(StoreError, match=r"not saved: a newer crosspoint made the store; update this one, or"):
            await store.keep_profile(PROFILE)

    in_store(tmp_path, use)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_many_may_make_the_store_at_once(tmp_path: Path) -> None:
    async def use() -> None:
        stores = [Store(tmp_path) for _ in range(3)]
        await asyncio.gather(*(store.open() for store in stores))
        assert [store.trouble for store in stores] == [None] * 3
        for store in stores:
            await store.close()

    asyncio.run(use())


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    async def use() -> None:
        stores = [Store(tmp_path), Store(tmp_path)]
        await asyncio.gather(
            *(
                store.keep_job({"id": f"{place}-{number}", "kind": "measurement"})
                for number in range(20)
                for place, store in enumerate(stores)
            )
        )
        assert len(await stores[0].jobs("measurement", limit=100)) == 40
        for store in stores:
            await store.close()

    asyncio.run(use())
