"""How long a step takes under each plan at any batch: measured where it ran, probed nearby, predicted elsewhere."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from app.advisor.crowding import Crowd, alone, as_met, in_company
from app.advisor.like_cards import rows_to_borrow
from app.advisor.recommendation import Basis, Breakdown, Interval
from app.advisor.time_model.breakdowns import measured_breakdown, scaled
from app.advisor.time_model.corrections import NONE, Correction, correct
from app.advisor.time_model.experience import NOTHING, Experience, Learned
from app.advisor.time_model.feeding import fed_otherwise
from app.advisor.time_model.fitting import Step
from app.advisor.time_model.intervals import (
    BETWEEN_LIKE_CARDS,
    between_processes,
    bounded,
    scale,
    widen,
)
from app.advisor.time_model.launch_bound import launch_bound_until
from app.advisor.time_model.measured import (
    BEYOND,
    MeasuredTime,
    by_plan,
    carried_share,
    measured_times,
    with_borrowed,
)
from app.advisor.time_model.predicted import PredictedTime, predict
from app.advisor.time_model.single_steps import SingleStep, single_steps
from app.advisor.time_model.spells import as_foretold_at_best, may_be_explained, tells_of_its_moment
from app.advisor.time_model.step_estimate import StepEstimate, weakest
from app.advisor.time_model.two_clocks import TwoClocks, two_clocks
from probes.measurement import Measurement, Overheads
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import DATA, Data, Plan, Workload


@dataclass
class PlanTime:
    """One plan's step time. singles: by batch size, a step that had none after it. crowd: who else holds cores now.
    otherwise: the same for other ways of feeding its device, where what was measured tells them apart. share_of: of a
    variant, its plain plan's, and how much of that it takes where it was measured."""

    plan: Plan
    measured: MeasuredTime | None
    predicted: PredictedTime | None
    log_every: int | None
    correction: Correction = NONE
    singles: Mapping[int, SingleStep] = field(default_factory=dict)
    crowd: Crowd | None = None
    experience: Experience | None = None  # of like models; None where this one's own measurements say more
    otherwise: Mapping[Data, PlanTime] = field(default_factory=dict)
    share_of: tuple[PlanTime, float] | None = None
    _known: dict[str, dict[int, StepEstimate | None]] = field(default_factory=lambda: defaultdict(dict))
    _launch_bound: dict[tuple[int, ...], int | None] = field(default_factory=dict)

    def at(self, batch_size: int, data: str) -> StepEstimate | None:
        """The best founded estimate at this batch, or None when nothing was measured near it and nothing calibrated."""
        if self.share_of is not None and self.measured is not None and batch_size in self.measured.batch_sizes:
            plain, share = self.share_of
            told = plain.at(batch_size, data)
            return None if told is None else told._replace(seconds=scale(told.seconds, share))
        known = self._known["" if self.plan.is_cpu else data]  # every way of feeding a CPU is the same
        if batch_size not in known:
            calm = self._from_measurements(batch_size, data) or self._from_prediction(batch_size, data)
            single = self.singles.get(batch_size)
            if single is not None and (calm is None or calm.basis != "measured"):
                known[batch_size] = self._after_single(single, calm, batch_size)
            else:
                told = None if calm is None else self._without_a_spell(calm, batch_size, data)
                known[batch_size] = None if told is None else self._among_others(told, batch_size)
        return known[batch_size]

    def _without_a_spell(self, calm: StepEstimate, batch_size: int, data: str) -> StepEstimate:
        row = self.nearest_row(batch_size)
        if calm.basis != "measured" or row is None or not row.is_unsteady or may_be_explained(row, self.crowd):
            return calm
        return as_foretold_at_best(calm, self._from_prediction(batch_size, data))

    def fed(self, data: Data) -> PlanTime:
        """As it is told where `data` is the way asked for: a crossover of that way is no other where another one
        was."""
        return self.otherwise.get(data, self)

    def seconds(self, batch_size: int, data: str) -> Interval | None:
        estimate = self.at(batch_size, data)
        return estimate.seconds if estimate is not None else None

    def breakdown(self, batch_size: int, data: str) -> Breakdown:
        """Measured parts where this plan ran; else the predicted ones, scaled to the step; else unknown."""
        estimate = self.at(batch_size, data)
        if estimate is None:
            return Breakdown()
        overheads = self._overheads(batch_size, data)
        if overheads is not None:
            parts = measured_breakdown(self.plan, overheads, estimate.seconds.median, self.log_every, data)
            return parts if math.isclose(estimate.slowed, 1.0) else scaled(parts, estimate.seconds.median)
        if self.predicted is None:
            return Breakdown()
        issuing = 1.0 if self._clocks is None else self._clocks.issuing(batch_size)
        return scaled(self.predicted.breakdown(batch_size, data, issuing), estimate.seconds.median)

    def launch_bound_until(self, batch_sizes: tuple[int, ...]) -> int | None:
        """From which of these the device is the limit (app.advisor.time_model.launch_bound): the same beside each plan
        that it is compared with. None where nothing is predicted, too."""
        if self.predicted is None:
            return None
        if batch_sizes not in self._launch_bound:
            self._launch_bound[batch_sizes] = launch_bound_until(self.predicted, self._clocks, batch_sizes)
        return self._launch_bound[batch_sizes]

    @cached_property
    def _clocks(self) -> TwoClocks | None:
        """Of a plan that ran on a device of which something is predicted."""
        if self.plan.is_cpu or self.lasting is None or self.predicted is None:
            return None
        return two_clocks(self.predicted, self.lasting)

    def learned(self, batch_size: int) -> Learned:
        """What like models say of this plan's prediction."""
        return NOTHING if self.experience is None else self.experience.at(self.plan, batch_size)

    def _among_others(self, calm: StepEstimate, batch_size: int) -> StepEstimate:
        """Predictions are a calm machine's, and so is a measurement that met calm cores; any other contains the noise
        that it met."""
        if self.crowd is None:
            return calm
        return self._beside(self.crowd, calm, batch_size)

    def _beside(self, crowd: Crowd, calm: StepEstimate, batch_size: int) -> StepEstimate:
        """What was carried from a batch that ran along a prediction, which met nobody, contains the less of what others
        did there the further it was carried."""
        row = self.nearest_row(batch_size)
        if row is None:
            return self._in_company(calm, calm, self._exposure)
        if crowd.relief_of(row) > 0:
            return self._relieved(crowd, calm, row, batch_size)
        contained = carried_share(batch_size, row.batch_size) if calm.rests_on_prediction else 1.0
        told = self._as_it_met(calm, row, crowd, contained)
        return self._in_company(told, calm, crowd.exposure(self.plan, row.others_cores, contained))

    def _relieved(self, crowd: Crowd, calm: StepEstimate, row: Measurement, batch_size: int) -> StepEstimate:
        """Without those who were in the way of this measurement and have left. As long as nobody else is there it may
        take what is predicted, whatever it took among others, and no less: how much others may have done is a bound
        from one kind of machine, the prediction is of this one. Where that is no shorter, what was measured stands."""
        relief, met = crowd.relief_of(row), self._as_it_met(calm, row, crowd)
        foretold = self._from_prediction(batch_size, "resident")  # every way of feeding a CPU is the same
        least = alone(met.seconds, self.plan, relief).low if foretold is None else foretold.seconds.low
        if least >= calm.seconds.low:
            return met
        among_all = alone(_as_met(calm.seconds, row, 1.0), self.plan, relief)
        median = min(met.seconds.median, among_all.median)
        seconds = Interval(max(median, least), least, met.seconds.high)
        return calm._replace(seconds=seconds, basis=weakest((calm.basis, "probed")), slowed=least / calm.seconds.low)

    def _in_company(self, told: StepEstimate, calm: StepEstimate, exposure: float) -> StepEstimate:
        if exposure <= 0:
            return told
        seconds = in_company(told.seconds, self.plan, exposure)
        return told._replace(seconds=seconds, slowed=seconds.high / calm.seconds.high, met=False)

    @cached_property
    def _exposure(self) -> float:
        """Of what nobody measured, at any batch."""
        return 0.0 if self.crowd is None else self.crowd.exposure(self.plan)

    def _as_it_met(self, calm: StepEstimate, row: Measurement, crowd: Crowd, contained: float = 1.0) -> StepEstimate:
        """Of calm blocks, where others hold cores as they did beside them: slow ones among them. contained: see
        Crowd.exposure; the rest of what others do is a guess."""
        still = contained * crowd.still_met(self.plan, row.others_cores)
        seconds = _as_met(calm.seconds, row, still)
        if still <= 0 or seconds == calm.seconds:
            return calm
        return calm._replace(seconds=seconds, slowed=seconds.high / calm.seconds.high, met=True)

    def relief(self, batch_size: int) -> float:
        """Of the nearest measurement, where others were in its way."""
        row = self.nearest_row(batch_size)
        return 0.0 if self.crowd is None or row is None else self.crowd.relief_of(row)

    def met_others(self, batch_size: int) -> bool:
        """The nearest measurement was taken while others computed on the device."""
        row = self.nearest_row(batch_size)
        return row is not None and row.met_others

    def nearest_row(self, batch_size: int) -> Measurement | None:
        """What a time at this batch rests on most; None where nothing was measured that tells of it."""
        telling = self._telling_of(batch_size)
        return None if telling is None else telling.rows[telling.nearest(batch_size)]

    def _telling_of(self, batch_size: int) -> MeasuredTime | None:
        if self.measured is None or self.measured.measured(batch_size) is not None:
            return self.measured
        return self.lasting

    @cached_property
    def lasting(self) -> MeasuredTime | None:
        """What tells of other batches, too."""
        if self.measured is None or self.predicted is None:
            return self.measured
        return self.measured.without(lambda row: tells_of_its_moment(row, self.crowd))

    def _overheads(self, batch_size: int, data: str) -> Overheads | None:
        """Of a step that was fed like this: on a CPU every way is the same."""
        if self.measured is None or not (self.plan.is_cpu or data == self.measured.data):
            return None
        row = self.measured.rows.get(batch_size)
        return None if row is None else row.overheads

    def _from_measurements(self, batch_size: int, data: str) -> StepEstimate | None:
        measured = self._telling_of(batch_size)
        if measured is None:
            return None
        found = self._as_it_was_fed(measured, batch_size)
        if found is None:
            return None
        there, basis, carried = found
        on_cpu = self.plan.is_cpu  # where every way of feeding is the same
        seconds = there if on_cpu else fed_otherwise(there, measured, self.predicted, batch_size, data)
        if seconds is None:
            return None
        borrowed, row = measured.is_borrowed(batch_size), self.nearest_row(batch_size)
        is_otherwise = borrowed or (not on_cpu and data != measured.data)
        told: Basis = "probed" if basis == "measured" and is_otherwise else basis
        at = None if row is None else row.measured_at
        return self._observed(seconds, told, at, carried, BETWEEN_LIKE_CARDS if borrowed else 0.0)

    def _as_it_was_fed(self, measured: MeasuredTime, batch_size: int) -> tuple[Interval, Basis, float] | None:
        """With what it rests on, and what carrying it to this batch adds to its spread."""
        seconds = measured.measured(batch_size)
        if seconds is not None:
            return seconds, "measured", 0.0
        by_clocks = self._by_clocks(measured, batch_size)
        if by_clocks is not None:
            return by_clocks
        probed = measured.probed(batch_size, lambda size: self._foretold(size, measured.data))
        if probed is not None and measured.is_between(batch_size):
            return probed, "probed", 0.0
        along = self._along_prediction(measured, batch_size)
        return (probed, "probed", 0.0) if along is None and probed is not None else along

    def _foretold(self, batch_size: int, data: str) -> float | None:
        told = None if self.predicted is None else self.predicted.at(batch_size, data)
        return None if told is None else told.median

    def _by_clocks(self, measured: MeasuredTime, batch_size: int) -> tuple[Interval, Basis, float] | None:
        """Of a device, whose steps are flat as long as issuing takes longer than computing."""
        anchor, clocks = measured.measured(measured.nearest(batch_size)), self._clocks
        seconds = None if clocks is None else clocks.seconds(batch_size)
        if clocks is None or anchor is None or seconds is None:
            return None
        told: Basis = "probed" if measured.reaches(batch_size) else "predicted"
        return scale(anchor, seconds / anchor.median), told, clocks.spread(batch_size)

    def _along_prediction(self, measured: MeasuredTime, batch_size: int) -> tuple[Interval, Basis, float] | None:
        """From the nearest measured batch along the predicted curve, back towards it; the further, the less is
        known."""
        if self.predicted is None:
            return None
        nearest = measured.nearest(batch_size)
        anchor, start = measured.measured(nearest), self.predicted.at(nearest, measured.data)
        there = self.predicted.at(batch_size, measured.data)
        if anchor is None or start is None or there is None:
            return None
        factor = (anchor.median / start.median) ** carried_share(batch_size, nearest)
        told: Basis = "probed" if measured.reaches(batch_size) else "predicted"
        known = self.predicted.spread(batch_size, measured.data)
        carried = min(BEYOND * abs(math.log2(batch_size / nearest)), known)
        return scale(anchor, there.median * factor / anchor.median), told, carried

    def _observed(
        self, seconds: Interval, basis: Basis, measured_at: float | None, carried: float, between_cards: float
    ) -> StepEstimate:
        """What another process would take, from what this one took. carried: see StepEstimate. between_cards: what the
        plan's own card may differ by from the one that it ran on; plans that ran there share it (shared_spread)."""
        within = math.log(seconds.high / seconds.low) / 2
        between = between_processes(self.plan)
        there = widen(seconds, math.hypot(carried, between, between_cards))
        return StepEstimate(
            there,
            basis,
            self._left_out,
            within=within,
            carried=carried,
            measured_at=measured_at,
            between=between,
            on_cpu=self.plan.is_cpu,
            between_cards=between_cards,
        )

    @property
    def _left_out(self) -> Mapping[Step, float] | None:
        """None on a device: what its plans err by together is not known."""
        return self.predicted.model.fit.left_out if self.predicted is not None and self.plan.is_cpu else None

    def _from_prediction(self, batch_size: int, data: str) -> StepEstimate | None:
        seconds = None if self.predicted is None else self.predicted.at(batch_size, data)
        if self.predicted is None or seconds is None:
            return None
        if self.correction.log_ratio:
            corrected = scale(seconds, math.exp(self.correction.at(batch_size)))
            seconds = widen(corrected, self.correction.log_ratio)  # how much of it is left further away is not known
        learned = self.learned(batch_size)
        if learned.weight > 0:
            seconds = learned.correct(seconds)
        return StepEstimate(seconds, "predicted", self._left_out)

    def _after_single(self, single: SingleStep, calm: StepEstimate | None, batch_size: int) -> StepEstimate | None:
        """What is told otherwise, within what a single step leaves possible; where it leaves none of it, or nothing is
        told, the step itself. No longer than that takes, which met the others of then, beside those of now, nor by its
        median longer than that took; but at worst as if it had met none of them, where that is luck."""
        within, crowd = single.limits(self.plan, self.crowd), self.crowd
        more = 0.0 if crowd is None else crowd.exposure(self.plan, single.others_cores)
        is_luck = single.is_luck(self.plan, crowd)
        at_worst = self._exposure if is_luck else more
        if calm is not None and single.leaves_possible(calm.seconds, within):
            calm = calm._replace(seconds=bounded(calm.seconds, within.low, within.high))
            told = self._among_others(calm, batch_size)
        else:
            calm = single.as_told(self.plan, crowd, calm)
            if calm is None:
                return None
            told = self._in_company(calm, calm, at_worst)
        most = in_company(replace(within, median=single.seconds), self.plan, more).median
        longest = in_company(within, self.plan, at_worst).high
        low, middle, high = told.seconds.low, told.seconds.median, told.seconds.high
        seconds = Interval(max(min(middle, most), low), low, max(min(high, longest), low))
        slowed = told.slowed if seconds.high == high else seconds.high / calm.seconds.high
        if seconds.median == middle:
            return told._replace(seconds=seconds, slowed=slowed)
        if at_worst > 0:
            slowed = max(slowed, longest / within.high)
        of_step = StepEstimate(seconds, "probed", slowed=slowed, by_one_step=is_luck)
        return of_step._replace(met=not is_luck and told.met)


