"""The profiles that answers are given from: those of the store, and this machine's own where it could not be saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import is_
from typing import Any

from app.advisor.time_model.pooled import LOOKED_AT
from app.errors import StoreError, UnknownProfile
from app.keeping import trouble_with, unless_unreadable
from app.store import Store
from app.store.profiles import LISTED_PROFILES, head_of
from probes.hardware import Survey
from probes.profile import Profile, moment_of


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A profile that could not be saved, with the calibration that made it."""

    profile: Profile
    calibration: Profile


class KnownProfiles:
    """What could not be saved is known until it is, or the process ends.

    came: set when there is another profile of this machine; whoever waits for one clears it. changing: held by whoever
    keeps or removes a profile, from looking which there are until it is done: of two that look at once, both would
    find the name free."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, list[_Held]] = {}  # by fingerprint, oldest first
        self.came = asyncio.Event()
        self.changing = asyncio.Lock()

    async def find(self, survey: Survey, name: str | None = None) -> Profile | None:
        """The profile of this name, of several this machine's as it is now, else the latest; or without a name this
        machine's. Raises UnknownProfile for a name, and StoreError where nobody can tell."""
        if name is None:
            return await self.of_machine(survey.fingerprint)
        await self._look_again()
        own = await self.of_machine(survey.fingerprint)
        if own is not None and own.name == name:  # also where this machine was calibrated in another state since
            return own
        stored = await self._store.named_profile(name, survey.fingerprint)
        named = [each for each in (*self._held(), stored) if each is not None and each.name == name]
        if not named:
            raise await self.unknown()
        return max(named, key=lambda each: _precedence(each.fingerprint, each.created_at, survey.fingerprint))

    async def heads(self, fingerprint: str = "") -> list[dict[str, Any]]:
        """What a list tells of the profile that `find` gives of each name, newest first. fingerprint: this machine's.
        Raises StoreError, also where nobody can tell whether there is any."""
        await self._look_again()
        heads: dict[str, dict[str, Any]] = {}
        for head in [*map(head_of, self._held()), *await self._store.profile_heads(fingerprint)]:
            rivals = (heads.get(head["name"], head), head)
            heads[head["name"]] = max(
                rivals, key=lambda each: _precedence(each["fingerprint"], each["created_at"], fingerprint)
            )
        if (own := await self.of_machine(fingerprint)) is not None:
            heads[own.name] = head_of(own)
        if not heads:
            self._check_readable()
        return [*heads.values()][:LISTED_PROFILES]

    async def of_machine(self, fingerprint: str) -> Profile | None:
        """The one that answers for the machine that has this fingerprint."""
        if not fingerprint:  # the survey failed: whose profile it would be is not known
            return None
        held, stored = self._unsaved.get(fingerprint), await unless_unreadable(self._store.profile(fingerprint))
        here = [one for one in (held[-1].profile if held else None, stored) if one is not None]
        return max(here, key=lambda one: _known_moment(one.created_at), default=None)

    async def unknown(self, *, is_this_machines: bool = False) -> UnknownProfile:
        """What to raise where no profile is found that was asked for: by its name, or as this machine's. Raises
        StoreError where nobody can tell."""
        self._check_readable()
        names = tuple(head["name"] for head in await self.heads())
        return UnknownProfile(names, is_this_machines=is_this_machines)

    async def _look_again(self) -> None:
        """Where nothing that was stored can be read: whoever asks again, as they are told to, shall be answered once it
        can be. Raises StoreError."""
        if self._store.unreadable is not None:
            await self._store.open()

    def _check_readable(self) -> None:
        """Raises StoreError."""
        if self._store.unreadable is not None:
            raise StoreError(f"Profiles cannot be looked up: {self._store.unreadable}.")

    async def brought(self, survey: Survey) -> Profile | None:
        """The stored profile of this machine where it came from elsewhere."""
        stored = await unless_unreadable(self._store.profile(survey.fingerprint))
        if stored is None:
            return None
        times = await unless_unreadable(self._store.calibration_times(stored.name, stored.fingerprint))
        return stored if times == [] else None

    async def calibrations(self, name: str, fingerprint: str) -> list[Profile]:
        """What was calibrated here that may count, newest first, since a profile from elsewhere took its place."""
        stored = await unless_unreadable(self._store.calibrations(name, fingerprint, LOOKED_AT)) or []
        return [*self._held_calibrations(name, fingerprint), *stored][:LOOKED_AT]

    async def calibration_times(self, name: str, fingerprint: str, method: int | None = None) -> list[float]:
        """When those were made, newest first; seconds since 1970. method: of those that measured so alone."""
        stored = await unless_unreadable(self._store.calibration_times(name, fingerprint, method)) or []
        held = [each for each in self._held_calibrations(name, fingerprint) if method in (None, each.method)]
        return [*(moment_of(each.created_at).timestamp() for each in held), *stored]

    def _held_calibrations(self, name: str, fingerprint: str) -> list[Profile]:
        """Newest first. What is kept in memory alone, the store tells of itself."""
        held = [] if self._store.unreadable is not None else self._unsaved.get(fingerprint, [])
        return [each.calibration for each in reversed(held) if each.profile.name == name]

    def note(self, profile: Profile, calibration: Profile, *, saved: bool) -> None:
        """A new one of this machine. Where it was saved, it takes the place of those that were not."""
        held = self._unsaved.pop(profile.fingerprint, [])
        if not saved:
            self._unsaved[profile.fingerprint] = [*held, _Held(profile, calibration)][-LOOKED_AT:]
        self.came.set()

    async def save_unsaved(self) -> None:
        """Write what could not be saved, where the store can be written by now. What was stored of the same machine
        since answers in its place."""
        for fingerprint in [*self._unsaved]:
            async with self.changing:
                await trouble_with(self.save(fingerprint))

    async def save(self, fingerprint: str) -> None:
        """What could not be saved of this machine, oldest first; for who holds `changing`. Raises StoreError."""
        if self._store.lasting_trouble is not None:
            await self._store.open()
        if self._store.lasting_trouble is not None:  # else a store in memory alone would be told the same each time
            raise StoreError(f"This was not saved: {self._store.lasting_trouble}.")
        for held in [*self._unsaved.get(fingerprint, [])]:
            stored = await unless_unreadable(self._store.profile(fingerprint))
            if stored is None or not _is_newer(stored, held.profile):
                await self._store.keep_profile(held.profile, held.calibration)
            self._forget(partial(is_, held))
        self.came.set()  # as it is stored, it is another object

    def holds(self, profile: Profile) -> bool:
        """Whether it is one that could not be saved and answers all the same."""
        held = self._unsaved.get(profile.fingerprint, [])
        return bool(held) and held[-1].profile == profile

    def forget_unsaved(self, chosen: Callable[[Profile], bool]) -> bool:
        """Of the profiles of this machine that could not be saved; False where there is none to forget."""
        return self._forget(lambda held: chosen(held.profile))

    def _held(self) -> list[Profile]:
        """What could not be saved, newest first."""
        held = [each.profile for of_one in self._unsaved.values() for each in of_one]
        return sorted(held, key=lambda each: moment_of(each.created_at), reverse=True)

    def _forget(self, chosen: Callable[[_Held], bool]) -> bool:
        before = sum(map(len, self._unsaved.values()))
        kept = {of: [one for one in held if not chosen(one)] for of, held in self._unsaved.items()}
        self._unsaved = {of: held for of, held in kept.items() if held}
        return sum(map(len, self._unsaved.values())) < before


def _precedence(fingerprint: str, created_at: str, here: str) -> tuple[bool, datetime]:
    """Of several profiles of one name the one with the greatest is found by it. here: this machine's fingerprint."""
    return fingerprint == here, _known_moment(created_at)


def _known_moment(created_at: str) -> datetime:
    """One in the future (a clock was wrong) is older than all."""
    moment = moment_of(created_at)
    return moment if moment <= datetime.now(UTC) else datetime.min.replace(tzinfo=UTC)


def _is_newer(one: Profile, other: Profile) -> bool:
    """One that was made in the future (a clock was wrong) is newer than none."""
    return moment_of(other.created_at) < moment_of(one.created_at) <= datetime.now(UTC)
