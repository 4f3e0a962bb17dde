"""What one operation costs inside a step under a plan: read off the operations that were timed in whole steps.

An operation's price is a baseline for its size (what light operations that move as many bytes take, and for heavy ones
what their arithmetic takes at the machine's best on top of that, docs/decisions/0005) times what operations of its name
took beyond theirs (app.advisor.operation_prices.samples). So a size that was never timed follows the baseline, a
variant that was never timed follows its name, and a name that was never timed its kind.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from app.advisor.operation_prices.block_prices import BlockPrice, block_price
from app.advisor.operation_prices.issue_prices import IssuePrices
from app.advisor.operation_prices.remembered import MOST_REMEMBERED, Remembered
from app.advisor.operation_prices.samples import Sample, Samples
from app.advisor.operation_prices.surroundings import kernel_of, moved_bytes, surroundings
from probes.context import KERNEL_MEMBERS, STRIDED, Context, ContextOperation, OperationCost
from probes.trace import BYTES_OF_A_NUMBER, Kind

HEAVY_KINDS: frozenset[Kind] = frozenset({"matmul", "convolution", "attention", "recurrent"})
BIN = 0.5  # e-folds of bytes that share a point of the light baseline
DISTURBED = 1.3  # times the step
# E-folds, beyond the largest that was timed: as far its kind is asked instead, and on the way there more and more, as
# next to nothing says nothing of how a time grows. But what took more than so many times as long as an operation that
# has nothing to do was at work: what it took beyond its kind it takes beyond it there, too, and in proportion at least.
FAR = 2.5
AT_WORK = 4.0
NEXT_TO_NOTHING_BYTES = 4096

# An e-fold of the numbers in a pool's window, which all are looked at, against one of size: what takes as many is
# nearest whatever its size (docs/decisions/0005).
WINDOW_WEIGHT = 3.0
WRITTEN_WEIGHT = 0.5  # the same of what is written, among what is moved

# A matrix times a vector lies so many e-folds from the products of matrices. A weight's gradient by one sample takes
# 79 us where the next sample makes 729 of it (1,024 x 1,024 in fp32; an EPYC, Zen 4, torch 2.13, one thread); told by
# one smooth function, a step of one sample took 1.3 to 1.6 times as long (docs/decisions/0005).
VECTOR_APART = 12.0

AloneSeconds = Callable[[Kind, float, float], float | None]  # kind, flops, bytes

NONE = Samples()


@dataclass(frozen=True, slots=True)
class LightBaseline:
    """Seconds over the bytes moved: rising, in proportion beyond the largest, constant below the smallest."""

    sizes: tuple[float, ...]  # logarithms
    log_seconds: tuple[float, ...]

    def log_seconds_at(self, size: float) -> float:
        sizes, logs = self.sizes, self.log_seconds
        above = bisect_left(sizes, size)
        if above == 0:
            return logs[0]
        if above == len(sizes):
            return logs[-1] + size - sizes[-1]
        share = (size - sizes[above - 1]) / (sizes[above] - sizes[above - 1])
        return logs[above - 1] + share * (logs[above] - logs[above - 1])


def light_baseline(costs: Iterable[OperationCost]) -> LightBaseline | None:
    """Medians of bins of sizes; None of nothing."""
    bins: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for cost in costs:
        size = math.log1p(moved_bytes(cost.operation))
        bins[int(size / BIN)].append((size, math.log(cost.seconds)))
    sizes: list[float] = []
    logs: list[float] = []
    for place in sorted(bins):
        sizes.append(median(size for size, _ in bins[place]))
        logs.append(max(median(log for _, log in bins[place]), logs[-1] if logs else -math.inf))
    return LightBaseline(tuple(sizes), tuple(logs)) if sizes else None


class _Based(NamedTuple):
    """An operation with its baseline, all in logarithms. intensity: of the arithmetic a byte, or a block, or of a
    pool's window."""

    operation: ContextOperation
    log_seconds: float
    size: float
    intensity: float


_Keyed = tuple[Hashable, Samples]


def _reaching(found: Sequence[_Keyed]) -> Sequence[_Keyed]:
    """The most telling first; of the others those that tell of larger ones than all before."""
    reaching: list[_Keyed] = []
    for each in found:
        if each[1].rows and (not reaching or each[1].largest > reaching[-1][1].largest):
            reaching.append(each)
    return reaching


