"""When what watches the cards is let go."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from app import surveyor as keeping
from app.settings import Settings
from app.surveyor import Surveyor


async def what_is_due() -> None:
    """Timers that are over, and the threads that they began."""
    for _ in range(3):
        await asyncio.sleep(0)
    for thread in threading.enumerate():
        if thread.name == "rest":
            thread.join()


@pytest.mark.parametrize("watched", [True, False])
def test_cards_that_somebody_began_to_watch_are_not_let_go_by_an_earlier_survey(
    monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    monkeypatch.setattr(keeping, "REST_SECONDS", 0.0)
    stopped: list[bool] = []

    async def watch() -> None:
        surveyor = Surveyor(Settings())
        surveyor._nvidia = SimpleNamespace(stop=lambda: stopped.append(True))  # type: ignore[assignment]
        surveyor._rest_later()  # as after a survey
        if watched:
            with surveyor.awake():
                await what_is_due()
                assert not stopped
        await what_is_due()

    asyncio.run(watch())
    assert stopped == [True]