def _as_met(seconds: Interval, row: Measurement, still: float) -> Interval:
    """Where it is known which of its blocks were slow."""
    if row.slow_share is None or row.slowdown is None:
        return seconds
    return as_met(seconds, row.slow_share, row.slowdown, still)


def times_of_plans(
    plans: Sequence[Plan],
    profile: Profile | None,
    trace: Trace | None,
    measurements: Iterable[Measurement],
    workload: Workload,
    crowd: Crowd | None = None,
    experience: Experience | None = None,
    free: Collection[str] = (),
    kinds: Mapping[str, Hashable] = MappingProxyType({}),
) -> dict[tuple[object, ...], PlanTime]:
    """Every plan's step time by the plan's key. crowd: who holds cores of this machine now. experience: of like
    models, for the devices that this one has not run on. free: devices on which it is known that nobody else computes
    now. kinds: by device, the same for cards that are alike: what one of them took the others take as well, where they
    did not run themselves, and it corrects them."""
    rows, every = by_plan(measurements), workload.readings_every
    alike = rows_to_borrow(rows, plans, kinds)
    predicted: dict[tuple[object, ...], PredictedTime | None] = {}
    if profile is not None and trace is not None:
        predicted = {plan.key: predict(profile, plan, trace, every) for plan in plans}

    def fed(data: Data, plans: Iterable[Plan]) -> dict[tuple[object, ...], PlanTime]:
        times: list[PlanTime] = []
        for plan in plans:
            own, told = rows.get(plan.key, ()), predicted.get(plan.key)
            measured = measured_times(own, plan, data, crowd, is_free=plan.device in free)
            way = data if measured is None else measured.data
            measured = with_borrowed(measured, measured_times(alike.get(plan.key, ()), plan, way, crowd))
            times.append(PlanTime(plan, measured, told, every, singles=single_steps(own, crowd), crowd=crowd))
        correct(times, kinds, experience)
        return {time.plan.key: time for time in times}

    found = fed(workload.data, plans)
    on_devices = [plan for plan in plans if not plan.is_cpu]
    if any(plan.key in rows or plan.key in alike for plan in on_devices):
        others = {data: fed(data, on_devices) for data in DATA if data != workload.data}
        for plan in on_devices:
            found[plan.key].otherwise = {data: times[plan.key] for data, times in others.items()}
    return found