@dataclass
class ContextPrices:
    """Prices under one plan.

    floor: the least that any operation took, which its arithmetic comes on top of. roofs: by heavy kind, the flops a
    second that nothing exceeds; no light operation exceeds those of products. issue: what lies between operations; None
    where it was not counted what issues them. blocks: by kernel (kernel_of), of those that work through blocks.
    overheads: of operations on next to nothing, by the footprint of the step that they were timed in. alone: seconds
    that heavy arithmetic takes by itself, for what has no like in a step (see _alone_seconds). clocked: the kinds that
    have.
    """

    light: LightBaseline
    floor: float
    roofs: Mapping[Kind, float]
    issue: IssuePrices | None = None
    blocks: Mapping[tuple[str, str], BlockPrice] = field(default_factory=dict)
    overheads: Samples = field(default_factory=Samples)
    alone: AloneSeconds | None = None
    clocked: frozenset[Kind] = frozenset()
    samples: dict[Hashable, Samples] = field(default_factory=lambda: defaultdict(Samples))
    _remembered: Remembered = field(default_factory=Remembered)
    _left_out: dict[tuple[Hashable, str], Samples] = field(default_factory=dict)
    _like: dict[tuple[object, ...], Sequence[_Keyed]] = field(
        default_factory=dict
    )  # by KERNEL_MEMBERS: torch has some thousands
    _work: dict[tuple[Hashable, str | None], float] = field(default_factory=dict)
    _overheads: dict[float, float] = field(default_factory=dict)  # by footprint

    def seconds(
        self, operation: ContextOperation, footprint: float, often: float = 0.0, without: str | None = None
    ) -> float:
        """One execution in a step of this footprint that runs operations of its name so often (often_of). without: as
        if this network had never been timed."""
        operation = self._as_it_was_told(operation)
        return max(self._by_samples(operation, footprint, often, without), self._least(operation))

    def _least(self, operation: ContextOperation) -> float:
        """At the roof: where several samples lie one beside the other, a slope leads on to above it. Light operations
        are priced by their bytes, and some compute far more (an inverse, eigenvalues)."""
        return operation.flops / self.roofs.get(operation.kind, self.roofs["matmul"])

    def _by_samples(self, operation: ContextOperation, footprint: float, often: float, without: str | None) -> float:
        asked, like = self._based(operation), self._samples_like(operation, without)
        if not like:
            return math.exp(asked.log_seconds)
        return self._through(like, asked, (footprint, often), without)

    def _through(
        self, like: Sequence[_Keyed], asked: _Based, around: tuple[float, float], without: str | None
    ) -> float:
        """Seconds, by the first of these samples; beyond those by the next, which reach further: no less than at the
        largest that was timed, and as many times what the next tell as it was there, less and less of it up to FAR away
        but for what was work."""
        key, samples = like[0]
        beyond = asked.size - samples.largest
        if beyond <= 0 or len(like) == 1:
            return self._by(key, samples, asked, around, without)
        largest = self._based(_scaled(asked.operation, math.exp(-beyond)))
        took = self._near(key, samples, largest, around, without)
        work = self._share_of_work(key, samples, without)
        left = work + (1.0 - work) * max(1.0 - beyond / FAR, 0.0)
        carried = self._through(like[1:], asked, around, without)
        if left > 0.0:  # or how long those took there is of no account
            carried *= math.pow(took / self._by(*like[1], largest, around, without), left)
        carried = max(took, carried)
        if asked.operation.kind in HEAVY_KINDS:  # arithmetic is the quicker the more of it there is
            return carried
        return max(carried, took * work * math.exp(beyond))

    def _share_of_work(self, key: Hashable, samples: Samples, without: str | None) -> float:
        """Of what operations took where they were timed, beyond AT_WORK times the overhead there: in the middle one, as
        a single one may have been disturbed."""
        found = self._work.get((key, without))
        if found is None:
            shares = [1.0 - AT_WORK * self.overhead(row.footprint) / math.exp(row.log_seconds) for row in samples.rows]
            found = self._work[key, without] = max(median(shares), 0.0)
        return found

    def _by(
        self, key: Hashable, samples: Samples, asked: _Based, around: tuple[float, float], without: str | None
    ) -> float:
        """Seconds, by these samples: beyond those timed, more or less by what goes with the size. around: footprint,
        often."""
        size = asked.size
        if samples.smallest <= size <= samples.largest or not samples.rows:
            return self._near(key, samples, asked, around, without)
        times = math.exp(size - min(max(size, samples.smallest), samples.largest))
        known = self._near(key, samples, self._based(_scaled(asked.operation, 1 / times)), around, without)
        overhead = min(self.overhead(around[0]), known)
        return overhead + (known - overhead) * times

    def overhead(self, footprint: float) -> float:
        """Of an operation that has next to nothing to do. All of a step ask for the same."""
        if not self.overheads.rows:
            return self.floor
        found = self._overheads.get(footprint)
        if found is None:
            if len(self._overheads) >= MOST_REMEMBERED:
                self._overheads.clear()
            log_seconds = self.overheads.log_ratio_at((0.0, 0.0, 0.0, footprint, 0.0))
            found = self._overheads[footprint] = math.exp(log_seconds)
        return found

    def learn_context(self, context: Context, *, is_same_mode: bool) -> None:
        footprint, often = surroundings((cost.operation, cost.times) for cost in context.costs)
        self._forget()
        for cost in context.costs:
            based = self._based(cost.operation)
            log_ratio = math.log(cost.seconds) - based.log_seconds
            around = (footprint, often[kernel_of(cost.operation)])
            place = (based.size, based.intensity, written_of(cost.operation), *around)
            sample = Sample(context.network, *place, log_ratio, math.log(cost.seconds))
            keys = _keys(cost.operation)
            for key in keys if is_same_mode else keys[1:]:
                self.samples[key].add(sample)
        small = [cost.seconds for cost in context.costs if 0 < moved_bytes(cost.operation) <= NEXT_TO_NOTHING_BYTES]
        if small and is_same_mode:
            self.overheads.add(Sample(context.network, 0.0, 0.0, 0.0, footprint, 0.0, math.log(median(small))))

    def share_samples(self) -> None:
        """Keys that tell of the same operations share what is solved: most names have one variant, and most plans one
        dtype."""
        shared: dict[tuple[int, ...], Samples] = {}
        for key, samples in self.samples.items():
            self.samples[key] = shared.setdefault(tuple(map(id, samples.rows)), samples)
        self._forget()

    def _forget(self) -> None:
        """What was found by samples that are other ones now."""
        self._like.clear()
        self._work.clear()
        self._overheads.clear()

    def finish_fitting(self) -> None:
        """No more network is left out: keep nothing that only that takes, which is most of what prices take."""
        self._left_out.clear()
        self._work.clear()
        for samples in (self.overheads, *self.samples.values()):
            samples.finish_fitting()

    def get_ready(self) -> None:
        """Solve now what the first questions would wait for."""
        for samples in (self.overheads, *self.samples.values()):
            samples.get_ready()
        for key, samples in self.samples.items():
            self._share_of_work(key, samples, None)

    def _as_it_was_told(self, operation: ContextOperation) -> ContextOperation:
        """Calibrations of before depthwise convolutions that leave places out were told apart have none of them: they
        are priced as the others are, as they were then, and not as convolutions of any kind."""
        if STRIDED not in operation.variant or (operation.name, operation.variant) in self.samples:
            return operation
        return operation._replace(variant=operation.variant.replace(STRIDED, ""))

    def _samples_like(self, operation: ContextOperation, without: str | None) -> Sequence[_Keyed]:
        if without is not None:
            return _reaching([(key, self._samples_without(key, without)) for key in _keys(operation)])
        kernel = operation[:KERNEL_MEMBERS]
        found = self._like.get(kernel)
        if found is None:
            found = self._like[kernel] = _reaching([(key, self.samples.get(key, NONE)) for key in _keys(operation)])
        return found

    def _samples_without(self, key: Hashable, network: str) -> Samples:
        found = self._left_out.get((key, network))
        if found is None:
            found = self._left_out[(key, network)] = self.samples.get(key, NONE).without(network)
        return found

    def _based(self, operation: ContextOperation) -> _Based:
        """What works through blocks, or a pool's window, is measured by those: each is an operation of its own (bf16's
        backward of attention takes 50 us a block here, and little more where it has eight times the arithmetic)."""
        log_bytes = math.log1p(moved_bytes(operation))
        moving = self.light.log_seconds_at(log_bytes)
        if operation.kind in HEAVY_KINDS and operation.flops >= 1:
            size = math.log(operation.flops)
            block = self.blocks.get(kernel_of(operation)) if operation.grain >= 1 else None
            if block is not None:
                seconds = block.seconds(operation.flops, operation.grain)
                return _Based(operation, math.log(seconds), size, math.log(operation.grain))
            alone = self._alone_seconds(operation)
            seconds = self.floor + (self._least(operation) + math.exp(moving) if alone is None else alone)
            return _Based(operation, math.log(seconds), size, size - log_bytes - _vector_apart(operation))
        window = WINDOW_WEIGHT * math.log(operation.grain) if operation.grain >= 1 else 0.0
        return _Based(operation, moving, log_bytes, window)

    def _alone_seconds(self, operation: ContextOperation) -> float | None:
        """Of a kind that was clocked in no step, and of a kernel of blocks that was not, whose like are priced by the
        block: no product tells what a convolution or an attention reaches. None for others, or where nothing is
        known."""
        if self.alone is None or (operation.kind in self.clocked and operation.grain < 1):
            return None
        return self.alone(operation.kind, operation.flops, moved_bytes(operation))

    def _near(
        self, key: Hashable, samples: Samples, asked: _Based, around: tuple[float, float], without: str | None
    ) -> float:
        """Seconds at a size among those timed. around: footprint, often."""
        if not samples.rows:
            return math.exp(asked.log_seconds)
        place = (asked.size, asked.intensity, written_of(asked.operation), *around)
        if without is not None:
            return math.exp(asked.log_seconds + samples.log_ratio_at(place))
        return math.exp(asked.log_seconds + self._remembered.at(key, place, samples.log_ratio_at))


