"""A trace's step in classes of work: seconds that its operations take alone, as a function of the batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from app.advisor.operation_prices.context_prices import HEAVY_KINDS, ContextPrices
from app.advisor.operation_prices.device_operations import on_device
from app.advisor.operation_prices.issuing_prices import IssuingPrices, Name, count_names
from app.advisor.operation_prices.kernel_prices import Doubt
from app.advisor.operation_prices.prices import HEAVY, Prices
from app.advisor.operation_prices.surroundings import kernel_of, surroundings
from app.advisor.time_model.untraced_autocast import NARROW, fresh_bytes, operations_under
from probes.context import Context, ContextOperation
from probes.issued import Issued
from probes.trace import Affine, Operation, Trace

# Classes of work, with the factor that each has in context when no network says otherwise. Heavy work holds in
# context and light work does not: caches are cold, and memory comes fresh from the allocator (a first fit over 38
# networks on two cores, docs/decisions/0003-how-instant-estimates.md).
CLASSES: tuple[str, ...] = ("heavy", "light", "dispatch", "optimizer", "faults")
PRIORS: tuple[float, ...] = (1.0, 1.4, 1.0, 1.0, 1.0)

# Of operations that were timed inside steps, which are the step but for what lies between them.
CONTEXT_PRIORS: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)

# What lies between operations beyond what the clock itself adds to them, where nobody counted what issues them: half of
# what the shortest operation takes (0.3 us in a step of 320 us that ran for long on one core; EPYC, Zen 5, torch 2.13).
BETWEEN_FLOORS = 0.5
# Of what light operations took under the clock, they take at least as much in a plain step.
LEAST_LIGHT = 0.3

# Of a network's step: what leaving it out does to smaller ones is not looked at, as each takes a while and adds little.
TELLING_SHARE = 0.01

Features = tuple[float, ...]  # seconds, one a class


class Bounds(NamedTuple):
    """Of features: as quick and as slow as kernels may be that nothing of their like and size was clocked."""

    least: Features
    most: Features


class Work(NamedTuple):
    """What a step runs in a precision."""

    trace: Trace
    precision: str
    operations: tuple[Operation, ...]


def work_in(trace: Trace, precision: str) -> Work:
    return Work(trace, precision, operations_under(trace, precision))


def features_at(trace: Trace, prices: Prices, batch_size: float) -> Features:
    """Seconds of each class at this batch, in the precision of the plan that the prices are of."""
    return features_of(work_in(trace, prices.plan.precision), prices, batch_size)


def features_of(work: Work, prices: Prices, batch_size: float) -> Features:
    """The same, whatever precision the prices are of: weights that are in bf16 themselves are computed with as the plan
    in bf16 does, without autocast's operations."""
    if prices.context is not None:
        return _features_in_context(work, prices, prices.context, batch_size)
    if prices.issuing is not None:
        return _features_on_device(work, prices, prices.issuing, batch_size)
    trace = work.trace
    heavy = light = dispatch = optimizer = 0.0
    updates = 0
    for operation in work.operations:
        alone = prices.seconds(operation, batch_size) * operation.count
        if operation.phase == "optimizer":
            optimizer += alone
            updates += operation.count
            continue
        dispatch += prices.dispatch * operation.count
        if operation.kind in HEAVY:
            heavy += alone
        else:
            light += alone
    tensor = prices.tensor_seconds(trace.optimizer)
    optimizer += trace.parameter_tensors * tensor if tensor is not None and updates else updates * prices.dispatch
    return (heavy, light, dispatch, optimizer, 0.0)


def _features_in_context(work: Work, of_plan: Prices, prices: ContextPrices, batch_size: float) -> Features:
    """`dispatch` is what lies between the operations."""
    trace, precision, _ = work
    operations = [(_sized(each, batch_size), each) for each in work.operations]
    footprint, often = surroundings((sized, each.count) for sized, each in operations)
    heavy = light = optimizer = 0.0
    # Equal work comes in several phases, and is priced once: a third of all.
    each = {
        sized: prices.seconds(sized, footprint, often[kernel_of(sized)]) for sized in {sized for sized, _ in operations}
    }
    for sized, operation in operations:
        seconds = each[sized] * operation.count
        if operation.phase == "optimizer":
            optimizer += seconds
        elif operation.kind in HEAVY_KINDS:
            heavy += seconds
        else:
            light += seconds
    executions = sum(operation.count for _, operation in operations)
    light, between = _issued(prices, trace.issued_under(precision), light, executions)
    fresh = fresh_bytes(trace, precision, batch_size)
    return (heavy, light, between, optimizer, of_plan.fresh_seconds(fresh))


