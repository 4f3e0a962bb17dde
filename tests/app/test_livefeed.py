"""One reading for all who listen; nothing runs while nobody does; a fault ends the streams and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.errors import FeedRefused
from app.livefeed import LiveFeed
from app.service import Crosspoint
from app.settings import Settings
from probes.live import LiveReader


def with_feed(folder: Path, use: Callable[[LiveFeed], Awaitable[None]]) -> None:
    async def session() -> None:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint, asyncio.timeout(90):
            await use(crosspoint.live)

    asyncio.run(session())


def test_readings_are_taken_while_somebody_listens_and_no_longer(tmp_path: Path) -> None:
    async def use(feed: LiveFeed) -> None:
        assert feed.latest is None
        with feed.listen(), feed.listen():
            told = await feed.next(0)
            assert told is not None
            assert await feed.next(0) is told, "the same one for all"
        assert feed.latest is None
        assert feed.listeners == 0

    with_feed(tmp_path, use)


def test_who_asks_now_and_then_keeps_it_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(feed: LiveFeed) -> None:
        feed.keep()
        feed.keep()
        assert await feed.next(0) is not None
        monkeypatch.setattr("app.livefeed.KEEP_SECONDS", 0.0)
        feed.keep()
        while feed.latest is not None:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.01)

    with_feed(tmp_path, use)


def test_a_fault_ends_the_streams_and_the_next_listener_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(feed: LiveFeed) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(LiveReader, "read", lambda *_: 1 / 0)
            with feed.listen():
                assert await feed.next(0) is None
        with feed.listen():
            assert await feed.next(0) is not None

    with_feed(tmp_path, use)


def test_a_feed_that_was_closed_tells_nothing_more(tmp_path: Path) -> None:
    async def use(feed: LiveFeed) -> None:
        with feed.listen():
            feed.close()
            assert await feed.next(0) is None
        with pytest.raises(FeedRefused), feed.listen():
            pass

    with_feed(tmp_path, use)