def written_of(operation: ContextOperation) -> float:
    """How much of what it moves is written, in e-folds: a product makes a large matrix of two small ones, or a small
    one of two large ones, with as much arithmetic and as many bytes."""
    return WRITTEN_WEIGHT * math.log((operation.written_bytes + 1) / (moved_bytes(operation) + 2))


def _vector_apart(operation: ContextOperation) -> float:
    """Of a product that multiplies hardly more often than it reads or writes a number, as with a single row or column:
    libraries run other code then, and what it takes tells little of what others do."""
    numbers = moved_bytes(operation) / BYTES_OF_A_NUMBER.get(operation.dtype, 4)
    return VECTOR_APART if operation.kind == "matmul" and operation.flops < 2.0 * numbers else 0.0


def _scaled(operation: ContextOperation, times: float) -> ContextOperation:
    if times == 1.0:
        return operation
    o = operation  # _replace takes twice as long
    sizes = o.flops * times, o.read_bytes * times, o.written_bytes * times
    return ContextOperation(o.name, o.kind, o.variant, o.dtype, *sizes, o.grain)


def _keys(operation: ContextOperation) -> tuple[Hashable, ...]:
    """From the most telling to the least; the first is of the same mode alone."""
    name, kind, variant, dtype = operation[:KERNEL_MEMBERS]
    like = (name, variant, dtype)
    return ("same mode", *like), like, (name, variant), ("any variant", name, dtype), (kind, dtype), (kind,)