def _features_on_device(work: Work, prices: Prices, issuing: IssuingPrices, batch_size: float) -> Features:
    """`heavy` and `light` are the device's, `dispatch` and `optimizer` the host's."""
    heavy = light = 0.0
    names: dict[bool, Counter[Name]] = {False: Counter(), True: Counter()}
    for operation in on_device(work.operations, work.trace.parameter_tensors):
        sized = _sized(operation, batch_size)
        names[operation.phase == "optimizer"].update(count_names([(sized, operation.count)]))
        if prices.kernels is not None:
            seconds = prices.kernels.seconds(sized) * operation.count
        else:
            seconds = prices.seconds(operation, batch_size) * operation.count
        if sized.kind in HEAVY_KINDS:
            heavy += seconds
        else:
            light += seconds
    return (heavy, light, issuing.seconds(names[False]), issuing.seconds(names[True]), 0.0)


def bounds_of(work: Work, prices: Prices, batch_size: float) -> Bounds:
    """`heavy` and `light` of a step on a device, as of features_of."""
    least, most = [0.0, 0.0], [0.0, 0.0]
    for operation in _on_device(work, prices):
        sized = _sized(operation, batch_size)
        if sized.kind != "view":
            seconds, doubt = _priced_on_device(operation, sized, prices, batch_size)
            place = 0 if sized.kind in HEAVY_KINDS else 1
            least[place] += seconds * operation.count * math.exp(-doubt.quicker)
            most[place] += seconds * operation.count * math.exp(doubt.slower)
    return Bounds(tuple(least), tuple(most))


def _on_device(work: Work, prices: Prices) -> Sequence[Operation]:
    """What `heavy` and `light` are of."""
    if prices.issuing is not None:
        return on_device(work.operations, work.trace.parameter_tensors)
    return [operation for operation in work.operations if operation.phase != "optimizer"]


def _priced_on_device(
    operation: Operation, sized: ContextOperation, prices: Prices, batch_size: float
) -> tuple[float, Doubt]:
    """Where no kernel was clocked an operation is priced by what it takes alone, by no rate beyond the best measured:
    so it may be as much quicker as the rate may rise from there."""
    if prices.kernels is not None:
        return prices.kernels.seconds(sized), prices.kernels.doubt(sized)
    doubt = 0.0 if prices.device_roof is None else prices.device_roof.doubt(sized)
    return prices.seconds(operation, batch_size), Doubt(2 * doubt, 0.0)


def features_of_device_contexts(
    issued: Context, computed: Context, prices: Prices, without: str | None = None
) -> Features:
    """The same of a network's own operations, as the host's clock and the device's saw them."""
    assert prices.issuing is not None
    assert prices.kernels is not None
    heavy = light = 0.0
    for operation, times, _, _ in computed.costs:
        seconds = prices.kernels.seconds(operation, without) * times
        if operation.kind in HEAVY_KINDS:
            heavy += seconds
        else:
            light += seconds
    host = prices.issuing.seconds(count_names((cost.operation, cost.times) for cost in issued.costs), without)
    return (heavy, light, host, 0.0, 0.0)


def _issued(prices: ContextPrices, issued: Issued | None, light: float, executions: int) -> tuple[float, float]:
    """(light, between) with what lies between so many operations; what nested ones do not take is taken off light
    ones."""
    if prices.issue is None or issued is None:
        return light, BETWEEN_FLOORS * prices.floor * executions
    between = prices.issue.seconds(issued)
    return max(light + min(between, 0.0), LEAST_LIGHT * light), max(between, 0.0)


def issuing_seconds(work: Work, prices: Prices) -> float:
    """What a CPU takes to hand a step's operations on, whatever there is to compute: for each what operations on next
    to nothing took in such steps; views take hardly any. 0 where no operation was timed inside a step: there `dispatch`
    is all that is known of it."""
    if prices.context is None:
        return 0.0
    operations = [each for each in work.operations if each.kind != "view"]
    footprint, _ = surroundings((_sized(each, 1), each.count) for each in operations)
    return prices.context.overhead(footprint) * sum(each.count for each in operations)


