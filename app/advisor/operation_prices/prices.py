"""What one operation costs alone under a plan: read off the profile's measured points."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from app.advisor.operation_prices.context_prices import ContextPrices, context_prices, undisturbed
from app.advisor.operation_prices.issue_prices import IssuedStep, IssuePrices, issue_prices
from app.advisor.operation_prices.issuing_prices import IssuingPrices, issuing_prices
from app.advisor.operation_prices.kernel_prices import KernelPrices, kernel_prices
from app.advisor.operation_prices.roofs import Roof, roof_of
from probes.context import Context
from probes.points import NetworkPoint, Point
from probes.profile import Profile
from probes.trace import Kind, Operation
from probes.workload.description import Plan

# Kinds whose cost follows their arithmetic; the rest follows the bytes moved. Alone, each is priced with the points of
# the first constant in its row that the profile has.
HEAVY: dict[str, tuple[str, ...]] = {
    "matmul": ("matmul",),
    "convolution": ("convolution", "matmul"),
    "attention": ("attention", "matmul"),
    "recurrent": ("recurrent", "matmul"),
}
LIGHT: dict[str, tuple[str, ...]] = {
    "normalization": ("normalization", "elementwise", "bandwidth"),
    "elementwise": ("elementwise", "bandwidth"),
    "reduction": ("reduction", "elementwise", "bandwidth"),
    "copy": ("copy", "elementwise", "bandwidth"),
    "gather": ("gather", "elementwise", "bandwidth"),
    "random": ("random", "elementwise", "bandwidth"),
}
# Light operations that compute more than they move: what they take beyond their bytes, in layer norms of as many
# bytes (rows of 256, in cache). Measured once, on one core with AVX-512, torch 2.13, 16 x 32 x 32 images in batches of
# 4 and 32: layer norm 55 ps a byte, max pooling 490, its backward 21, tanh 280, dropout 540, a sum 10. What they take
# on another machine goes with its layer norm.
WORK: tuple[tuple[str, float], ...] = (
    (r"max_pool\dd(_with_indices)?$", 9.0),
    (r"avg_pool\dd$", 5.0),
    (r"^(tanh|sigmoid|erf|exp|log|sin|cos|pow|silu|mish|elu|softplus)$", 5.0),
    (r"^(native_dropout|bernoulli)", 10.0),
    (r"^_?(log_)?softmax$", 1.5),
    (r"batch_norm$", 2.0),
    (r"^gelu", 0.5),
)
_WORK = tuple((re.compile(pattern), times) for pattern, times in WORK)
# The largest pages that kernels give one by one (arm64 and ppc64 may be built so). A fault that brought more brought a
# huge page, whose price is not that of the single ones which steps find fresh.
LARGEST_PAGE_BYTES = 64 * 1024
# Softens the nearest neighbour: points closer than this (in e-folds of size) count alike.
NEAR = 0.25


@dataclass(frozen=True, slots=True)
class ArithmeticTable:
    """Measured rates over two sizes of an operation: its flops, and its flops a byte."""

    points: tuple[tuple[float, float, float], ...]  # log flops, log flops a byte, log rate

    @property
    def peak(self) -> float:
        """Flops a second: the best that was measured."""
        return math.exp(max(log_rate for _, _, log_rate in self.points))

    def seconds(self, flops: float, moved_bytes: float) -> float:
        """By the rates measured nearby, weighted by distance; never a rate beyond the best one measured."""
        size = math.log(flops)
        intensity = size - math.log(max(moved_bytes, 1.0))
        total = weights = 0.0
        for log_flops, log_intensity, log_rate in self.points:
            distance = (size - log_flops) ** 2 + (intensity - log_intensity) ** 2 + NEAR
            weight = 1.0 / (distance * distance)
            total += weight * log_rate
            weights += weight
        return flops * math.exp(-total / weights)


@dataclass(frozen=True, slots=True)
class BytesTable:
    """Seconds a byte over the bytes that an operation touches: caches are faster than memory."""

    sizes: tuple[float, ...]  # logarithms, rising
    seconds_a_byte: tuple[float, ...]

    def seconds(self, moved_bytes: float) -> float:
        if moved_bytes <= 0:
            return 0.0
        size = math.log(moved_bytes)
        above = bisect_left(self.sizes, size)
        if above == 0:
            return moved_bytes * self.seconds_a_byte[0]
        if above == len(self.sizes):
            return moved_bytes * self.seconds_a_byte[-1]
        low, high = self.sizes[above - 1], self.sizes[above]
        share = (size - low) / (high - low)
        before, after = self.seconds_a_byte[above - 1], self.seconds_a_byte[above]
        return moved_bytes * (before + (after - before) * share)


@dataclass(frozen=True, slots=True)
class FaultPrice:
    """Of a page that the system gives anew: the process stops, and the page is zeroed."""

    seconds: float
    page_bytes: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Everything measured under one plan that a step's time is made of.

    dispatch: seconds an operation, with its share of autograd when training. optimizer: seconds a parameter tensor
    of a few numbers, by optimizer.
    """

    plan: Plan
    dispatch: float
    arithmetic: dict[str, ArithmeticTable]
    moving: dict[str, BytesTable]
    optimizer: dict[str, float]
    work: float = 0.0  # seconds a byte of a layer norm whose data lies in a cache
    context: ContextPrices | None = None  # of operations timed inside steps, where the profile has them
    fault: FaultPrice | None = None
    issuing: IssuingPrices | None = None  # of a device: what the host takes; None where nobody clocked it
    kernels: KernelPrices | None = None  # and what the device takes, inside steps
    device_roof: Roof | None = None

    def heavy_seconds(self, kind: str, flops: float, moved_bytes: float) -> float:
        """An arithmetic operation without its dispatch."""
        table = self.arithmetic.get(kind)
        if table is None or flops <= 0:
            return self.light_seconds("elementwise", moved_bytes)
        return table.seconds(flops, moved_bytes)

    def roof(self, kind: Kind) -> float:
        """Of a heavy kind the flops a second that nothing exceeds: the quickest that was clocked, alone or in a
        step."""
        if self.context is not None:
            return self.context.roofs[kind]
        return self.arithmetic.get(kind, self.arithmetic["matmul"]).peak

    def light_seconds(self, kind: str, moved_bytes: float) -> float:
        table = self.moving.get(kind) or self.moving.get("elementwise")
        return table.seconds(moved_bytes) if table is not None else 0.0

    def seconds(self, operation: Operation, batch_size: float) -> float:
        """One execution alone, dispatch apart."""
        if operation.kind == "view":
            return 0.0
        moved = operation.read_bytes.at(batch_size) + operation.written_bytes.at(batch_size)
        flops = operation.flops.at(batch_size)
        if operation.kind in HEAVY:
            return self.heavy_seconds(operation.kind, flops, moved)
        light = self.light_seconds(operation.kind, moved) + moved * self.work * work_of(operation.name)
        return max(light, self.heavy_seconds("matmul", flops, moved)) if flops > 0 else light

    def tensor_seconds(self, optimizer: str) -> float | None:
        """Of one parameter tensor; None when no optimizer was measured. Those without state cost what SGD does."""
        return self.optimizer.get("sgd" if optimizer == "sgd" else "adamw")

    def fault_seconds(self, faults: float) -> float:
        return page_fault_seconds(self.fault, faults)

    def fresh_seconds(self, fresh_bytes: float) -> float:
        """Of so many bytes that the system gives anew."""
        return self.fault_seconds(fresh_bytes / self.fault.page_bytes) if self.fault is not None else 0.0


