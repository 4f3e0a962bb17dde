"""How long a step takes under each plan at any batch: measured where it ran, probed nearby, predicted elsewhere."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from types import MappingProxyType

from app.advisor.crowding import Crowd, alone, as_met, in_company
from app.advisor.recommendation import Basis, Breakdown, Interval
from app.advisor.time_model.breakdowns import measured_breakdown, scaled
from app.advisor.time_model.experience import MOST_LOG_RATIO, NOTHING, Experience, Learned
from app.advisor.time_model.feeding import fed_otherwise
from app.advisor.time_model.fitting import Step
from app.advisor.time_model.intervals import between_processes, bounded, interval_around, scale, widen
from app.advisor.time_model.launch_bound import launch_bound_until, longer_than_told
from app.advisor.time_model.measured import BEYOND, REACH, FirstStep, MeasuredTime, by_plan, first_steps, measured_times
from app.advisor.time_model.predicted import PredictedTime, predict
from app.advisor.time_model.step_estimate import StepEstimate, weakest
from probes.measurement import Measurement, Overheads
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import DATA, Data, Plan, Workload

# What a prediction is off by at one batch it is off by in part at another, half of it this many octaves away: carrying
# half was 9 % off at another batch in the median of 124 plans of 31 models (31 % at the 90th percentile), all of it 11
# and 38 %, nothing 12 and 40 % (rows of benchmarks.estimates).
HALF_CARRIED_OCTAVES = 3.0
# What one plan's prediction is off by, another's is off by in part: half of it, from one plan to another, was 5 to 8 %
# off in the median of 936 pairs of plans and batch sizes in each of three runs of benchmarks.estimates (Zen 4 and 5),
# where all of it was 4 to 9, nothing 8 to 9, and where it was off by more than a third, all of it missed by up to twice
# as much as half. As if one more plan had shown that its prediction is right.
DOUBT = 1.0
# A first step makes what those after it find: it touches memory for the first time, which takes up to three times as
# long, and makes threads and kernels (36 ms were seen for a model of 15 parameters); on a device it also loads
# libraries, and finds out which kernels are quick (0.42 s were seen on an H100, of a ResNet-18).
FIRST_STEP_FACTOR = 3.0
FIRST_STEP_SECONDS, FIRST_STEP_SECONDS_OF_DEVICE = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class Correction:
    """What this machine's measurements of the same model under other plans say the prediction is off by. log_ratio: the
    logarithm of measured over predicted, at these batch sizes; 0 when nothing was measured."""

    log_ratio: float = 0.0
    batch_sizes: frozenset[int] = frozenset()

    def at(self, batch_size: int) -> float:
        """Less of it the further away, as of the measured plans themselves: else they would cross by that alone."""
        octaves = min((abs(math.log2(batch_size / size)) for size in self.batch_sizes), default=0.0)
        return self.log_ratio * _carried(octaves)


@dataclass
class PlanTime:
    """One plan's step time. begun: by batch size, a first step that had none after it. crowd: who else holds
    cores now. otherwise: the same for other ways of feeding its device, where what was measured tells them apart."""

    plan: Plan
    measured: MeasuredTime | None
    predicted: PredictedTime | None
    log_every: int | None
    correction: Correction = Correction()
    begun: Mapping[int, FirstStep] = field(default_factory=dict)
    crowd: Crowd | None = None
    experience: Experience | None = None  # of like models; None where this one's own measurements say more
    otherwise: Mapping[Data, PlanTime] = field(default_factory=dict)
    _known: dict[str, dict[int, StepEstimate | None]] = field(default_factory=lambda: defaultdict(dict))
    _launch_bound: dict[tuple[int, ...], int | None] = field(default_factory=dict)

    def at(self, batch_size: int, data: str) -> StepEstimate | None:
        """The best founded estimate at this batch, or None when nothing was measured near it and nothing calibrated."""
        known = self._known["" if self.plan.is_cpu else data]  # every way of feeding a CPU is the same
        if batch_size not in known:
            calm = self._from_measurements(batch_size, data) or self._from_prediction(batch_size, data)
            if batch_size in self.begun:
                calm = self._after_first_step(calm, batch_size)
            known[batch_size] = None if calm is None else self._among_others(calm, batch_size)
        return known[batch_size]

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
        issuing = longer_than_told(self.predicted, self.measured, batch_size) if not self.plan.is_cpu else 1.0
        return scaled(self.predicted.breakdown(batch_size, data, issuing), estimate.seconds.median)

    def launch_bound_until(self, batch_sizes: tuple[int, ...]) -> int | None:
        """From which of these the device is the limit (app.advisor.time_model.launch_bound): the same beside each plan
        that it is compared with. None where nothing is predicted, too."""
        if self.predicted is None:
            return None
        if batch_sizes not in self._launch_bound:
            self._launch_bound[batch_sizes] = launch_bound_until(self.predicted, self.measured, batch_sizes)
        return self._launch_bound[batch_sizes]

    def learned(self, batch_size: int) -> Learned:
        """What like models say of this plan's prediction."""
        return NOTHING if self.experience is None else self.experience.at(self.plan, batch_size)

    def _among_others(self, calm: StepEstimate, batch_size: int) -> StepEstimate:
        """Predictions are a calm machine's, and so is a measurement that met calm cores; any other contains the noise
        that it met."""
        if self.crowd is None:
            return calm
        told = self._beside(self.crowd, calm, self.nearest_row(batch_size))
        first = self.begun.get(batch_size)
        return told if first is None or calm.basis == "measured" else self._after_begun(told, calm, first)

    def _beside(self, crowd: Crowd, calm: StepEstimate, row: Measurement | None) -> StepEstimate:
        """row: that it rests on most; None: on none."""
        if row is None:
            return self._in_company(calm, calm, self._exposure)
        relief = crowd.relief_of(row)
        if relief > 0:
            seconds = alone(calm.seconds, self.plan, relief)
            slowed = seconds.low / calm.seconds.low
            return calm._replace(seconds=seconds, basis=weakest((calm.basis, "probed")), slowed=slowed)
        told = self._as_it_met(calm, row, crowd)
        return self._in_company(told, calm, crowd.exposure(self.plan, row.others_cores))

    def _in_company(self, told: StepEstimate, calm: StepEstimate, exposure: float) -> StepEstimate:
        if exposure <= 0:
            return told
        seconds = in_company(told.seconds, self.plan, exposure)
        return told._replace(seconds=seconds, slowed=seconds.high / calm.seconds.high, met=False)

    def _after_begun(self, told: StepEstimate, calm: StepEstimate, first: FirstStep) -> StepEstimate:
        """No longer than a first step, which met the others of then, takes beside those of now."""
        exposure = 0.0 if self.crowd is None else self.crowd.exposure(self.plan, first.others_cores)
        limit = in_company(Interval(first.seconds, first.seconds, first.seconds), self.plan, exposure).high
        if told.seconds.high <= limit:
            return told
        seconds = bounded(told.seconds, told.seconds.low, max(limit, told.seconds.low))
        return told._replace(seconds=seconds, slowed=seconds.high / calm.seconds.high)

    @cached_property
    def _exposure(self) -> float:
        """Of what nobody measured, at any batch."""
        return 0.0 if self.crowd is None else self.crowd.exposure(self.plan)

    def _as_it_met(self, calm: StepEstimate, row: Measurement, crowd: Crowd) -> StepEstimate:
        """Of calm blocks, where others hold cores as they did beside them: slow ones among them."""
        still = crowd.still_met(self.plan, row.others_cores)
        if still <= 0 or row.slow_share is None or row.slowdown is None:
            return calm
        seconds = as_met(calm.seconds, row.slow_share, row.slowdown, still)
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
        """What a time at this batch rests on most; None where nothing was measured."""
        return None if self.measured is None else self.measured.rows[self.measured.nearest(batch_size)]

    def _overheads(self, batch_size: int, data: str) -> Overheads | None:
        """Of a step that was fed like this: on a CPU every way is the same."""
        if self.measured is None or not (self.plan.is_cpu or data == self.measured.data):
            return None
        row = self.measured.rows.get(batch_size)
        return None if row is None else row.overheads

    def _from_measurements(self, batch_size: int, data: str) -> StepEstimate | None:
        if self.measured is None:
            return None
        found = self._as_it_was_fed(self.measured, batch_size)
        if found is None:
            return None
        there, basis, carried = found
        on_cpu = self.plan.is_cpu  # where every way of feeding is the same
        seconds = there if on_cpu else fed_otherwise(there, self.measured, self.predicted, batch_size, data)
        if seconds is None:
            return None
        told: Basis = "probed" if basis == "measured" and not on_cpu and data != self.measured.data else basis
        row = self.nearest_row(batch_size)
        return self._observed(seconds, told, None if row is None else row.measured_at, carried)

    def _as_it_was_fed(self, measured: MeasuredTime, batch_size: int) -> tuple[Interval, Basis, float] | None:
        """With what it rests on, and what carrying it to this batch adds to its spread."""
        seconds = measured.measured(batch_size)
        if seconds is not None:
            return seconds, "measured", 0.0
        line = measured.probed(batch_size)
        if line is not None and measured.is_between(batch_size):
            return self._between(measured, batch_size) or line, "probed", 0.0
        along = self._along_prediction(measured, batch_size)
        return (line, "probed", 0.0) if along is None and line is not None else along

    def _between(self, measured: MeasuredTime, batch_size: int) -> Interval | None:
        """Between two measured batches of a device, where something is predicted; a CPU's steps lie on a line."""
        predicted = self.predicted
        if predicted is None or self.plan.is_cpu:
            return None
        return measured.between(batch_size, lambda size: predicted.at(size, measured.data))

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
        octaves = abs(math.log2(batch_size / nearest))
        factor = (anchor.median / start.median) ** _carried(octaves)
        told: Basis = "probed" if octaves <= math.log2(REACH) else "predicted"
        carried = min(BEYOND * octaves, self.predicted.model.fit.spread)
        return scale(anchor, there.median * factor / anchor.median), told, carried

    def _observed(
        self, seconds: Interval, basis: Basis, measured_at: float | None, carried: float = 0.0
    ) -> StepEstimate:
        """What another process would take, from what this one took. carried: see StepEstimate."""
        within, between = math.log(seconds.high / seconds.low) / 2, between_processes(self.plan)
        there = widen(seconds, math.hypot(carried, between))
        return StepEstimate(
            there,
            basis,
            self._left_out,
            within=within,
            carried=carried,
            measured_at=measured_at,
            between=between,
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
            spread = learned.spread(self.predicted.model.fit.spread)
            seconds = interval_around(seconds.median * math.exp(learned.log_ratio), spread)
        return StepEstimate(seconds, "predicted", self._left_out)

    def _after_first_step(self, calm: StepEstimate | None, batch_size: int) -> StepEstimate | None:
        """What is told otherwise, within what a first step leaves possible; without that, of a CPU the first step."""
        if calm is not None and calm.basis == "measured":
            return calm
        first, others = self.begun[batch_size]
        beyond = FIRST_STEP_SECONDS if self.plan.is_cpu else FIRST_STEP_SECONDS_OF_DEVICE
        least = max(first - beyond, 0.0) / FIRST_STEP_FACTOR
        seconds = Interval(first, least, first)
        relief = 0.0 if self.crowd is None else self.crowd.relief(self.plan, others)
        if relief > 0:
            seconds = alone(seconds, self.plan, relief)
        if calm is not None and calm.seconds.low > first:  # told too long, by how much a first step does not say
            return StepEstimate(Interval(first, max(least, first / FIRST_STEP_FACTOR), first), calm.basis)
        if calm is not None:
            return calm._replace(seconds=bounded(calm.seconds, seconds.low, first))
        if least <= 0 or not self.plan.is_cpu:
            return None
        return StepEstimate(seconds, "probed")


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
    now. kinds: by device, the same for cards that are alike: what one of them took corrects the others as well."""
    rows, every = by_plan(measurements), workload.readings_every
    predicted: dict[tuple[object, ...], PredictedTime | None] = {}
    if profile is not None and trace is not None:
        predicted = {plan.key: predict(profile, plan, trace, every) for plan in plans}

    def fed(data: Data, plans: Iterable[Plan]) -> dict[tuple[object, ...], PlanTime]:
        times: list[PlanTime] = []
        for plan in plans:
            own, told = rows.get(plan.key, ()), predicted.get(plan.key)
            measured = measured_times(own, plan, data, crowd, is_free=plan.device in free)
            times.append(PlanTime(plan, measured, told, every, begun=first_steps(own), crowd=crowd))
        _correct(times, kinds, experience)
        return {time.plan.key: time for time in times}

    found = fed(workload.data, plans)
    on_devices = [plan for plan in plans if not plan.is_cpu]
    if any(plan.key in rows for plan in on_devices):
        others = {data: fed(data, on_devices) for data in DATA if data != workload.data}
        for plan in on_devices:
            found[plan.key].otherwise = {data: times[plan.key] for data, times in others.items()}
    return found


def _correct(times: Sequence[PlanTime], kinds: Mapping[str, Hashable], experience: Experience | None) -> None:
    """By what was measured here of this very model, else by what like ones taught."""
    corrections = _corrections(times, kinds)
    for time in times:
        kind = kinds.get(time.plan.device, time.plan.device)
        time.correction = corrections.get(kind, Correction())
        time.experience = None if kind in corrections else experience


def _corrections(times: Sequence[PlanTime], kinds: Mapping[str, Hashable]) -> dict[Hashable, Correction]:
    """The logarithm of measured over predicted, the median over the measured plans of a kind of device, and less of it
    where these are few: the model's share of the error."""
    ratios: dict[Hashable, list[float]] = {}
    sizes: dict[Hashable, set[int]] = {}
    for time in times:
        if time.measured is None or time.predicted is None:
            continue
        kind, mine = kinds.get(time.plan.device, time.plan.device), []
        for batch in time.measured.batch_sizes:
            if time.relief(batch) > 0 or time.measured.rows[batch].met_others:
                continue  # it tells of others, who have left, or may at any time
            measured = time.measured.measured(batch)
            predicted = time.predicted.at(batch, time.measured.data)
            if measured is not None and predicted is not None:
                mine.append(math.log(measured.median / predicted.median))
                sizes.setdefault(kind, set()).add(batch)
        if mine:
            ratios.setdefault(kind, []).append(median(mine))
    return {kind: Correction(_taught_by(found), frozenset(sizes[kind])) for kind, found in ratios.items()}


def _taught_by(ratios: Sequence[float]) -> float:
    """What another plan is off by, where these are off by so much: logarithms."""
    middle = max(-MOST_LOG_RATIO, min(median(ratios), MOST_LOG_RATIO))
    return middle * len(ratios) / (len(ratios) + DOUBT)


def _carried(octaves: float) -> float:
    """The share of what is off at a batch that is off so many octaves away."""
    return float(0.5 ** (octaves / HALF_CARRIED_OCTAVES))
