"""What this machine's profiles may be called."""

from __future__ import annotations

from itertools import count

from app.keeping import unless_unreadable
from app.labjobs import own_name
from app.store import Store
from probes import bounds
from probes.hardware import Survey


async def is_another_machines(store: Store, survey: Survey, name: str) -> bool:
    """Whether a profile of this name is stored that is neither this machine's nor its from before it changed."""
    named = await unless_unreadable(store.named_profile(name))
    if named is None or named.fingerprint == survey.fingerprint:
        return False
    return not await unless_unreadable(store.was_seen(named.fingerprint))


async def free_name(store: Store, survey: Survey, wanted: str | None = None) -> str:
    """The name that is wanted, else this machine's own, with a number behind it where another machine's profile is
    called so."""
    wanted = wanted or own_name(survey)
    name, numbers = wanted, count(2)
    while await is_another_machines(store, survey, name):
        number = f"-{next(numbers)}"
        name = wanted[: bounds.MAX_NAME_CHARACTERS - len(number)] + number
    return name