def features_of_context(
    context: Context, prices: ContextPrices, fault_seconds: float = 0.0, without: str | None = None
) -> Features:
    """The same of a network's own operations, at the sizes that were timed; those of the optimizer are among the
    light ones. fault_seconds: of the page faults that its step was seen to have."""
    footprint, often = surroundings((cost.operation, cost.times) for cost in context.costs)
    total = context.seconds
    heavy = light = 0.0
    for operation, times, each, _ in context.costs:
        unseen = without if each * times >= TELLING_SHARE * total else None
        seconds = prices.seconds(operation, footprint, often[kernel_of(operation)], unseen) * times
        if operation.kind in HEAVY_KINDS:
            heavy += seconds
        else:
            light += seconds
    light, between = _issued(prices, context.issued, light, sum(cost.times for cost in context.costs))
    return (heavy, light, between, 0.0, fault_seconds)


def _sized(operation: Operation, batch_size: float) -> ContextOperation:
    o = operation
    flops, read, written = o.flops.at(batch_size), o.read_bytes.at(batch_size), o.written_bytes.at(batch_size)
    sizes = max(flops, 0.0), max(read, 0.0), max(written, 0.0)
    return ContextOperation(o.name, o.kind, o.variant, o.dtype, *sizes, o.grain)


def number_type_of(work: Work) -> str | None:
    """torch's name of the type of numbers that most of a step's arithmetic is on; None where it has no arithmetic.
    What autocast finds in another narrow type it casts to its own."""
    narrow, flops = NARROW.get(work.precision), Counter[str]()
    for operation in work.operations:
        if operation.kind in HEAVY_KINDS:
            name = narrow if narrow is not None and operation.dtype in NARROW.values() else operation.dtype
            flops[name] += math.ceil(operation.count * operation.flops.at(work.trace.batch_sizes[-1]))
    return next((name for name, most in flops.most_common(1) if most > 0), None)


@dataclass
class FeatureCurve:
    """Features at any batch: priced at powers of two when first needed, in between on a straight line.

    An operation's size is affine in the batch and its price changes slowly, so a chord of an octave is within the
    error of the prices; a question then costs a dozen passes over the trace, however many batches are looked at.
    """

    work: Work
    prices: Prices
    _knots: dict[int, Features] = field(default_factory=dict)
    _bounds: dict[int, Bounds] = field(default_factory=dict)

    @cached_property
    def number_type(self) -> str | None:
        """Of the numbers that most of the step's arithmetic is on (number_type_of)."""
        return number_type_of(self.work)

    @cached_property
    def issuing(self) -> float:
        """Seconds of a step that no batch is too small for (issuing_seconds)."""
        return issuing_seconds(self.work, self.prices)

    @cached_property
    def _heavy_at_best(self) -> Affine:
        """Over the batch, seconds of heavy operations, each at the machine's best."""
        heavy = [each for each in self.work.operations if each.kind in HEAVY and each.phase != "optimizer"]
        shares = [(each.count / self.prices.roof(each.kind), each.flops) for each in heavy]
        constant = sum(share * flops.constant for share, flops in shares)
        return Affine(constant, sum(share * flops.per_sample for share, flops in shares))

    def least_heavy(self, batch_size: int) -> float:
        """What no factor brings the heavy class below."""
        return max(self._heavy_at_best.at(batch_size), 0.0)

    def at(self, batch_size: int) -> Features:
        return _between_knots(self._knot, batch_size)

    def bounds_at(self, batch_size: int) -> Bounds:
        """Only of what a device's kernels take anything is left open: all else is as `at` has it."""
        told = self.at(batch_size)
        if self.prices.device_roof is None:
            return Bounds(told, told)
        least = _between_knots(lambda knot: self._bounds_at_knot(knot).least, batch_size)
        most = _between_knots(lambda knot: self._bounds_at_knot(knot).most, batch_size)
        return Bounds((*least, *told[2:]), (*most, *told[2:]))

    def _bounds_at_knot(self, batch_size: int) -> Bounds:
        if batch_size not in self._bounds:
            self._bounds[batch_size] = bounds_of(self.work, self.prices, batch_size)
        return self._bounds[batch_size]

    def _knot(self, batch_size: int) -> Features:
        if batch_size not in self._knots:
            self._knots[batch_size] = features_of(self.work, self.prices, batch_size)
        return self._knots[batch_size]


def _between_knots(knot: Callable[[int], Features], batch_size: int) -> Features:
    below = 1 << (batch_size.bit_length() - 1)
    if below == batch_size:
        return knot(below)
    share = (batch_size - below) / below
    before, after = knot(below), knot(2 * below)
    return tuple([low + (high - low) * share for low, high in zip(before, after, strict=True)])
