"""The profiles that answers are given from: those of the store, and this machine's own where it could not be saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from app.errors import StoreError, UnknownProfile
from app.keeping import trouble_with, unless_unreadable
from app.store import Store
from probes.hardware import Survey
from probes.profile import Profile, moment_of


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A profile that could not be saved, with the calibration that made it."""

    profile: Profile
    calibration: Profile


class KnownProfiles:
    """What could not be saved is known until it is, or the process ends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, _Held] = {}  # by fingerprint

    async def find(self, survey: Survey, name: str | None = None) -> Profile | None:
        """The stored profile of this name, or without a name this machine's. Raises UnknownProfile for a name, and
        StoreError where nobody can tell."""
        if name is None:
            return await self._own(survey.fingerprint)
        own = await self._own(survey.fingerprint)
        if own is not None and own.name == name:  # also where this machine was calibrated in another state since
            return own
        found = await self._store.named_profile(name)
        if found is None:
            raise await self.unknown()
        return found

    async def _own(self, fingerprint: str) -> Profile | None:
        if not fingerprint:  # the survey failed: whose profile it would be is not known
            return None
        held, stored = self._unsaved.get(fingerprint), await unless_unreadable(self._store.profile(fingerprint))
        here = [None if held is None else held.profile, stored]
        return max((one for one in here if one is not None), key=lambda one: moment_of(one.created_at), default=None)

    async def unknown(self) -> UnknownProfile:
        """What to raise where no profile is found that was asked for. Raises StoreError where nobody can tell."""
        if self._store.unreadable is not None:
            raise StoreError(f"Profiles cannot be looked up: {self._store.unreadable}.")
        return UnknownProfile(await self._store.profile_names())

    async def brought(self, survey: Survey) -> Profile | None:
        """The stored profile of this machine where it came from elsewhere."""
        stored = await unless_unreadable(self._store.profile(survey.fingerprint))
        if stored is None:
            return None
        times = await unless_unreadable(self._store.calibration_times(stored.name, stored.fingerprint))
        return stored if times == [] else None

    def note(self, profile: Profile, calibration: Profile, *, saved: bool) -> None:
        """A new one of this machine, which takes the place of one that was not saved."""
        self._unsaved.pop(profile.fingerprint, None)
        if not saved:
            self._unsaved[profile.fingerprint] = _Held(profile, calibration)

    async def save_unsaved(self) -> None:
        """Write what could not be saved, where the store can be written by now. What was stored of the same machine
        since answers in its place."""
        for fingerprint, held in [*self._unsaved.items()]:
            if await self._save(held) and self._unsaved.get(fingerprint) is held:
                del self._unsaved[fingerprint]

    async def _save(self, held: _Held) -> bool:
        """Whether nothing of it is left to be saved."""
        fingerprint = held.profile.fingerprint
        stored = await unless_unreadable(self._store.profile(fingerprint))
        was_forgotten = self._unsaved.get(fingerprint) is not held
        if was_forgotten or (stored is not None and _is_newer(stored, held.profile)):
            return True
        return await trouble_with(self._store.keep_profile(held.profile, held.calibration)) is None

    def forget_unsaved(self, chosen: Callable[[Profile], bool]) -> bool:
        """Of the profiles of this machine that could not be saved; False where there is none to forget."""
        names = [name for name, held in self._unsaved.items() if chosen(held.profile)]
        for name in names:
            del self._unsaved[name]
        return bool(names)


def _is_newer(one: Profile, other: Profile) -> bool:
    """One that was made in the future (a clock was wrong) is newer than none."""
    return moment_of(other.created_at) < moment_of(one.created_at) <= datetime.now(UTC)