def prices_for(profile: Profile, plan: Plan, mode: str = "training") -> Prices | None:
    """None when the profile holds nothing that prices arithmetic and bytes under this plan."""
    by_constant: dict[str, list[Point]] = {}
    for point in profile.points:
        if point.plan.key == plan.key and point.seconds.low > 0:
            by_constant.setdefault(point.constant, []).append(point)
    dispatch = _dispatch(by_constant.get("dispatch", ()), mode)
    alone = _dispatch(by_constant.get("dispatch", ()), "inference")  # points are measured without autograd
    arithmetic = {
        kind: table
        for kind, constants in HEAVY.items()
        if (table := _arithmetic_table(_first(by_constant, constants), alone)) is not None
    }
    moving = {
        kind: bytes_table
        for kind, constants in LIGHT.items()
        if (bytes_table := _bytes_table(_first(by_constant, constants), alone)) is not None
    }
    if "matmul" not in arithmetic or not moving:
        return None
    optimizers = _optimizers(by_constant.get("optimizer", ()))
    norm = moving.get("normalization") if by_constant.get("normalization") else None
    work = min(norm.seconds_a_byte) if norm is not None else 0.0
    fault = fault_price(profile, plan)
    if not plan.is_cpu:
        here = [context for context in profile.contexts if context.plan.device == plan.device]
        points = [point for constant in by_constant.values() for point in constant]
        kernels = kernel_prices([context for context in here if context.plan.key == plan.key], points)
        issuing = issuing_prices(here, mode)
        roof = roof_of((), points) if kernels is None else kernels.roof
        return Prices(plan, dispatch, arithmetic, moving, optimizers, work, None, None, issuing, kernels, roof)
    context = _context(profile, plan, mode, arithmetic, fault)
    return Prices(plan, dispatch, arithmetic, moving, optimizers, work, context, fault)


