"""A profile of this machine as it was: why it is not used any more."""

from __future__ import annotations

from app.advisor.recommendation import Reason
from probes.hardware import Survey
from probes.machine_facts import changes_since
from probes.profile import Profile


def explain_outdated(profile: Profile, survey: Survey) -> Reason:
    """What changed since it was measured, as far as it is known, and what to do."""
    changes = (*_software_changes(profile, survey), *_hardware_changes(profile, survey))
    unsaid = (
        "a driver, a limit, the kind of cores that may be used, an instruction set or the card behind a device's name "
        "is another one, or was not told from others then, or what was taken for a card is none"
    )
    what = "; ".join(changes) or unsaid
    text = (
        f"This machine has changed since it was calibrated at {profile.created_at} ({what}), so that profile is not "
        "used. Run `crosspoint calibrate` once; a running service does so by itself, where it may."
    )
    return Reason("stale-profile", text, {"profile": profile.name, "created_at": profile.created_at})


def _software_changes(profile: Profile, survey: Survey) -> tuple[str, ...]:
    before, torch = profile.software.get("torch"), survey.software.torch
    now = torch.version if torch is not None else None
    return () if before is None or now is None or before == now else (f"torch {before} then, {now} now",)


def _hardware_changes(profile: Profile, survey: Survey) -> tuple[str, ...]:
    return () if profile.hardware is None else changes_since(profile.hardware, survey)