def context_prices(
    contexts: Sequence[Context],
    mode: str,
    peak: float,
    issue: IssuePrices | None = None,
    alone: AloneSeconds | None = None,
) -> ContextPrices | None:
    """Of one plan's contexts; None without any. Those of the other mode tell of operations that this mode's lack.
    peak: flops a second of the quickest product that ran alone. alone: see ContextPrices."""
    costs = [cost for context in contexts for cost in context.costs]
    light = light_baseline(cost for cost in costs if cost.operation.kind not in HEAVY_KINDS)
    if light is None:
        return None
    floor, blocks = min(cost.seconds for cost in costs), _block_prices(costs)
    clocked = frozenset(cost.operation.kind for cost in costs)
    prices = ContextPrices(light, floor, _roofs(costs, peak), issue, blocks, alone=alone, clocked=clocked)
    for context in contexts:
        prices.learn_context(context, is_same_mode=context.mode == mode)
    prices.share_samples()
    return prices


def _roofs(costs: Sequence[OperationCost], peak: float) -> dict[Kind, float]:
    """Of heavy kinds: the quickest of it that was clocked, or of any product (a convolution with fewer multiplications
    than are counted may be quicker than those, nothing else is)."""
    quickest = dict.fromkeys(HEAVY_KINDS, peak)
    for cost in costs:
        kind = cost.operation.kind
        if kind in quickest:
            quickest[kind] = max(quickest[kind], cost.operation.flops / cost.seconds)
    return {kind: max(rate, quickest["matmul"]) for kind, rate in quickest.items()}


def _block_prices(costs: Sequence[OperationCost]) -> dict[tuple[str, str], BlockPrice]:
    kernels: dict[tuple[str, str], list[OperationCost]] = defaultdict(list)
    for cost in costs:
        if cost.operation.grain >= 1:
            kernels[kernel_of(cost.operation)].append(cost)
    return {kernel: price for kernel, found in kernels.items() if (price := block_price(found)) is not None}


def undisturbed(context: Context, step_seconds: float | None, issue: IssuePrices | None = None) -> Context:
    """The context as it is, or where its operations, issued as in a plain step, add up to much more than the step took
    without a clock, scaled down to the step."""
    between = issue.seconds(context.issued) if issue is not None and context.issued is not None else 0.0
    total = context.seconds + min(between, 0.0)
    if step_seconds is None or total <= DISTURBED * step_seconds:
        return context
    share = step_seconds / total
    return replace(context, costs=tuple(cost._replace(seconds=cost.seconds * share) for cost in context.costs))
