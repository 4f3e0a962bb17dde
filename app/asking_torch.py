"""Asks torch, by a measuring process, which cards it can use: once, again where its word is in doubt, never at once
after it failed."""

from __future__ import annotations

import asyncio
import logging
import time

from app.advisor.plans import must_ask_torch
from app.errors import CrosspointError, LabError
from app.keeping import OnProgress
from app.lab import Lab
from app.surveyor import Surveyor
from probes.hardware import Survey

log = logging.getLogger(__name__)

# Torch that did not start is not waited for by every request: most likely it fails again.
RETRY_SECONDS = 600.0


class AskingTorch:
    """trouble: why nobody knows what torch sees; None where somebody does, or nobody has asked."""

    def __init__(self, lab: Lab, surveyor: Surveyor) -> None:
        self._lab = lab
        self._surveyor = surveyor
        self._asking = asyncio.Lock()
        self._not_before = 0.0
        self.trouble: str | None = None

    @property
    def failed_lately(self) -> bool:
        return time.monotonic() < self._not_before

    async def learn_for_plans(self, survey: Survey, on_progress: OnProgress) -> bool:
        """Ask, where plans depend on what torch says and it did not fail a while ago. False: nothing new is known."""
        if not must_ask_torch(survey) or self.failed_lately:
            return False
        on_progress(0.0, "asking torch which cards it can use")
        try:
            await self.learn(again=False)
        except CrosspointError as error:
            log.warning("What torch sees is not known: %s", error)
            return False
        return True

    async def learn(self, *, again: bool = True) -> bool:
        """Ask what torch sees, where that is not known; the process stays warm for the first trace. again: soon after
        that failed, too, and where what it said is in doubt. True: it said something new. Raises LabError."""
        async with self._asking:
            if self._surveyor.knows_torch:
                return again and self._surveyor.doubts_torch and await self._ask_again()
            if not again and self.failed_lately:
                return False  # it failed for another request, while this one waited
            try:
                if self._surveyor.has_heard_torch:
                    await self._lab.end_tracer()  # CUDA shows to a process what there was when it started
                await self._surveyor.learn_torch(await self._lab.ready())
            except CrosspointError as error:
                self.trouble = str(error)
                self._not_before = time.monotonic() + RETRY_SECONDS
                raise
            self.trouble = None
            return True

    async def _ask_again(self) -> bool:
        """By a process beside the warm one, which ends only where torch says something else by now. Raises LabError."""
        try:
            async with self._lab.another({}) as child:
                ready = child.ready
        except LabError:
            self._surveyor.torch_stands(None)
            raise
        if self._surveyor.torch_stands(ready):
            return False
        await self._lab.end_tracer()
        await self._surveyor.learn_torch(ready)
        return True
