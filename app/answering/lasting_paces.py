"""How quick this machine's cores are now, where they are slower for good than when it was calibrated.

Samples that met slow cores are reckoned back, as a neighbour leaves again (docs/decisions/0013). A clock that is lower
since (a power limit, a battery) does not: within one measurement nothing tells it from a neighbour who stays for all of
it, but neighbours leave the cores alone for one sample at least in three spells of half an hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.keeping import parse_sent, trouble_with, unless_unreadable
from app.store import Store
from app.store.paces import KEPT_SPELLS
from probes.profile import METHOD, Profile

# A reading that took no more than this many times as long as the quickest is of calm cores
# (probes.microtrain.quiet.calm; a test holds them to it).
CALM = 1.15


async def paces_now(store: Store, profile: Profile | None) -> dict[int, float]:
    """By threads, seconds of fixed work on this machine's cores as quick as they get now; none where no calibration
    told. profile: this machine's, as it is now."""
    if profile is None or profile.method != METHOD:  # which had other fixed work
        return {}
    spells = await unless_unreadable(store.paces(profile.fingerprint)) or {}
    return {threads: pace_now(pace, spells.get(threads, ())) for threads, pace in profile.paces.items()}


def pace_now(calibrated: float, spells: Sequence[float]) -> float:
    """What calibrations told, unless the cores never were as quick in any of the last spells; spells: their quickest
    readings."""
    quickest = min(spells, default=0.0)
    return quickest if len(spells) >= KEPT_SPELLS and quickest > CALM * calibrated else calibrated


async def note_paces(store: Store, fingerprint: str, result: Mapping[str, Any]) -> None:
    """Keep how quick the cores were in a measurement; not of one beside programs of this machine, whose load is known.
    Raises LabError where it says no such thing."""
    paces = parse_sent(_read_paces, dict(result))
    if paces and fingerprint and not (result.get("noise") or {}).get("busy"):
        await trouble_with(store.keep_paces(fingerprint, paces))


def _read_paces(result: dict[str, Any]) -> dict[int, float]:
    """Raises ValueError, TypeError or AttributeError."""
    return {int(threads): float(seconds) for threads, seconds in (result.get("paces") or {}).items()}
