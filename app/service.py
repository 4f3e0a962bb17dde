"""Crosspoint: everything that the HTTP interface and the command line can ask for, in one place.

async with Crosspoint(settings) as crosspoint:
    recommendation = await crosspoint.recommend(request)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.errors import CrosspointError, LabBusy, LabError, StoreError, UnknownProfile
from app.settings import Settings
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan, Workload

__all__ = ["Crosspoint", "CrosspointError", "LabBusy", "LabError", "OnProgress", "StoreError", "UnknownProfile"]

# Called from the event loop with a fraction from 0 to 1 and a few words.
OnProgress = Callable[[float, str], None]


class Crosspoint:
    """The facade. Opens nothing and starts nothing until it is asked; leaving it ends every process it started."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def __aenter__(self) -> Crosspoint:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every process that was started, within 4 seconds, and close the store."""

    async def survey(self, *, fresh: bool = False) -> Survey:
        """What this machine is; its changing facts at most a second old."""
        raise NotImplementedError

    async def trace(self, workload: Workload) -> Trace:
        """The operations of one step, from the store or traced now. Raises LabError."""
        raise NotImplementedError

    async def recommend(self, request: Request, on_progress: OnProgress | None = None) -> Recommendation:
        """Where and how to train. Raises InvalidRequest, LabError, LabBusy, UnknownProfile."""
        raise NotImplementedError

    async def measure(
        self,
        request: Request,
        *,
        seconds: float,
        plans: Sequence[Plan] = (),
        batch_sizes: Sequence[int] = (),
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """Run real steps under each plan (empty: every candidate) and keep the measurements. Raises LabError."""
        raise NotImplementedError

    async def calibrate(
        self,
        effort: str,
        *,
        devices: Sequence[str] = (),
        name: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Profile:
        """Measure this machine's constants (`quick` or `full`) and keep the profile. Raises LabError."""
        raise NotImplementedError

    async def experiment(
        self,
        name: str,
        *,
        epochs: int,
        log_every: Sequence[int | None],
        devices: Sequence[str] = (),
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Run an experiment (`iris`) on the devices. Raises LabError."""
        raise NotImplementedError
