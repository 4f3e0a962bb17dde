"""A Crosspoint that is opened, used and closed within one test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings

T = TypeVar("T")
GRACE_SECONDS = 60


def with_crosspoint(
    folder: Path, use: Callable[[Crosspoint], Awaitable[T]], program: tuple[str, ...] | None = None
) -> T:
    """Open a Crosspoint (with another program in its lab), use it, close it."""

    async def session() -> T:
        settings = Settings(data_dir=folder, grace_seconds=GRACE_SECONDS)
        async with Crosspoint(settings, Lab(settings, program) if program is not None else None) as crosspoint:
            return await use(crosspoint)

    return asyncio.run(session())
