"""All that is known of a workload: its plans, their times and their memory, at any batch size."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.advisor.crowding import Crowd, crowd_elsewhere, crowd_of
from app.advisor.curves.over_batches import Batches
from app.advisor.curves.pairs import Pair, pairs_worth_telling
from app.advisor.curves.rivals import RivalsOnCpu
from app.advisor.environments import Gain, bare, gains_that_pay, is_variant
from app.advisor.explanations.advice import Advice, advice_for
from app.advisor.explanations.busy_device import devices_by_use
from app.advisor.explanations.elsewhere import idle_survey
from app.advisor.explanations.sick_device import sick_devices
from app.advisor.like_cards import kinds_elsewhere, rows_of_like_cards, same_kinds, unlike_plans
from app.advisor.memory_model.memory import MemoryEstimate, data_set_bytes, estimate_memory, with_data
from app.advisor.memory_model.rooms import Room, room_for
from app.advisor.memory_model.stretches import EVERY, Stretches
from app.advisor.one_value import explain_one_value
from app.advisor.options import held_batches, option_for
from app.advisor.plans import candidate_plans, halved_precisions, left_out_precisions, profiled_plans
from app.advisor.ranking import Ranking, rank_options
from app.advisor.recommendation import Option
from app.advisor.request import Request
from app.advisor.starts import calibrated_starts, device_starts, late_starts, repaid_starts, unrepaid_devices
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.experience import Experience
from app.advisor.time_model.measured import by_plan
from app.advisor.time_model.predicted import untold_type
from app.advisor.time_model.step_estimate import shared_spread
from app.advisor.time_model.step_time import PlanTime, times_of_plans
from app.advisor.tried import Tried, failed_at, tried_on_like_cards, tried_varied, with_data_set
from app.advisor.uncalibrated import uncalibrated_plans
from app.advisor.variant_times import times_of_variants
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import AUTOCAST, Trace
from probes.workload.description import DATA, Data, Plan, Precision, Workload


@dataclass(frozen=True, slots=True)
class Known:
    """elsewhere: the profile, when the answer is for another machine, of which only it is known. times, memory: by the
    plan's key; a plan's memory is None without a trace. rows: each plan's measurements by its key, of those that have
    any; rows_alike: those of the same plan on cards that are like its own. crowd: who holds cores of this machine now.
    gains: variants whose steps pay. advice: what to do about a time that is not known. halved: by device, a precision
    of two bytes that it has, asked for or not, and that torch does not refuse. rooms: by device, known without a trace.
    machine: that is asked about; None: nobody knows its facts. kinds: by device, the same for cards that are alike.
    busy: devices that others compute on; sick: those of which something grave is found. left_out: by device of which
    no plan is in the precision asked for, those that it has. uncalibrated: plans that are left out, as the profile has
    nothing with as many threads, nor was one measured near this batch. autocast_refused: what torch said where a step
    under autocast fails on this machine's CPU; empty: it is not known to. starts: see calibrated_starts."""

    workload: Workload
    trace: Trace | None
    elsewhere: Profile | None
    advice: Advice
    plans: tuple[Plan, ...]
    halved: Mapping[str, Precision]
    measurements: Sequence[Measurement]
    rows: Mapping[tuple[object, ...], Sequence[Measurement]]
    times: Mapping[tuple[object, ...], PlanTime]
    memory: Mapping[tuple[object, ...], MemoryEstimate | None]
    rooms: Mapping[str, Room]
    rows_alike: Mapping[tuple[object, ...], Sequence[Measurement]] = field(default_factory=dict)
    crowd: Crowd | None = None
    gains: tuple[Gain, ...] = ()
    machine: Survey | None = None
    kinds: Mapping[str, Hashable] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    sick: frozenset[str] = frozenset()
    left_out: Mapping[str, Sequence[Precision]] = field(default_factory=dict)
    uncalibrated: tuple[Plan, ...] = ()
    autocast_refused: str = ""
    starts: Mapping[str, float] = field(default_factory=dict)

    def options(self, batch_size: int) -> list[Option]:
        """Every plan at this batch size, in the order of the plans; with each variant whose step was found to pay."""
        workload = replace(self.workload, batch_size=batch_size)
        paying = [gain.plan for gain in self.gains if gain.batch_size == batch_size]
        smallest = self.smallest
        return [self._option(plan, workload, smallest) for plan in (*self.plans, *paying)]

    def _option(self, plan: Plan, workload: Workload, smallest: int) -> Option:
        memory = self.memory[plan.key]
        outcome = self._tried(plan, workload, smallest)
        if outcome.refused is None and not self._ran(plan):
            outcome = replace(outcome, refused=self._refused_in_trace(plan))
            memory = memory if outcome.refused is None else None  # nobody followed such a step to its end
        if outcome.refused is None:
            outcome = replace(outcome, refused=explain_one_value(self.trace, workload.batch_size))
        return option_for(self.times[plan.key], memory, outcome, workload, self.advice)

    def _tried(self, plan: Plan, workload: Workload, smallest: int) -> Tried:
        data_set = data_set_bytes(self.trace, workload)
        room = replace(self.rooms[plan.device], data_set=data_set)
        rows = with_data_set(self.rows.get(plan.key, ()), data_set)
        if not is_variant(plan):
            alike = with_data_set(self.rows_alike.get(plan.key, ()), data_set)
            return replace(tried_on_like_cards(rows, alike, workload, room), smallest=smallest)
        plain = with_data_set(self.rows.get(bare(plan).key, ()), data_set)
        return replace(tried_varied(rows, plain, workload, room), smallest=smallest)

    def _ran(self, plan: Plan) -> bool:
        """At any batch, whatever room it would have now; a variant, or its plain plan."""
        return any(row.outcome == "ok" for key in (plan.key, bare(plan).key) for row in self._all_rows(key))

    def _refused_in_trace(self, plan: Plan) -> str | None:
        """Why a step fails on this machine's CPU, known from tracing it."""
        if not self.autocast_refused or not plan.is_cpu or plan.precision not in AUTOCAST:
            return None
        return f"A step under autocast failed when it was traced here. {self.autocast_refused}"

    @property
    def smallest(self) -> int:
        """The smallest batch that torch takes: two, where one leaves batch norm a single value a channel."""
        return 1 if explain_one_value(self.trace, 1) is None else 2

    def with_curve(self, option: Option | None) -> Plan | None:
        """Of a variant the plan without its change: a gain is known at one batch. The plan itself on another machine,
        whose profile has no other."""
        if option is None:
            return None
        plain = bare(option.plan)
        return plain if plain.key in self.times else option.plan

    def pairs(self, ranking: Ranking, batches: Batches) -> tuple[Pair, ...]:
        """The plans whose crossovers are told, but for those that run at no batch."""
        running = [plan for plan in self.plans if not self._runs_at_no_batch(plan)]
        ranked = [option.plan for option in ranking.unlike]
        plans = unlike_plans(running, self.kinds, ranked)
        on_cpu = [plan for plan in plans if plan.is_cpu]
        timed = (option for option in ranking.unlike if option.plan.is_cpu and option.step_seconds is not None)
        rivals = RivalsOnCpu(batches, on_cpu, self.with_curve(next(timed, None)))
        return pairs_worth_telling(plans, self.with_curve(ranking.best), rivals.of, self.kinds, ranked)

    def drawn_alone(self, ranking: Ranking) -> tuple[Plan, ...]:
        """Where there is no pair and nothing fits at this batch: whose curve shows at which it does."""
        return tuple(each.plan for each in ranking.unlike if not self._runs_at_no_batch(each.plan))[:1]

    def _runs_at_no_batch(self, plan: Plan) -> bool:
        """A step that failed did so at its own batch; what torch refused, and never ran, it refuses at any."""
        outcomes = {row.outcome for row in self._all_rows(plan.key)}
        return "ok" not in outcomes and ("unsupported" in outcomes or self._refused_in_trace(plan) is not None)

    def _all_rows(self, key: tuple[object, ...]) -> Sequence[Measurement]:
        """A plan's own, and those on cards like its own before them."""
        return (*self.rows_alike.get(key, ()), *self.rows.get(key, ()))

    def measured_there(self, batch_size: int) -> list[Measurement]:
        """What the plans' times at this very batch rest on."""
        measured = (time.measured for time in self.times.values())
        rows = (None if each is None else each.rows.get(batch_size) for each in measured)
        return [row for row in rows if row is not None]

    def batches(self, ranking: Ranking) -> Batches:
        """What to look at over the batch: the plans of these options."""
        room = {option.plan.key: option.held for option in ranking.options}
        fed = {way: replace(self.workload, data=way) for way in DATA}
        rows = {key: self._all_rows(key) for key in (*self.rows, *self.rows_alike)}
        failed = {way: {key: failed_at(found, fed[way]) for key, found in rows.items()} for way in DATA}
        # From pinned memory a device is sent the next batch as well, and all resident data lie there.
        takes = {way: (way == "pinned", self._data_set(way)) for way in DATA}
        others = [way for way in DATA if takes[way] != takes[self.workload.data]]
        plans = [option.plan for option in ranking.unlike]
        otherwise = {way: {**room, **self._room_fed(way, plans)} for way in others}
        return Batches(self.workload, self.times, room, self.smallest, failed, otherwise)

    def _data_set(self, data: Data) -> int:
        return data_set_bytes(self.trace, replace(self.workload, data=data))

    def _room_fed(self, data: Data, plans: Iterable[Plan]) -> dict[tuple[object, ...], Stretches]:
        """Batches that each of these on a device holds where they arrive so; on a CPU every way is the same but for
        resident data."""
        workload, smallest, data_set = replace(self.workload, data=data), self.smallest, self._data_set(data)
        found: dict[tuple[object, ...], Stretches] = {}
        for plan in plans:
            memory = self.memory[plan.key]
            if not plan.is_cpu or (memory is not None and memory.data_set != data_set):
                fed = None if memory is None else with_data(memory, plan, data, data_set)
                found[plan.key] = held_batches(fed, self._tried(plan, workload, smallest))
        return found

    def runs_pinned(self, plan: Plan) -> bool:
        """Whether the batch asked for fits on its device beside the next one, as it does fed from pinned memory, and no
        step fed so was seen to fail."""
        asked, room = self.workload.batch_size, self._room_fed("pinned", [plan]).get(plan.key, EVERY)
        failed = failed_at(self._all_rows(plan.key), replace(self.workload, data="pinned"))
        return asked in room and asked not in failed

    def ranking(self, batch_size: int, options: Sequence[Option]) -> Ranking:
        """The best first, at this batch size. Of those whose start a run as long as this one does not repay, compiled
        ones are left out, and none on a device is the head."""
        unrepaid = unrepaid_devices(options, self.rows, batch_size, self.kinds, self.workload.steps, self.starts)
        repaid = [option for option in options if option.plan.key not in unrepaid]
        compiled = repaid_starts(self.gains, repaid, self.device_starts(batch_size))
        late = late_starts(options, compiled, self.workload.steps)
        options = [option for option in options if option not in late]

        doubts = {gain.plan.key: gain.ratio_spread for gain in self.gains}

        def ratio_spread(one: Option, other: Option) -> float | None:
            of_gains = math.hypot(*(doubts.get(option.plan.key, 0.0) for option in (one, other)))
            if of_gains and bare(one.plan) == bare(other.plan):
                return of_gains
            rows = [self.times[option.plan.key].at(batch_size, self.workload.data) for option in (one, other)]
            shared = None if rows[0] is None or rows[1] is None else shared_spread(rows[0], rows[1])
            return None if shared is None else math.hypot(shared, of_gains)

        plans = [option.plan for option in options]
        shared = {plan.key for plan in plans if plan.device in self.busy or self.times[plan.key].met_others(batch_size)}
        ranking = rank_options(options, ratio_spread, self.kinds, shared, unrepaid, self.sick)
        return replace(ranking, late=tuple(late), compiled=compiled)

    def step_seconds(self, plan: Plan, batch_size: int) -> float | None:
        """The median, whether it fits or not; None of a plan that is not asked about, or of which nobody knows."""
        time = self.times.get(plan.key)
        found = None if time is None else time.seconds(batch_size, self.workload.data)
        return None if found is None else found.median

    def device_starts(self, batch_size: int) -> dict[tuple[object, ...], float]:
        """Seconds by the plan's key, of those on a device whose start is known (app.advisor.starts)."""
        return device_starts(self.plans, self.rows, batch_size, self.kinds, self.starts)


