"""A step's time without running it: profile and trace (docs/decisions/0003-how-instant-estimates.md)."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.advisor.like_cards import measured_plan
from app.advisor.operation_prices.context_prices import HEAVY_KINDS
from app.advisor.operation_prices.prices import Prices, prices_for
from app.advisor.recommendation import Breakdown, Interval
from app.advisor.time_model.device_fit import Clocks, NetworkRow, fit_device, host_and_device, weighted
from app.advisor.time_model.features import (
    CONTEXT_PRIORS,
    PRIORS,
    FeatureCurve,
    Features,
    features_at,
    features_of_context,
    features_of_device_contexts,
    work_in,
)
from app.advisor.time_model.fitting import CONTEXT_HOLD, UNFITTED_SPREAD, Fit, Row, fit_factors
from app.advisor.time_model.intervals import half_width, interval_around, widen
from app.advisor.time_model.transfer import Feeding, feeding_of, hidden_transfer
from probes.context import Context
from probes.points import NetworkPoint
from probes.profile import Profile
from probes.trace import AUTOCAST, Trace
from probes.workload.description import MODES, Plan, Precision

# Of plans whose arithmetic is on numbers of these types, by torch's names for them.
PRECISIONS_BY_TYPE: dict[str, Precision] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True)
class PlanModel:
    """What a profile knows about one plan: prices of operations, what they cost in context, and what copies to its
    device do. number_types: torch's names of those that arithmetic was clocked on inside steps; empty where none was
    clocked so."""

    profile: Profile
    plan: Plan
    prices: Prices
    fit: Fit
    feeding: Feeding
    number_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class _Fitted:
    """The models of a profile, by plan and mode. fitting: held by whoever makes one, while others wait for it. whole:
    set when all are there."""

    profile: Profile
    models: dict[tuple[Any, ...], PlanModel | None] = field(default_factory=dict)
    fitting: threading.Lock = field(default_factory=threading.Lock)
    whole: threading.Event = field(default_factory=threading.Event)


# Models of the profiles asked about last: a service answers from one profile again and again, and the fit takes longer
# than an answer. Kept by identity, with the profile itself, so that the identity stays taken; its fields never change.
# As many as the store keeps parsed: each takes 40 MB with its models.
REMEMBERED_PROFILES = 4
_remembered: OrderedDict[int, _Fitted] = OrderedDict()
_remembering = threading.Lock()


def model_of_plan(profile: Profile, plan: Plan, mode: str = "training") -> PlanModel | None:
    """None when the profile was not calibrated for this plan."""
    plan = measured_plan(profile, plan)
    fitted, key = _fitted(profile), (plan.key, mode)
    if key not in fitted.models:
        with fitted.fitting:
            if key not in fitted.models:
                fitted.models[key] = _make_model(profile, plan, mode)
    return fitted.models[key]


def fit_all_plans(profile: Profile) -> None:
    """Five seconds for a full profile, of which the first questions about it would take three else."""
    plans = {point.plan.key: point.plan for point in profile.networks}
    models = [model_of_plan(profile, plan, mode) for plan in plans.values() for mode in MODES]
    for model in models:
        for prices in (model.prices.context, model.prices.kernels) if model is not None else ():
            if prices is not None:
                prices.get_ready()
    _fitted(profile).whole.set()


def is_fitted(profile: Profile) -> bool:
    """Whether that was done, so that nobody waits for a fit."""
    return _fitted(profile).whole.is_set()


def _fitted(profile: Profile) -> _Fitted:
    with _remembering:
        found = _remembered.pop(id(profile), None) or _Fitted(profile)
        _remembered[id(profile)] = found
        if len(_remembered) > REMEMBERED_PROFILES:
            _remembered.popitem(last=False)
            _curves.clear()  # they hold on to its prices
        return found


def _make_model(profile: Profile, plan: Plan, mode: str) -> PlanModel | None:
    prices = prices_for(profile, plan, mode)
    if prices is None:
        return None
    networks = [point for point in profile.networks if point.plan.key == plan.key and point.seconds.low > 0]
    same_mode = [point for point in networks if point.trace.mode == mode]
    networks = same_mode if len({point.name for point in same_mode}) >= 3 else networks
    if prices.context is not None:
        fit = _fit_in_context(profile, prices, networks)
    elif prices.issuing is not None and prices.kernels is not None:
        fit = _fit_on_device(profile, prices, networks)
    else:
        fit = _fit(prices, networks)
    return PlanModel(profile, plan, prices, fit, feeding_of(profile, plan), _number_types(profile, plan))


def _number_types(profile: Profile, plan: Plan) -> frozenset[str]:
    costs = (cost for context in profile.contexts if context.plan.key == plan.key for cost in context.costs)
    return frozenset(cost.operation.dtype for cost in costs if cost.operation.kind in HEAVY_KINDS)


def _fit(prices: Prices, networks: Sequence[NetworkPoint]) -> Fit:
    """From whole steps and the sums of their operations alone."""
    rows = [
        NetworkRow(point.name, point.seconds.low, features_at(point.trace, prices, point.batch_size), point.batch_size)
        for point in networks
        if point.trace.operations
    ]
    if not rows:
        return Fit(PRIORS, UNFITTED_SPREAD, {})
    return fit_factors([_shares(row) for row in rows], PRIORS) if prices.plan.is_cpu else fit_device(rows)


def _fit_in_context(profile: Profile, prices: Prices, networks: Sequence[NetworkPoint]) -> Fit:
    """From whole steps and the operations that were timed inside them; errors from networks whose own operations are
    priced as if they had never been timed."""
    assert prices.context is not None
    contexts: dict[tuple[str, int, str], Context] = {
        (context.network, context.batch_size, context.mode): context
        for context in profile.contexts
        if context.plan.key == prices.plan.key
    }
    rows: list[Row] = []
    left_out: list[Row] = []
    for point in networks:
        context = contexts.get((point.name, point.batch_size, point.trace.mode))
        if context is not None:
            for found, without in ((rows, None), (left_out, point.name)):
                faults = prices.fault_seconds(point.page_faults)
                parts = features_of_context(context, prices.context, faults, without)
                found.append(_shares(NetworkRow(point.name, _settled(point), parts, point.batch_size)))
    prices.context.finish_fitting()
    return (
        fit_factors(rows, CONTEXT_PRIORS, left_out, CONTEXT_HOLD) if rows else Fit(CONTEXT_PRIORS, UNFITTED_SPREAD, {})
    )


def _fit_on_device(profile: Profile, prices: Prices, networks: Sequence[NetworkPoint]) -> Fit:
    """From whole steps, and what issuing and computing their operations took there. Issuing was clocked at the smallest
    batch, under plans of which each stands for those that issue the same."""
    here = [context for context in profile.contexts if context.plan.device == prices.plan.device]
    own = [context for context in here if context.plan.key == prices.plan.key]
    alike = [context for context in here if casts_of(context.plan) == casts_of(prices.plan)]
    issued: dict[tuple[str, str], Context] = {
        (each.network, each.mode): each for each in (*alike, *own) if each.clock == "host"
    }
    computed: dict[tuple[str, str, int], Context] = {
        (each.network, each.mode, each.batch_size): each for each in own if each.clock == "device"
    }
    rows: list[NetworkRow] = []
    left_out: list[NetworkRow] = []
    for point in networks:
        host = issued.get((point.name, point.trace.mode))
        device = computed.get((point.name, point.trace.mode, point.batch_size))
        if host is not None and device is not None:
            for found, without in ((rows, None), (left_out, point.name)):
                parts = features_of_device_contexts(host, device, prices, without)
                found.append(NetworkRow(point.name, point.seconds.median, parts, point.batch_size))
    if prices.issuing is not None and prices.kernels is not None:
        prices.issuing.finish_fitting()
        prices.kernels.finish_fitting()
    return fit_device(rows, left_out) if rows else Fit(CONTEXT_PRIORS, UNFITTED_SPREAD, {})


def casts_of(plan: Plan) -> bool:
    """Whether steps run under autocast."""
    return plan.precision in AUTOCAST


def _settled(point: NetworkPoint) -> float:
    """Of several turns the lower quartile or so: others' bursts make steps longer, never shorter."""
    return math.sqrt(point.seconds.low * point.seconds.median)