def fault_price(profile: Profile, plan: Plan) -> FaultPrice | None:
    """Bytes written anew against as many written again, by as many threads: they take faults side by side, on two 0.6
    to 0.75 of what one takes (EPYC, Zen 5). Never more than one takes: now and then two were in each other's way for
    seconds, and took four times as long. None where they were not measured, cost nothing, or were of huge pages."""
    measured = [p for p in profile.points if p.constant == "page-fault" and p.plan.device == plan.device]
    counts = {plan.threads, 1}
    prices = [_price_of_fresh([p for p in measured if p.plan.threads == count]) for count in counts]
    return min((price for price in prices if price is not None), key=lambda price: price.seconds, default=None)


def _price_of_fresh(points: Sequence[Point]) -> FaultPrice | None:
    points = [point for point in points if point.bytes >= 1]
    fresh = next((point for point in points if point.parameters.get("faults", 0) >= 1), None)
    again = next((point for point in points if point.parameters.get("faults") == 0), None)
    if fresh is None or again is None or fresh.seconds.median <= again.seconds.median:
        return None
    faults = fresh.parameters["faults"]
    if fresh.bytes / faults > LARGEST_PAGE_BYTES:
        return None
    return FaultPrice((fresh.seconds.median - again.seconds.median) / faults, fresh.bytes / faults)


def _context(
    profile: Profile, plan: Plan, mode: str, arithmetic: dict[str, ArithmeticTable], fault: FaultPrice | None
) -> ContextPrices | None:
    """From steps of this mode, and of the other for what these lack."""
    mine = [context for context in profile.contexts if context.plan.key == plan.key]
    wanted = mode if any(context.mode == mode for context in mine) else "training"

    def alone(kind: Kind, flops: float, moved: float) -> float | None:
        table = arithmetic.get(kind)
        return table.seconds(flops, moved) if table is not None else None

    steps = {
        (point.name, point.batch_size, point.trace.mode): point
        for point in profile.networks
        if point.plan.key == plan.key
    }
    ran = [(each, steps.get((each.network, each.batch_size, each.mode))) for each in mine]
    issue = _issue_prices(ran, fault)
    calm = [undisturbed(each, None if step is None else step.seconds.median, issue) for each, step in ran]
    return context_prices(calm, wanted, arithmetic["matmul"].peak, issue, alone)


def _issue_prices(ran: Sequence[tuple[Context, NetworkPoint | None]], fault: FaultPrice | None) -> IssuePrices | None:
    """None where nobody counted what issues operations."""
    steps = [
        IssuedStep(step.seconds.low, context.seconds, page_fault_seconds(fault, step.page_faults), context.issued)
        for context, step in ran
        if step is not None and context.issued is not None
    ]
    return issue_prices(steps, min(context.shortest for context, _ in ran)) if steps else None


def page_fault_seconds(fault: FaultPrice | None, faults: float) -> float:
    return faults * fault.seconds if fault is not None else 0.0


@cache
def work_of(name: str) -> float:
    """How many layer norms an operation computes beyond moving its bytes; name: torch's, as `aten.tanh`."""
    bare = name.rpartition(".")[2].rstrip("_")
    return next((times for pattern, times in _WORK if pattern.search(bare)), 0.0)


def _optimizers(points: Sequence[Point]) -> dict[str, float]:
    return {name: point.seconds.low for point in points for name in ("adamw", "sgd") if point.parameters.get(name)}


def _dispatch(points: Sequence[Point], mode: str) -> float:
    """The mode's own figure, or the smallest there is."""
    autograd = 1.0 if mode == "training" else 0.0
    chosen = [point for point in points if point.parameters.get("autograd") == autograd] or points
    return min((point.seconds.low for point in chosen), default=0.0)


def _first(by_constant: dict[str, list[Point]], names: Sequence[str]) -> list[Point]:
    return next((by_constant[name] for name in names if by_constant.get(name)), [])


def _arithmetic_table(points: Sequence[Point], dispatch: float) -> ArithmeticTable | None:
    rows = [
        (math.log(point.flops), math.log(point.flops / point.bytes), math.log(point.flops / _net(point, dispatch)))
        for point in points
        if point.flops > 0 and point.bytes > 0
    ]
    return ArithmeticTable(tuple(rows)) if rows else None


def _bytes_table(points: Sequence[Point], dispatch: float) -> BytesTable | None:
    by_size: dict[float, list[float]] = {}
    for point in points:
        if point.bytes > 0:
            by_size.setdefault(math.log(point.bytes), []).append(_net(point, dispatch) / point.bytes)
    sizes = tuple(sorted(by_size))
    return BytesTable(sizes, tuple(median(by_size[size]) for size in sizes)) if sizes else None


def _net(point: Point, dispatch: float) -> float:
    """Seconds without the dispatch that every operation pays; a tenth at least, as the clock is no better.

    The 10th percentile: alone, an operation is disturbed only ever upwards.
    """
    return max(point.seconds.low - dispatch, 0.1 * point.seconds.low)
