"""Which plan wins at each batch size of one network: a row of the map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.advisor.decide import reasons_of
from app.advisor.known import Known, gather
from app.advisor.recommendation import Basis, Interval, Option, Reason, nothing_fits, plan_name
from app.advisor.request import Request
from app.advisor.time_model.experience import Experience
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class Cell:
    """plan: the one to take; None where no time is known, where nothing fits (fits is False then), or where torch
    refuses every plan (cannot_run); why_not says why. close: others cannot be told from it. slowest_ratio: how many
    times as long the slowest plan that fits takes. reasons: of a recommendation of the plan; not in the JSON, as most
    are the same in each cell."""

    batch_size: int
    plan: Plan | None = None
    fits: bool | None = None
    step_seconds: Interval | None = None
    basis: Basis | None = None
    close: bool = False
    slowest_ratio: float | None = None
    cannot_run: bool = False
    why_not: str | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def may_run(self) -> bool:
        """Whether some plan may, as far as anybody knows."""
        return self.fits is not False and not self.cannot_run

    def to_json(self) -> dict[str, Any]:
        found = asdict(replace(self, reasons=()))
        del found["reasons"]
        return {**found, "plan": plan_name(self.plan) if self.plan is not None else None}


def winners(
    survey: Survey,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    request: Request,
    batch_sizes: Sequence[int],
    experience: Experience | None = None,
    *,
    captured: bool = False,
    unreadable: str | None = None,
) -> list[Cell]:
    """The winner at each batch size, by the rules of a recommendation for it: what settings were found to gain is known
    at one batch. captured: the machine can only be read. unreadable: why nobody can tell whether it was calibrated.
    Pure. Raises InvalidRequest."""
    asked = [replace(request, workload=replace(request.workload, batch_size=size)) for size in batch_sizes]
    found = (survey, profile, trace, measurements)
    known = (gather(*found, each, experience, captured=captured, unreadable=unreadable) for each in asked)
    return [_cell(survey, profile, *both) for both in zip(asked, known, strict=True)]


def _cell(survey: Survey, profile: Profile | None, request: Request, known: Known) -> Cell:
    batch_size = known.workload.batch_size
    options = known.options(batch_size)
    ranking = known.ranking(batch_size, options)
    best = ranking.best
    if best is None or best.step_seconds is None:
        return without_plan(batch_size, options, ranking.untold)
    times = [option.step_seconds.median for option in options if option.step_seconds is not None]
    return Cell(
        batch_size,
        best.plan,
        best.fits,
        best.step_seconds,
        best.basis,
        bool(ranking.close),
        slowest_ratio=max(times) / best.step_seconds.median,
        reasons=reasons_of(survey, profile, request, known, ranking),
    )


def without_plan(batch_size: int, options: Sequence[Option], untold: Option | None) -> Cell:
    """Told by the plan that nobody knows to be the quicker one (untold: Ranking's); without one by a plan that runs,
    where there is one, of those by one that may fit, and of these by one without a time."""

    def place(option: Option) -> tuple[bool, bool, bool, int]:
        has_time = option.step_seconds is not None
        return option.cannot_run, option.fits is False, has_time, -(option.max_batch_size or 0)

    told = untold or min(options, key=place)
    fits = False if nothing_fits(options) else None
    return Cell(batch_size, fits=fits, cannot_run=told.cannot_run, why_not=told.why_not or told.note)