def gather(
    survey: Survey,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    request: Request,
    experience: Experience | None = None,
    *,
    captured: bool = False,
    unreadable: str | None = None,
) -> Known:
    """trace: None for a `summary` model, whose trace follows from its totals. experience: this machine's, of other
    models. captured: this machine is known from files alone. unreadable: why nobody can tell whether it was calibrated.
    Raises InvalidRequest."""
    workload = request.workload
    if trace is None and workload.model.kind == "summary":
        trace = trace_of_summary(workload)
    elsewhere = profile if profile is not None and _is_elsewhere(survey, profile, request) else None
    plans, all_plans = _plans_asked(survey, elsewhere, request)
    there = _answered_for(survey, elsewhere)
    learned = experience if elsewhere is None else None
    found, now = (profile, trace, measurements, workload), (there.crowd, learned, there.free, there.kinds)
    times = times_of_plans(plans, *found, *now)
    rows = by_plan(measurements)
    uncalibrated = uncalibrated_plans(plans, profile, times, rows, workload)
    plans = tuple(plan for plan in plans if plan not in uncalibrated)
    refused = "" if captured else _autocast_refused(trace, elsewhere)
    known = Known(
        workload=workload,
        trace=trace,
        elsewhere=elsewhere,
        advice=_advice(request, profile, trace, elsewhere, plans, captured=captured, unreadable=unreadable),
        plans=plans,
        halved=halved_precisions(plan for plan in all_plans if not (refused and plan.is_cpu)),
        measurements=measurements,
        rows=rows,
        times=times,
        memory=_memory_of(there.survey, profile, trace, measurements, plans, workload),
        rooms={plan.device: room_for(there.survey, profile, plan) for plan in plans},
        rows_alike=rows_of_like_cards(rows, plans, there.kinds),
        crowd=there.crowd,
        machine=there.survey,
        kinds=there.kinds,
        busy=there.busy,
        sick=there.sick,
        left_out=left_out_precisions(plans, all_plans),
        uncalibrated=uncalibrated,
        autocast_refused=refused,
        starts=calibrated_starts(profile, plans),
    )
    return _with_variants(known)


