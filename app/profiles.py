"""Profiles as things that travel: shown, taken in from elsewhere, forgotten."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.advisor.time_model.pooled import devices_that_count
from app.errors import ProfileRefused
from app.measurable import check_surveyed
from app.profile_names import is_another_machines
from app.service import Crosspoint
from probes import bounds
from probes.checked import Refused, check_text
from probes.hardware import Survey
from probes.machine_facts import contradictions
from probes.profile import InvalidProfile, Profile, moment_of, parse_profile


async def list_profiles(crosspoint: Crosspoint) -> list[dict[str, Any]]:
    """A summary of the profile that `find_profile` gives of each name, newest first. Raises StoreError."""
    fingerprint = (await crosspoint.survey_tried_twice()).fingerprint
    heads, own = await crosspoint.profiles.heads(fingerprint), await crosspoint.profiles.of_machine(fingerprint)
    return [summarize(head, this_machine=own is not None and head["name"] == own.name) for head in heads]


async def find_profile(crosspoint: Crosspoint, name: str) -> Profile:
    """The profile of this name: of several this machine's as it is now, else the latest. Raises UnknownProfile,
    StoreError."""
    found = await crosspoint.profile(await crosspoint.survey_tried_twice(), name)
    assert found is not None
    return found


async def newest_devices(crosspoint: Crosspoint, profile: Profile) -> dict[str, bool]:
    """The devices that this profile's newest calibration measured, and whether the profile holds any of that; empty
    where none is stored."""
    calibrations = await crosspoint.profiles.calibrations(profile.name, profile.fingerprint)
    return await asyncio.to_thread(devices_that_count, calibrations) if calibrations else {}


async def import_profile(crosspoint: Crosspoint, content: bytes, name: str | None = None) -> Profile:
    """Take in a profile's file, under its own name or this one; whatever is wrong with it, what was there stays.

    One with this machine's fingerprint becomes this machine's profile; any other answers when it is asked for by name.
    One that is stored already, or was to be, is left as it is, with the calibrations that it is made of; this machine's
    under another name is refused. Raises ProfileRefused, StoreError, and LabError where nobody knows which machine
    this is.
    """
    try:
        profile = await asyncio.to_thread(parse_profile, content)
    except InvalidProfile as error:
        what = f"This profile was not taken: {error}. Whatever is stored stays as it was."
        raise ProfileRefused("profile-refused", what, error.theirs) from None
    profile = replace(profile, name=check_name(profile.name if name is None else name))
    _refuse_empty(profile)
    survey = await crosspoint.survey_tried_twice()
    check_surveyed(survey)
    refuse_impostor(profile, survey)
    await asyncio.to_thread(_refuse_unreadable, profile)
    async with crosspoint.profiles.changing:
        await _refuse_shadowed(crosspoint, profile, survey.fingerprint)
        await _refuse_shadowing(crosspoint, profile)
        if profile.fingerprint == survey.fingerprint:
            await _refuse_twin(crosspoint, profile)
        await _keep(crosspoint, profile)
    return profile


async def _keep(crosspoint: Crosspoint, profile: Profile) -> None:
    """Raises StoreError."""
    if crosspoint.profiles.holds(profile):
        await crosspoint.profiles.save(profile.fingerprint)
        return
    if crosspoint.store.lasting_trouble or await crosspoint.store.profile(profile.fingerprint) != profile:
        await crosspoint.store.keep_profile(profile)
    crosspoint.profiles.forget_unsaved(lambda unsaved: unsaved.fingerprint == profile.fingerprint)
    crosspoint.profiles.came.set()


async def forget_profile(crosspoint: Crosspoint, name: str) -> None:
    """Forget every profile of this name. Raises UnknownProfile, and StoreError where that cannot be done or told: then
    those that are not saved yet stay as well."""
    async with crosspoint.profiles.changing:
        is_stored = await crosspoint.store.has_profile(name)
        if is_stored:
            await crosspoint.store.forget_profiles(name)
        was_unsaved = crosspoint.profiles.forget_unsaved(lambda unsaved: unsaved.name == name)
    if not is_stored and not was_unsaved:
        raise await crosspoint.profiles.unknown()


def check_name(name: str) -> str:
    """Of a profile that is to be taken in. Raises ProfileRefused."""
    if trouble := _trouble_with_name(name):
        raise ProfileRefused("profile-refused", f"This profile was not taken: {trouble}.")
    return name


def check_other_name(name: str) -> str:
    """Of a profile that is to be given away under it. Raises ProfileRefused."""
    if trouble := _trouble_with_name(name):
        raise ProfileRefused("profile-refused", f"The file would have a name that no profile can have: {trouble}.")
    return name


def _trouble_with_name(name: str) -> str | None:
    try:
        text = check_text(name, "its name", bounds.MAX_NAME_CHARACTERS)
    except Refused as error:
        return str(error)
    if not {".", ".."}.isdisjoint(text.split("/")):  # which every client takes out of an address
        return "no address can have its name, since a part of it is . or .."
    return None if text.strip() else "it has no name, and none was given"


async def check_new_name(crosspoint: Crosspoint, name: str) -> None:
    """Raises ProfileRefused where this machine's next profile cannot be called so: said before it is measured, and
    LabError where nobody knows which machine this is."""
    if trouble := _trouble_with_name(name):
        raise ProfileRefused("profile-refused", f"The profile would have a name that it cannot have: {trouble}.")
    survey = await crosspoint.survey_tried_twice()
    check_surveyed(survey)
    if await is_another_machines(crosspoint.store, survey, name):
        raise ProfileRefused(
            "profile-exists",
            "Another machine's profile is stored under this name. Calibrate under another one, or remove that first.",
        )


def _refuse_empty(profile: Profile) -> None:
    """Raises ProfileRefused for one that would answer nothing, and hide what does."""
    if not profile.points:
        raise ProfileRefused("profile-refused", "This profile was not taken: points is empty, so nothing was measured.")
    if not profile.fingerprint.strip():
        raise ProfileRefused(
            "profile-refused", "This profile was not taken: fingerprint is empty, so it is no machine's."
        )


def _refuse_unreadable(profile: Profile) -> None:
    """Raises ProfileRefused for one that could not be read again: it would hide what can, and answer nothing."""
    try:
        Profile.from_json(profile.to_json())
    except InvalidProfile as error:
        raise ProfileRefused(
            "profile-refused", f"This profile was not taken: once stored it could not be read again ({error})."
        ) from None


def refuse_impostor(profile: Profile, survey: Survey) -> None:
    """Raises ProfileRefused for one that has this machine's fingerprint and speaks of another machine."""
    if profile.fingerprint != survey.fingerprint:
        return
    most, cores = max((point.plan.threads or 0 for point in profile.points), default=0), _cores(survey)
    if cores and most > cores:
        raise ProfileRefused(
            "profile-refused",
            f"This profile was not taken: it claims to be this machine's, and has plans of {most} threads where there "
            f"are {cores} cores.",
        )
    if profile.hardware is not None and (found := contradictions(profile.hardware, survey)):
        raise ProfileRefused(
            "profile-refused",
            "This profile was not taken: it claims to be this machine's and describes another one "
            f"({len(found)} of its facts {'does' if len(found) == 1 else 'do'} not hold here).",
        )