def _shares(row: NetworkRow) -> Row:
    return Row(row.name, [part / row.seconds for part in row.parts], row.batch_size)


@dataclass
class PredictedTime:
    """Step time of a traced workload under one plan, at any batch."""

    model: PlanModel
    trace: Trace
    curve: FeatureCurve
    log_every: int | None

    def at(self, batch_size: int, data: str) -> Interval | None:
        """None where the profile lacks what it takes to tell: copies of that kind, or all that the step consists of."""
        seconds, spread = sum(self._parts(batch_size)), self.model.fit.spread
        if seconds > 0 and not self.model.plan.is_cpu:
            if self.copy_seconds(batch_size, data) is None:
                return self._bound(batch_size) if self.model.feeding.bounds(data) else None
            return self._on_device(batch_size, lambda parts: self._clocks(parts, batch_size, data))
        return interval_around(seconds, spread) if seconds > 0 else None

    def _on_device(self, batch_size: int, clocks: Callable[[Features], Clocks]) -> Interval:
        """What kernels may take that nothing of their like and size was clocked, and what networks left out were missed
        by."""
        parts, bounds = self._parts(batch_size), self.curve.bounds_at(batch_size)
        least, most = (clocks(weighted(each, self.model.fit.factors)).step for each in bounds)
        return widen(Interval(clocks(parts).step, least, most), self.model.fit.spread)

    def spread(self, batch_size: int, data: str) -> float:
        """Half the width of its interval; the model's own where nothing is told."""
        told = None if self.model.plan.is_cpu else self.at(batch_size, data)
        return self.model.fit.spread if told is None else half_width(told)

    def _bound(self, batch_size: int) -> Interval | None:
        """Fed from pinned memory, of which only pageable copies are known: no longer than with these, copied ahead
        likewise, and no shorter than without any."""
        copy = self.copy_at_most(batch_size, "pinned")
        if copy is None:
            return None

        def resident(parts: Features) -> Clocks:
            return self._clocks(parts, batch_size, "resident")

        def pinned(parts: Features) -> Clocks:
            told = resident(parts)
            return told._replace(device=max(told.device, copy))

        return replace(self._on_device(batch_size, pinned), low=self._on_device(batch_size, resident).low)

    def _parts(self, batch_size: int) -> Features:
        """The same for each way of feeding a device. On a CPU arithmetic stays within the machine's roof, whatever a
        factor takes off."""
        parts = weighted(self.curve.at(batch_size), self.model.fit.factors)
        if not self.model.plan.is_cpu:
            return parts
        return (max(parts[0], self.curve.least_heavy(batch_size)), *parts[1:])

    def breakdown(self, batch_size: int, data: str, issuing: float = 1.0) -> Breakdown:
        """The parts add up to the step: on a device `launch` is only what issuing adds beyond computing. issuing: how
        many times as long as told the host takes to issue a device's step, against what the device computes."""
        parts = self._parts(batch_size)
        if self.model.plan.is_cpu:
            *_, dispatch, _, faults = parts
            launch = max(min(self.curve.issuing, sum(parts) - faults), dispatch)
            return Breakdown(transfer=0.0, launch=launch, compute=sum(parts) - launch, synchronize=0.0)
        return self._device_breakdown(parts, batch_size, data, issuing)

    def _device_breakdown(self, parts: Features, batch_size: int, data: str, issuing: float = 1.0) -> Breakdown:
        host, device = host_and_device(parts)
        host *= issuing
        copy = self.copy_at_most(batch_size, data)
        return Breakdown(
            transfer=None if copy is None else hidden_transfer(copy, max(host, device), data),
            launch=max(host - device, 0.0),
            compute=device,
            synchronize=self._reading_seconds,
        )

    def clocks(self, batch_size: int, data: str) -> Clocks | None:
        """Of a plan on a device; None where the profile has no copies of that kind."""
        if self.copy_seconds(batch_size, data) is None:
            return None
        return self._clocks(self._parts(batch_size), batch_size, data)

    def _clocks(self, parts: Features, batch_size: int, data: str) -> Clocks:
        """Of a step of these parts, whose copy is known."""
        host, device = host_and_device(parts)
        copy, reading = self.copy_seconds(batch_size, data) or 0.0, self._reading_seconds
        return Clocks(host, max(device, copy), reading) if data == "pinned" else Clocks(host, device, copy + reading)

    @property
    def _reading_seconds(self) -> float:
        """A step's share of reading the loss."""
        return self.model.feeding.reading / self.log_every if self.log_every else 0.0

    def copy_seconds(self, batch_size: int, data: str) -> float | None:
        """Of one batch to the device, before any of it is hidden; None where the profile has no copies of that kind."""
        return self.model.feeding.copy_seconds(self.trace.input_bytes.at(batch_size), data)

    def copy_at_most(self, batch_size: int, data: str) -> float | None:
        """The same, or what pageable copies take, where these stand in for pinned ones."""
        return self.copy_seconds(batch_size, "pageable" if self.model.feeding.bounds(data) else data)

    def host_share(self, batch_size: int) -> float:
        """Of a step on a device, how many times as long as the device computes the host takes to issue it."""
        host, device = host_and_device(self._parts(batch_size))
        return host / device if device > 0 else math.inf