class _AnsweredFor(NamedTuple):
    """The machine that is asked about. survey: None where nobody knows its facts; crowd: who holds its cores now;
    kinds, busy, sick: as Known has them; free: devices that nobody else computes on now."""

    survey: Survey | None
    crowd: Crowd | None
    kinds: Mapping[str, Hashable]
    free: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    sick: frozenset[str] = frozenset()


def _answered_for(survey: Survey, elsewhere: Profile | None) -> _AnsweredFor:
    """Of another machine nobody knows who computes there now: what it takes by itself is told, whoever was there."""
    if elsewhere is None:
        sick = frozenset(sick_devices(survey))
        return _AnsweredFor(survey, crowd_of(survey), same_kinds(survey), *devices_by_use(survey), sick)
    machine = idle_survey(elsewhere.hardware) if elsewhere.hardware else None
    return _AnsweredFor(machine, crowd_elsewhere(machine), kinds_elsewhere(machine, elsewhere))


def _memory_of(
    machine: Survey | None,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    plans: Sequence[Plan],
    workload: Workload,
) -> dict[tuple[object, ...], MemoryEstimate | None]:
    """By plan; None without a trace. machine: whose memory it is; None: nobody knows how much there is."""
    if trace is None:
        return dict.fromkeys(plan.key for plan in plans)
    kind, data, data_set = workload.model.kind, workload.data, data_set_bytes(trace, workload)
    return {
        plan.key: estimate_memory(machine, profile, trace, measurements, plan, kind, data, data_set) for plan in plans
    }


