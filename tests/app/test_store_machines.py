"""A store that several machines share, as in a home folder on a cluster: each has its own past, and names are all's."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.errors import ProfileRefused
from app.profiles import check_new_name
from app.service import Crosspoint
from app.store import Store, history, surveys
from app.store.machine import Machine, parse_machine_id, read_machine
from app.store.schema import MIGRATIONS
from app.store.store import FILE_NAME
from probes.fingerprint import hash_identity, read_identity
from probes.hardware import Survey, System
from probes.reading import Root
from tests.app.advisor.machine import a_profile
from tests.app.opened import with_crosspoint
from tests.app.test_history import HUNG, surveys_of
from tests.app.test_store import MEASUREMENT, PROFILE, WORKLOAD
from tests.probes.machines import write_machine
from tests.probes.test_fingerprint import SURVEY, with_cpu

T = TypeVar("T")
ONE, OTHER = Machine("one", "node-1"), Machine("other", "node-2")
FIRST = replace(SURVEY, fingerprint="f1")
ID = "3d1219c7c4c5404aaa1f6d2a48adfda4"


def as_machine(folder: Path, machine: Machine, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open a store on this machine, use it, close it."""

    async def session() -> T:
        store = Store(folder, machine)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(session())


async def keep_all(store: Store) -> None:
    await store.keep_survey(FIRST)
    await store.keep_state(read_identity(FIRST))
    await store.keep_profile(PROFILE, PROFILE)


def test_a_machine_s_past_is_its_own_and_profiles_are_shared_by_name(tmp_path: Path) -> None:
    async def find_nothing(store: Store) -> None:
        assert await store.history() == []
        assert await store.identity() is None
        assert await store.outdated_profile("f2") is None
        assert not await store.was_seen("f1")
        assert await store.named_profile("here") == PROFILE

    async def find_all(store: Store) -> None:
        assert len(await store.history()) == 1
        assert await store.identity() == read_identity(FIRST)
        assert await store.outdated_profile("f2") == PROFILE
        assert await store.was_seen("f1")

    as_machine(tmp_path, ONE, keep_all)
    as_machine(tmp_path, OTHER, find_nothing)
    as_machine(tmp_path, ONE, find_all)


def test_machines_of_one_kind_that_look_in_turn_change_nothing(tmp_path: Path) -> None:
    async def look(store: Store, survey: Survey) -> int:
        await store.keep_survey(survey)
        await store.keep_state(read_identity(survey))
        return len(await store.history())

    smaller = replace(with_cpu(usable_cores=4.0), fingerprint="f2")
    for _ in range(3):
        assert as_machine(tmp_path, ONE, lambda store: look(store, FIRST)) == 1
        assert as_machine(tmp_path, OTHER, lambda store: look(store, smaller)) == 1


def test_a_name_that_another_machine_calibrated_under_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises(ProfileRefused):
            await check_new_name(crosspoint, "rig")

    async def calibrate(store: Store) -> None:
        await store.keep_survey(FIRST)
        await store.keep_profile(replace(a_profile(fingerprint="f1"), name="rig"))

    as_machine(tmp_path, OTHER, calibrate)
    with_crosspoint(tmp_path, use)


def test_a_driver_that_hangs_from_the_start_is_not_remembered_from_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.read_machine", lambda _: ONE)
    ((seen, _),) = surveys_of(tmp_path, monkeypatch, SURVEY)
    monkeypatch.setattr("app.service.read_machine", lambda _: OTHER)
    ((hung, length),) = surveys_of(tmp_path, monkeypatch, HUNG)
    assert hung != seen
    assert length == 0


def test_one_machine_s_past_is_bounded_and_costs_no_other_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT_STATES", 2)
    monkeypatch.setattr(surveys, "KEPT_SURVEYS", 2)

    async def change(store: Store) -> None:
        for cores in range(1, 6):
            survey = replace(with_cpu(usable_cores=float(cores)), fingerprint=str(cores))
            await store.keep_survey(survey)
            await store.keep_state(read_identity(survey))
        assert len(await store.history()) == 2
        assert [await store.was_seen(str(cores)) for cores in range(1, 6)] == [False] * 3 + [True] * 2

    async def is_there(store: Store) -> bool:
        return len(await store.history()) == 1 and await store.was_seen("f1")

    as_machine(tmp_path, ONE, keep_all)
    as_machine(tmp_path, OTHER, change)
    assert as_machine(tmp_path, ONE, is_there)
    monkeypatch.setattr(history, "KEPT_STATES_IN_ALL", 2)
    monkeypatch.setattr(surveys, "KEPT_SURVEYS_IN_ALL", 2)
    as_machine(tmp_path, OTHER, change)
    assert not as_machine(tmp_path, ONE, is_there)


