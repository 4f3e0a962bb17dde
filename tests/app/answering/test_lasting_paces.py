"""A machine that is slower for good than when it was calibrated is told by what it is now, a neighbour's is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.answering.lasting_paces import CALM, note_paces, pace_now, paces_now
from app.errors import LabError
from app.service import Crosspoint
from app.store import Store
from app.store.paces import KEPT_SPELLS, SPELL_SECONDS
from probes.microtrain.quiet import calm
from tests.app.advisor.machine import a_profile
from tests.app.answering.obedient import ask, jobs, obedient
from tests.app.opened import with_crosspoint
from tests.app.test_store import in_store

PACE, SLOW = 1e-4, 1.6e-4
MORE_THAN_HERE = 60_000  # threads
PROFILE = replace(a_profile(fingerprint="f"), paces={1: PACE})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The store's, which goes on where it is told to."""
    clock = SimpleNamespace(now=1e9)
    monkeypatch.setattr("app.store.paces.time", SimpleNamespace(time=lambda: clock.now))
    return clock


def test_one_figure_says_what_is_calm_while_and_after_it_is_measured() -> None:
    assert calm.CALM == CALM


@pytest.mark.parametrize(
    ("spells", "now"),
    [
        ([], PACE),
        ([SLOW] * (KEPT_SPELLS - 1), PACE),
        ([SLOW] * KEPT_SPELLS, SLOW),
        ([1.1 * SLOW, SLOW, 1.2 * SLOW], SLOW),
        ([SLOW, 1.1 * PACE, SLOW], PACE),  # they were quick in between: it was a neighbour
        ([1.14 * PACE] * KEPT_SPELLS, PACE),
        ([0.9 * PACE] * KEPT_SPELLS, PACE),
    ],
)
def test_a_machine_is_slower_where_no_spell_met_calm_cores(spells: Sequence[float], now: float) -> None:
    assert pace_now(PACE, spells) == now


def test_of_half_an_hour_the_quickest_reading_counts_and_the_last_spells_do(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    async def use(store: Store) -> None:
        for seconds in (5.0, 3.0, 4.0):
            await store.keep_paces("f", {1: seconds})
            clock.now += SPELL_SECONDS / 3 - 1
        assert await store.paces("f") == {1: [3.0]}
        for number in range(KEPT_SPELLS):
            clock.now += SPELL_SECONDS
            await store.keep_paces("f", {1: 10.0 + number, 2: 7.0})
        assert await store.paces("f") == {1: [12.0, 11.0, 10.0], 2: [7.0] * 3}
        assert await store.paces("another") == {}
        clock.now -= 10 * SPELL_SECONDS  # it was set back
        await store.keep_paces("f", {1: 1.0})
        assert (await store.paces("f"))[1] == [1.0, 12.0, 11.0]

    in_store(tmp_path, use)


def test_what_is_measured_beside_programs_of_this_machine_tells_nothing_of_its_cores(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        for busy in (True, False):
            await note_paces(store, "f", {"paces": {"1": SLOW}, "noise": {"busy": busy}})
            assert bool(await store.paces("f")) is not busy
        await note_paces(store, "", {"paces": {"1": SLOW}})
        assert await store.paces("") == {}
        with pytest.raises(LabError):
            await note_paces(store, "f", {"paces": {"one": SLOW}})
        assert await paces_now(store, None) == await paces_now(store, a_profile()) == {}

    in_store(tmp_path, use)


@pytest.mark.usefixtures("own_lock")
def test_slow_cores_that_no_plan_of_the_answer_ran_on_are_not_told(tmp_path: Path, clock: SimpleNamespace) -> None:
    """As where a neighbour holds some of them, or only all of them together reach a power limit."""
    calibrated = replace(PROFILE, paces={1: PACE, MORE_THAN_HERE: PACE})

    async def use(crosspoint: Crosspoint) -> set[str]:
        fingerprint = (await crosspoint.survey()).fingerprint
        await crosspoint.store.keep_profile(replace(calibrated, fingerprint=fingerprint))
        for _ in range(KEPT_SPELLS):
            await crosspoint.store.keep_paces(fingerprint, {1: PACE, MORE_THAN_HERE: SLOW})
            clock.now += SPELL_SECONDS
        assert (await paces_now(crosspoint.store, await crosspoint.profile(await crosspoint.survey()))) == {
            1: PACE,
            MORE_THAN_HERE: SLOW,
        }
        return {reason.code for reason in (await ask(crosspoint)).reasons}

    assert "slower-than-calibrated" not in with_crosspoint(tmp_path, use, obedient(tmp_path / "jobs"))


@pytest.mark.usefixtures("own_lock")
def test_an_hour_without_calm_cores_makes_a_machine_slower_until_they_are_quick_again(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    heard, pace = tmp_path / "jobs", tmp_path / "pace"

    async def told(crosspoint: Crosspoint, seconds: float) -> bool:
        pace.write_text(str(seconds))
        answer = await ask(crosspoint)
        clock.now += SPELL_SECONDS
        return "slower-than-calibrated" in {reason.code for reason in answer.reasons}

    async def use(crosspoint: Crosspoint) -> list[bool]:
        fingerprint = (await crosspoint.survey()).fingerprint
        await crosspoint.store.keep_profile(replace(PROFILE, fingerprint=fingerprint))
        return [await told(crosspoint, seconds) for seconds in (SLOW, SLOW, SLOW, SLOW, PACE, SLOW)]

    program = obedient(heard, more=f", paces={{'1': float(open({str(pace)!r}).read())}}")
    assert with_crosspoint(tmp_path, use, program) == [False, False, False, True, False, False]
    sent = [job["paces"]["1"] for job in jobs(heard) if job["kind"] == "measure"]
    assert list(dict.fromkeys(sent)) == [PACE, SLOW]
    assert (sent[0], sent[-1]) == (PACE, PACE)