def _cores(survey: Survey) -> int:
    """All that a calibration may have had a thread for; 0: not known."""
    cpu = survey.cpu
    return max(cpu.logical_cores or 0, math.ceil(cpu.usable_cores or 0), cpu.physical_cores or 0)


async def _refuse_shadowed(crosspoint: Crosspoint, profile: Profile, here: str) -> None:
    """Raises ProfileRefused for one of another machine, or of this one before it changed, whose name gives this
    machine's as it is now (KnownProfiles.find): no name would give it. here: this machine's fingerprint."""
    if profile.fingerprint == here:
        return
    stored = await crosspoint.store.named_profile(profile.name, here)
    for ours in (stored, await crosspoint.profiles.of_machine(here)):
        if ours is not None and (ours.name, ours.fingerprint) == (profile.name, here):
            raise ProfileRefused(
                "profile-exists",
                "This name gives this machine's profile as it is now, which would answer in the place of the new one. "
                "Give the new one another name.",
            )


async def _refuse_shadowing(crosspoint: Crosspoint, profile: Profile) -> None:
    """Raises ProfileRefused where it would stand before another machine's, or before a newer one of its own. One that
    was made in the future (a clock was wrong) is newer than none."""
    named = await crosspoint.store.named_profile(profile.name)
    same = await crosspoint.profiles.of_machine(profile.fingerprint)
    is_its_name = same is not None and same.name == profile.name
    if named is not None and named.fingerprint != profile.fingerprint and not is_its_name:
        raise ProfileRefused(
            "profile-exists",
            "Another machine's profile is stored under this name, or this one's before it changed. Give the new one "
            "another name, or remove the stored one first.",
        )
    now = datetime.now(UTC)
    for stored in (named, same):
        is_that = stored is not None and stored.fingerprint == profile.fingerprint
        if stored is not None and is_that and moment_of(profile.created_at) < moment_of(stored.created_at) <= now:
            raise ProfileRefused(
                "profile-exists",
                f'A newer profile of that machine is known, named "{stored.name}"; the older one would hide it. Remove '
                "that one first where the older one is wanted.",
            )


async def _refuse_twin(crosspoint: Crosspoint, profile: Profile) -> None:
    """Raises ProfileRefused where it is what answers for this machine already, but for its name: it would answer in
    that one's place, without the calibrations that it is made of."""
    ours = await crosspoint.profiles.of_machine(profile.fingerprint)
    if ours is not None and ours.name != profile.name and replace(ours, name=profile.name) == profile:
        raise ProfileRefused(
            "profile-exists",
            f'This is the profile that answers for this machine already, named "{ours.name}". Nothing was changed. '
            "Remove that one first where it is to have another name.",
        )


HEAD = ("name", "machine", "created_at", "fingerprint", "effort", "software", "noise", "points", "networks")


def summarize(head: dict[str, Any], *, this_machine: bool) -> dict[str, Any]:
    """What a list says of a profile. this_machine: it answers for this machine as it is now."""
    return {
        **{name: head[name] for name in HEAD},
        "calibrations": head.get("calibrations", 1),
        "age_seconds": age_seconds(head["created_at"]),
        "this_machine": this_machine,
    }


def age_seconds(created_at: str, now: datetime | None = None) -> float | None:
    """None where it was made in the future: one of two clocks is wrong."""
    age = ((now or datetime.now(UTC)) - moment_of(created_at)).total_seconds()
    return age if age >= 0 else None
