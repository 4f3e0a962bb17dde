"""What is kept is bounded all together, and a list reads no more than it tells."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.advisor.time_model.pooled import POOLED
from app.store import Store
from app.store.jobs import KEPT_CALIBRATION_RESULTS
from app.store.profiles import COUNTING, KEPT_PROFILES
from app.store.store import FILE_NAME
from tests.app.test_store import MEASUREMENT, PROFILE, TRACE, WORKLOAD, in_store


def test_jobs_are_listed_without_results_and_the_last_calibrations_keep_theirs(tmp_path: Path) -> None:
    def job(kind: str, number: int) -> dict[str, Any]:
        return {"id": f"{kind} {number}", "kind": kind, "state": "succeeded", "result": {"points": [number]}}

    async def use(store: Store) -> None:
        for number in range(KEPT_CALIBRATION_RESULTS + 2):
            await store.keep_job(job("measurement", number))
            await store.keep_job(job("calibration", number))
        listed = await store.jobs("calibration")
        assert len(listed) == KEPT_CALIBRATION_RESULTS + 2
        assert all("result" not in row and row["state"] == "succeeded" for row in listed)
        assert await store.job("measurement", "measurement 0") == job("measurement", 0)
        for number in range(KEPT_CALIBRATION_RESULTS + 2):
            result = {"points": [number]} if number >= 2 else None
            name = f"calibration {number}"
            assert await store.job("calibration", name) == {**job("calibration", number), "result": result}

    in_store(tmp_path, use)


def test_what_is_kept_after_a_clock_was_set_back_is_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.store.KEPT_TRACES", 2)
    job = {"kind": "calibration", "state": "succeeded", "result": {"points": []}}
    clock = SimpleNamespace(time=lambda: 4e9)
    for module in ("jobs", "store"):
        monkeypatch.setattr(f"app.store.{module}.time", clock)

    async def use(store: Store) -> None:
        for number in range(KEPT_CALIBRATION_RESULTS):
            await store.keep_job({**job, "id": f"ahead {number}"})
            await store.keep_trace(WORKLOAD, f"ahead {number}", TRACE)
        clock.time = lambda: 2e9
        await store.keep_job({**job, "id": "now"})
        await store.keep_trace(WORKLOAD, "now", TRACE)
        assert await store.job("calibration", "now") == {**job, "id": "now"}
        assert (await store.jobs("calibration"))[0]["id"] == "now"
        assert await store.trace(WORKLOAD, "now") == TRACE
        assert await store.trace(WORKLOAD, "ahead 0") is None

    in_store(tmp_path, use)


def test_one_model_measured_again_and_again_takes_no_more_room_and_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.measured.KEPT_MEASUREMENTS", 5)
    other = replace(WORKLOAD, mode="inference")

    async def use(store: Store) -> None:
        await store.keep_measurements("f1", other, [MEASUREMENT])
        for steps in range(20):
            failed = replace(MEASUREMENT, outcome="failed", step=None, steps=0)
            await store.keep_measurements("f1", WORKLOAD, [replace(MEASUREMENT, steps=steps + 2), failed])
        assert await store.measurements("f1", other) == [MEASUREMENT]
        assert await store.measurements("f1", WORKLOAD) == [replace(MEASUREMENT, steps=21), failed]

    in_store(tmp_path, use)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert connection.execute("SELECT count(*) FROM measurements").fetchone() == (3,)
    connection.close()


def test_of_one_model_s_measurements_the_newest_are_read_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.measured.KEPT_EACH", 3)
    rows = [replace(MEASUREMENT, batch_size=size) for size in range(1, 6)]

    async def use(store: Store) -> None:
        await store.keep_measurements("f1", WORKLOAD, rows)
        assert await store.measurements("f1", WORKLOAD) == rows[-3:]
        await store.keep_measurements("f1", WORKLOAD, rows[-1:])
        assert await store.measurements("f1", WORKLOAD) == rows[-3:]

    in_store(tmp_path, use)


def test_others_profiles_are_bounded_all_together_and_never_at_the_cost_of_this_machines(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        await store.keep_profile(PROFILE, PROFILE)
        for number in range(KEPT_PROFILES + 2):
            await store.keep_profile(replace(PROFILE, name=f"rig {number}", fingerprint=f"other {number}"))
        assert await store.profile("f1") == PROFILE
        assert await store.profile("other 1") is None
        assert await store.profile("other 2") is not None

    in_store(tmp_path, use)


@pytest.mark.parametrize(("machines", "rows"), [(1, 3), (4, 6), (6, 6), (8, 6)])
def test_of_many_machines_with_one_store_each_keeps_its_newest_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: int, rows: int
) -> None:
    """And the others that count as long as there is room: a hundred machines would else have profiles of one
    calibration each, and calibrate again and again to make them surer."""
    monkeypatch.setattr("app.store.profiles.KEPT_PROFILES", 5)
    monkeypatch.setattr("app.store.profiles.KEPT_NEWEST", 6)
    nodes = [replace(PROFILE, name=f"node {number}", fingerprint=f"f {number}") for number in range(machines)]

    async def use(store: Store) -> None:
        for node in nodes:
            for effort in ("quick", "full", "full"):
                await store.keep_profile(replace(node, effort=effort), node)
        kept = [await store.profile(node.fingerprint) for node in nodes]
        lost = [None] * max(0, machines - 6)
        assert kept == [*lost, *(replace(node, effort="full") for node in nodes[len(lost) :])]

    in_store(tmp_path, use)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert connection.execute("SELECT count(*) FROM profiles").fetchone() == (rows,)
    connection.close()


def test_what_does_not_count_is_forgotten_before_what_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COUNTING == POOLED
    monkeypatch.setattr("app.store.profiles.KEPT_PROFILES", 5)
    monkeypatch.setattr("app.store.profiles.KEPT_NEWEST", 8)

    async def use(store: Store) -> None:
        for number in range(2):
            node = replace(PROFILE, name=f"node {number}", fingerprint=f"f {number}")
            for _ in range(6):
                await store.keep_profile(node, node)
            assert len(await store.calibration_times(node.name, node.fingerprint)) == (5, 4)[number]
        assert len(await store.calibration_times("node 0", "f 0")) == 4

    in_store(tmp_path, use)


def test_a_list_of_profiles_holds_what_is_told_of_them_and_no_more(tmp_path: Path) -> None:
    noise = {"spread": 0.1, "steal_fraction": None}
    profile = replace(PROFILE, name='"ü"', noise=noise, calibrations=3)

    async def use(store: Store) -> None:
        await store.keep_profile(profile)
        await store._write(
            lambda: [
                (
                    "INSERT INTO profiles (name, fingerprint, created_at, document) VALUES (?, ?, ?, ?)",
                    (f"broken {number}", "f", 1.0, text),
                )
                for number, text in enumerate(('{"name": ', "{}"))
            ]
        )
        (head,) = await store.profile_heads()
        assert head == {
            "name": '"ü"',
            "machine": "a machine",
            "created_at": PROFILE.created_at,
            "fingerprint": "f1",
            "effort": "quick",
            "software": {"torch": "2.13.0"},
            "noise": noise,
            "calibrations": 3,
            "points": 0,
            "networks": 0,
        }

    in_store(tmp_path, use)
