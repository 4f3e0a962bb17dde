"""What this machine's profiles may be called."""

from __future__ import annotations

from itertools import count

from app.keeping import unless_unreadable
from app.labjobs import own_name
from app.store import Store
from probes.hardware import Survey


async def is_another_machines(store: Store, survey: Survey, name: str) -> bool:
    """Whether a profile of this name is stored that is neither this machine's nor its from before it changed."""
    named = await unless_unreadable(store.named_profile(name))
    if named is None or named.fingerprint == survey.fingerprint:
        return False
    before = await unless_unreadable(store.outdated_profile(survey.fingerprint))
    return before is None or before.fingerprint != named.fingerprint


async def free_name(store: Store, survey: Survey) -> str:
    """This machine's own name, with a number behind it where another machine's profile is called so."""
    own = own_name(survey)
    name, numbers = own, count(2)
    while await is_another_machines(store, survey, name):
        name = f"{own}-{next(numbers)}"
    return name
