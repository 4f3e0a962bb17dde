"""When what watches the cards is let go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from app import surveyor as keeping
from app.settings import Settings
from app.surveyor import Surveyor


@pytest.mark.parametrize("watched", [True, False])
def test_cards_that_somebody_began_to_watch_are_not_let_go_by_an_earlier_survey(
    monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    monkeypatch.setattr(keeping, "REST_SECONDS", 0.05)
    stopped: list[bool] = []

    async def watch() -> None:
        surveyor = Surveyor(Settings())
        surveyor._nvidia = SimpleNamespace(stop=lambda: stopped.append(True))  # type: ignore[assignment]
        surveyor._rest_later()  # as after a survey
        if watched:
            with surveyor.awake():
                await asyncio.sleep(0.3)
                assert not stopped
        await asyncio.sleep(0.3)

    asyncio.run(watch())
    assert stopped == [True]