def breakdown_parts(breakdown: Breakdown) -> tuple[float, ...]:
    parts = (breakdown.transfer, breakdown.launch, breakdown.compute, breakdown.synchronize)
    return tuple(part for part in parts if part is not None)


# Curves of the traces asked about last, each with what it was made of, so that identities stay taken: a known workload
# at another batch size costs a look-up. A trace of a large network takes a megabyte, so that few are held on to.
REMEMBERED_TRACES = 32
REMEMBERED_CURVES = 256  # of one trace, one a plan
_curves: OrderedDict[int, dict[tuple[int, str], FeatureCurve]] = OrderedDict()


def _curve(trace: Trace, prices: Prices, precision: str) -> FeatureCurve:
    """precision: that the step runs in, where it is not the prices' own."""
    key = (id(prices), precision)
    with _remembering:
        of_trace = _curves.pop(id(trace), {})
        _curves[id(trace)] = of_trace
        found = of_trace.get(key)
        if found is None:
            found = of_trace[key] = FeatureCurve(work_in(trace, precision), prices)
        if len(of_trace) > REMEMBERED_CURVES:
            del of_trace[next(iter(of_trace))]
        while len(_curves) > REMEMBERED_TRACES:
            _curves.popitem(last=False)
    return found


def predict(profile: Profile, plan: Plan, trace: Trace, log_every: int | None) -> PredictedTime | None:
    """None when the profile was not calibrated for this plan, or clocked nothing on numbers of the step's type."""
    trace = trace.on(cpu=plan.is_cpu)
    model = model_of_plan(profile, plan, trace.mode)
    if model is not None and unclocked_type(model, trace) is not None:
        model = _model_by_type(model, trace)
    if model is None:
        return None
    return PredictedTime(model, trace, _curve(trace, model.prices, plan.precision), log_every)