def _with_variants(known: Known) -> Known:
    """With those whose steps pay: their times beside those of their plain plans, whose memory is theirs. None on a card
    that others use, or that is sick, beside one that is alike and is free of that: it would go before that one's plain
    plan by what it took in better hours."""
    gains = gains_that_pay(known.measurements, known.plans, known.workload)
    gains = tuple(gain for gain in gains if not _has_better_twin(known, gain.plan.device))
    beside = times_of_variants(gains, known.times, known.measurements, known.workload, known.crowd)
    memory = {gain.plan.key: known.memory[bare(gain.plan).key] for gain in gains}
    return replace(known, gains=gains, times={**known.times, **beside}, memory={**known.memory, **memory})


def _has_better_twin(known: Known, device: str) -> bool:
    avoided, devices = known.busy | known.sick, {plan.device for plan in known.plans}
    alike = {other for other in devices if known.kinds.get(other, other) == known.kinds.get(device, device)}
    return device in avoided and not alike <= avoided


def _plans(survey: Survey, elsewhere: Profile | None, request: Request) -> tuple[Plan, ...]:
    return candidate_plans(survey, request) if elsewhere is None else profiled_plans(elsewhere, request)


def _plans_asked(
    survey: Survey, elsewhere: Profile | None, request: Request
) -> tuple[tuple[Plan, ...], tuple[Plan, ...]]:
    """(as asked, in every precision that makes sense)"""
    asked = _plans(survey, elsewhere, request)
    if request.precision == "auto":
        return asked, asked
    return asked, _plans(survey, elsewhere, replace(request, precision="auto"))


def _advice(
    request: Request,
    profile: Profile | None,
    trace: Trace | None,
    elsewhere: Profile | None,
    plans: Sequence[Plan],
    *,
    captured: bool,
    unreadable: str | None,
) -> Advice:
    advice = advice_for(
        request,
        elsewhere=elsewhere is not None,
        is_calibrated=profile is not None,
        captured=captured,
        untraced=trace is None,
        untold_type=_untold_type(profile, plans, trace),
        unreadable=unreadable,
    )
    return replace(advice, is_here=elsewhere is None and not captured)


def _autocast_refused(trace: Trace | None, elsewhere: Profile | None) -> str:
    """What was traced here fails here: another machine may run it."""
    return trace.autocast_refused if trace is not None and elsewhere is None else ""


def _untold_type(profile: Profile | None, plans: Sequence[Plan], trace: Trace | None) -> str | None:
    """Of the first plan that was calibrated, and of whose type of numbers nothing is known."""
    if profile is None or trace is None:
        return None
    return next((found for plan in plans if (found := untold_type(profile, plan, trace)) is not None), None)


def _is_elsewhere(survey: Survey, profile: Profile, request: Request) -> bool:
    """The answer is for another machine, of which only the profile is known."""
    return request.profile is not None and profile.fingerprint != survey.fingerprint
