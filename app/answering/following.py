"""The trace for one answer: the one that is kept, one that is made now, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.advisor.request import Request
from app.answering.answer_notes import AnswerNotes
from app.answering.real_steps import RealSteps
from app.errors import LabError
from app.keeping import OnProgress
from app.lab.child import Child
from app.lab.tracer import TRACE_SECONDS
from probes.hardware import Survey
from probes.trace import Trace

if TYPE_CHECKING:
    from app.service import Crosspoint

# A trace that cannot be had: steps may be run all the same.
_UNTRACEABLE = frozenset({"unsupported", "too-slow", "failed", "out-of-memory"})


class Following:
    """untraceable: why the model's step cannot be followed, once that is known. devices: whether any plan is a
    device's, whose step is traced as it runs there."""

    def __init__(
        self,
        crosspoint: Crosspoint,
        request: Request,
        on_progress: OnProgress,
        notes: AnswerNotes,
        steps: RealSteps,
    ) -> None:
        self._crosspoint = crosspoint
        self._request = request
        self._on_progress = on_progress
        self._notes = notes
        self._steps = steps
        self.devices = False
        self.untraceable: LabError | None = None

    async def known_trace(self, survey: Survey) -> Trace | None:
        return await self._crosspoint.known_trace(survey, self._request.workload, devices=self.devices)

    async def trace_if_possible(self, survey: Survey, child: Child | None = None) -> Trace | None:
        """The one that is kept, somebody's of meanwhile too; else one that this process makes, or without it the lab's.
        None where the model's step may be run, not followed. Raises LabError."""
        known = await self.known_trace(survey)
        self.untraceable = None if known else await self._refusal(survey)
        if known or self.untraceable:
            return known
        try:
            return await self._trace(survey, child)
        except LabError as error:
            if error.code not in _UNTRACEABLE:
                raise
            self.untraceable = error
        return None

    async def _trace(self, survey: Survey, child: Child | None) -> Trace:
        self._on_progress(0.0, "tracing the model")
        run = None if child is None else lambda job: child.run(job, TRACE_SECONDS)
        made = await self._crosspoint.new_trace(
            survey, self._request.workload, run, devices=self.devices, seconds=TRACE_SECONDS
        )
        return self._notes.value_of(made)

    async def _refusal(self, survey: Survey) -> LabError | None:
        """Of an earlier try to trace it, where steps tell instead (they run now, or have run before), or where no try
        will bring one."""
        refusal = self._crosspoint.trace_refusal(survey, self._request.workload, TRACE_SECONDS, devices=self.devices)
        if refusal is None or self._request.effort != "instant" or refusal.code != "too-slow":
            return refusal
        return refusal if any(row.outcome == "ok" for row in await self._steps.known(survey)) else None