def unclocked_type(model: PlanModel, trace: Trace) -> str | None:
    """The type of numbers that most of the step's arithmetic is on, where the plan's own calibration clocked none on
    it: of a model whose weights are in half or double precision (autocast leaves doubles alone)."""
    number_type = _curve(trace, model.prices, model.plan.precision).number_type
    if number_type is None or not model.number_types or number_type in model.number_types:
        return None
    return None if PRECISIONS_BY_TYPE.get(number_type) == model.plan.precision else number_type


def untold_type(profile: Profile, plan: Plan, trace: Trace) -> str | None:
    """The type of numbers for which nothing is predicted of this plan, though it was calibrated."""
    trace = trace.on(cpu=plan.is_cpu)
    model = model_of_plan(profile, plan, trace.mode)
    found = None if model is None else unclocked_type(model, trace)
    return found if model is not None and found is not None and _model_by_type(model, trace) is None else None


def _model_by_type(model: PlanModel, trace: Trace) -> PlanModel | None:
    """Of the plan that computes in that type, on as much of the machine; None where none was calibrated."""
    precision = PRECISIONS_BY_TYPE.get(_curve(trace, model.prices, model.plan.precision).number_type or "")
    if precision is None:
        return None
    return model_of_plan(model.profile, replace(model.plan, precision=precision), trace.mode)
