"""Somebody takes in a profile while a process measures."""

from __future__ import annotations

import json
from typing import Any

from app.profiles import import_profile
from app.service import Crosspoint
from probes.profile import Profile


def imported_meanwhile(crosspoint: Crosspoint, profile: Profile) -> None:
    """From now on with each measurement of the lab's, before it has ended."""
    run = crosspoint.lab.run_at_turn

    async def run_and_import(*words: Any, **more: Any) -> dict[str, Any]:
        found = await run(*words, **more)
        await import_profile(crosspoint, json.dumps(profile.to_json()).encode())
        return found

    crosspoint.lab.run_at_turn = run_and_import  # type: ignore[method-assign]
