"""The trace for one answer: the one that is kept, one that is made now, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.advisor.request import Request
from app.answering.answer_notes import AnswerNotes
from app.answering.measuring_time import WAITED_FOR_SECONDS
from app.answering.real_steps import RealSteps
from app.errors import LabError
from app.keeping import OnProgress
from app.lab.child import Child
from app.lab.child_endings import NOT_RETURNED
from app.lab.tracer import TRACE_SECONDS
from probes.hardware import Survey
from probes.trace import Trace

if TYPE_CHECKING:
    from app.service import Crosspoint

# A trace that cannot be had: steps may be run all the same.
_UNTRACEABLE = frozenset({"unsupported", "too-slow", "failed", "out-of-memory"})


class Following:
    """untraceable: why the model's step cannot be followed, once that is known. devices: whether any plan is a
    device's, whose step is traced as it runs there. elsewhere: the fingerprint of the machine that is answered for,
    where that is another one."""

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
        self.elsewhere = ""
        self.untraceable: LabError | None = None

    @property
    def seconds(self) -> float:
        """That a trace may take: where the time is limited, no longer than steps may, with what they are waited for."""
        request = self._request
        limited = request.measuring_seconds + WAITED_FOR_SECONDS
        return TRACE_SECONDS if request.time_limit_seconds is None else min(TRACE_SECONDS, limited)

    @property
    def is_stuck(self) -> bool:
        """The user's own function did not return for as long as it would be waited for to run steps."""
        waited_for = self._request.measuring_seconds + WAITED_FOR_SECONDS
        is_own = self.untraceable is not None and NOT_RETURNED in str(self.untraceable)
        return is_own and waited_for <= self.seconds

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
        run = None if child is None else lambda job: child.run(job, self.seconds)
        made = await self._crosspoint.new_trace(
            survey, self._request.workload, run, devices=self.devices, seconds=self.seconds
        )
        return self._notes.value_of(made)

    async def _refusal(self, survey: Survey) -> LabError | None:
        """Of an earlier try to trace it, where steps tell instead (they run now, or have run before on the machine that
        is answered for), or where no try will bring one."""
        refusal = self._crosspoint.trace_refusal(survey, self._request.workload, self.seconds, devices=self.devices)
        if refusal is None or refusal.code != "too-slow" or (self._request.effort != "instant" and not self.elsewhere):
            return refusal
        if self.elsewhere:
            known = await self._crosspoint.measurements_of(self.elsewhere, self._request.workload)
        else:
            known = await self._steps.known(survey)
        return refusal if any(row.outcome == "ok" for row in known) else None
