"""One command's use of the service, in this process: started, asked, closed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from app.cli.progress import Report, show_progress

if TYPE_CHECKING:
    from app.service import Crosspoint

Answer = TypeVar("Answer")
Work = Callable[["Crosspoint", Report], Awaitable[Answer]]


def run_with_service(work: Work[Answer], *, quiet: bool = False) -> Answer:
    """Run `work` with an open service. Ctrl-C, TERM and HUP cancel it, and the service ends its children before this
    returns."""
    from app.cli.checked_settings import checked_settings
    from app.cli.signals import run_until_signalled
    from app.service import Crosspoint

    logging.basicConfig(format="Warning: %(message)s")  # as when something could not be saved
    settings = checked_settings()

    async def session(report: Report) -> Answer:
        async with Crosspoint(settings) as service:
            return await work(service, report)

    with show_progress(quiet) as report:
        return run_until_signalled(session(report))
