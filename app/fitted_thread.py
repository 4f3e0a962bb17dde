"""Work that needs what is fitted to a profile: as long as that is being made, one thread waits for it and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from app.advisor.time_model.predicted import is_fitted
from probes.profile import Profile

T = TypeVar("T")

# By the identity of profiles that are not fitted: by whoever works on one, and those who wait for that.
_turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


async def in_fitted_thread(profile: Profile | None, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """As asyncio.to_thread. Who asks about a profile that is not fitted yet takes turns with others who do: they would
    all hold threads until the fit is done, and answers about other profiles have the same threads."""
    if profile is None or is_fitted(profile):
        return await asyncio.to_thread(work, *arguments, **named)
    turn = _turns.setdefault(id(profile), asyncio.Lock())
    await turn.acquire()
    working = asyncio.create_task(asyncio.to_thread(work, *arguments, **named))
    # Who leaves meanwhile leaves the thread at work, so the turn is over with that.
    working.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(working)