def before_machines_were_told_apart(folder: Path, states: Sequence[tuple[Survey, str]]) -> None:
    """A store of the fourth schema in which these states were seen, in turn, each on the host of this name."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        for script in MIGRATIONS[:4]:
            connection.executescript(script)
        connection.execute("PRAGMA user_version = 4")
        for at, (survey, host) in enumerate(states):
            identity = read_identity(survey)
            document = replace(survey, system=System(host or None)).to_json()
            row = (hash_identity(identity), at, at, json.dumps(document))
            connection.execute("INSERT INTO surveys VALUES (?, ?, ?, ?)", row)
            connection.execute(
                "INSERT INTO history (seen_at, fingerprint, identity, changes) VALUES (?, ?, ?, '[]')",
                (at, row[0], json.dumps(identity)),
            )
        profile = json.dumps(PROFILE.to_json())
        statement = "INSERT INTO profiles (name, fingerprint, created_at, document) VALUES ('here', 'f1', 1, ?)"
        connection.execute(statement, (profile,))


def test_a_store_of_before_becomes_that_of_the_machine_whose_host_it_tells_of(tmp_path: Path) -> None:
    """What tells of no host is taken by who comes first."""
    cores = {name: with_cpu(usable_cores=float(count)) for count, name in enumerate(("a", "b", "c"), 1)}
    states = [(cores["a"], "node-1"), (cores["b"], "node-2"), (cores["c"], "")]
    before_machines_were_told_apart(tmp_path, states)
    prints = {name: hash_identity(read_identity(survey)) for name, survey in cores.items()}

    async def told(store: Store) -> tuple[list[str], list[str]]:
        assert await store.profile("f1") == PROFILE
        seen = [name for name, fingerprint in prints.items() if await store.was_seen(fingerprint)]
        states = [name for row in await store.history() for name in prints if prints[name] == row["fingerprint"]]
        return seen, states

    assert as_machine(tmp_path, ONE, told) == (["a", "c"], ["c", "a"])
    assert as_machine(tmp_path, OTHER, told) == (["b"], ["b"])
    assert as_machine(tmp_path, Machine("third", "node-3"), told) == ([], [])


def test_a_store_of_before_of_one_machine_loses_nothing(tmp_path: Path) -> None:
    states = [(with_cpu(usable_cores=float(cores)), "node-1") for cores in range(1, 9)]
    before_machines_were_told_apart(tmp_path, states)

    async def use(store: Store) -> None:
        assert len(await store.history()) == 8
        assert await store.identity() == read_identity(states[-1][0])
        assert all([await store.was_seen(hash_identity(read_identity(survey))) for survey, _ in states])
        await store.keep_survey(states[0][0])
        await store.keep_state(read_identity(states[0][0]))
        assert len(await store.history()) == 9

    as_machine(tmp_path, ONE, use)


@pytest.mark.parametrize(("text", "own"), [(f"{ID}\n", ID), ("uninitialized\n", None), ("", None), ("0" * 32, None)])
def test_a_machine_is_known_by_its_id_else_by_its_hosts_name(tmp_path: Path, text: str, own: str | None) -> None:
    def read(name: str, **files: str) -> Machine:
        root = write_machine(tmp_path / str(len(files)) / name, {"proc/sys/kernel/hostname": f"{name}\n", **files})
        return read_machine(Root(root))

    assert parse_machine_id(text) == own
    one, other = (read(name, **{"etc/machine-id": text}) for name in ("node-1", "node-2"))
    assert (one.key == other.key) == (own is not None)
    assert (one.key == read("node-1").key) == (own is None)
    assert (one.hostname, other.hostname) == ("node-1", "node-2")
    assert not {ID, "node-1", "node-2"} & {one.key, other.key}


def test_a_store_that_was_written_with_a_log_goes_on_without_one(tmp_path: Path) -> None:
    """On a network's file system a log is memory that only one machine's processes share; elsewhere, see
    app.store.database."""

    async def keep_more(stores: Sequence[Store]) -> None:
        await asyncio.gather(*(store.keep_measurements("f1", WORKLOAD, [MEASUREMENT]) for store in stores * 5))
        for store in stores:
            assert await store.profile("f1") == PROFILE
            assert store.trouble is None
            mode = await store._run(lambda connection: connection.execute("PRAGMA journal_mode").fetchone())
            assert mode == ("delete",)
            await store.close()

    as_machine(tmp_path, ONE, keep_all)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    asyncio.run(keep_more([Store(tmp_path, ONE), Store(tmp_path, OTHER)]))
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
