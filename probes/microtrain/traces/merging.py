"""Two recordings of one step, at two batch sizes -> its operations as functions of the batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from probes.trace import Affine, Operation

if TYPE_CHECKING:
    from probes.microtrain.traces.recording import Record


# What becomes so many times as large as the batch does is on no line; one sample less or more is.
FASTER = 1.5
# It counts where it is this share of all that a step of this batch computes, or writes.
LARGE_BATCH, COUNTING_SHARE = 4096, 0.05
# What a size of a tensor is that is another one at another batch: no size is less than nothing.
SAMPLES, CHANCE = -1, -2

Sizes = tuple[float, float, float]  # of one execution: FLOPs, bytes read, bytes written
Shapes = tuple[tuple[int, ...], ...]


def affine(batch_sizes: tuple[int, int], values: tuple[float, float]) -> Affine:
    """The line through two points."""
    slope = (values[1] - values[0]) / (batch_sizes[1] - batch_sizes[0])
    return Affine(values[0] - slope * batch_sizes[0], slope)


def same_operations(one: Sequence[Record], other: Sequence[Record]) -> bool:
    """Whether both steps ran the same operations in the same order."""
    return len(one) == len(other) and all(a[:4] == b[:4] for a, b in zip(one, other, strict=True))


def outgrowing(batch_sizes: tuple[int, int], one: Sequence[Record], other: Sequence[Record]) -> Record | None:
    """An operation that grows with the batch's square, and is a real part of a large step: two sizes tell of lines
    alone. A loss that compares all samples of a batch with each other has one."""
    if not same_operations(one, other):
        return None
    low, high = batch_sizes
    beyond = (LARGE_BATCH / high) ** 2
    for size in (lambda record: record.flops, lambda record: record.written_bytes):
        pairs = [(size(a), size(b), b) for a, b in zip(one, other, strict=True)]
        total = sum(affine(batch_sizes, (a, b)).at(LARGE_BATCH) for a, b, _ in pairs)
        for a, b, record in pairs:
            if b > FASTER * high / low * a > 0 and b * beyond > COUNTING_SHARE * total:
                return record
    return None


def repeated(
    batch_sizes: tuple[int, int], one: Sequence[Record], other: Sequence[Record], *, by_chance: bool = True
) -> str | None:
    """The name of operations that run for each sample of a batch anew: once more at least for each further sample, and
    more of them for samples than for the step. A trace has one count of each, whatever the batch. None where they are
    no real part of a large step: rows taken one by one, a mask filled.

    by_chance: that chance, or numbers, may have a say in how often something runs. Where they have none, once more for
    a few further samples is enough: the batch is worked on in parts of as many."""
    small, large = (Counter(record[:4] for record in records) for records in (one, other))
    found = []
    for what, count in large.items():
        line = affine(batch_sizes, (small[what], count))
        if line.per_sample >= (1 if by_chance else 0) and line.constant < small[what] / 2:
            found.append(what)
    if not _counts(batch_sizes, one, other, set(found)):
        return None
    found.sort(key=lambda what: what[1] == "view")  # what computes says more
    return found[0][2] if found else None


def _counts(
    batch_sizes: tuple[int, int], one: Sequence[Record], other: Sequence[Record], some: Collection[tuple[object, ...]]
) -> bool:
    """Whether these of the operations are a real part of what a large step computes, or writes."""
    for size in (lambda record: record.flops, lambda record: record.written_bytes):
        theirs, everyones = (
            _growing(
                batch_sizes,
                (sum(map(size, filter(among, one))), sum(map(size, filter(among, other)))),
            ).at(LARGE_BATCH)
            for among in (lambda record: record[:4] in some, None)
        )
        if theirs > COUNTING_SHARE * everyones:
            return True
    return False


def peak_lines(batch_sizes: tuple[int, int], one: Sequence[int], other: Sequence[int]) -> tuple[Affine, ...]:
    """Bytes alive over a step at two batch sizes -> the lines that are highest at some batch size from 1 on, the one
    of the largest batches last. Moments correspond where both steps ran the same operations; else only peaks do. Empty
    where a step has no moments."""
    if not one or not other:
        return ()
    if len(one) != len(other):
        one, other = [max(one)], [max(other)]
    return highest_lines({_unfalling(batch_sizes, pair) for pair in zip(one, other, strict=True)})


def _unfalling(batch_sizes: tuple[int, int], values: tuple[int, int]) -> Affine:
    """The line through two points. More samples take no less memory: where they seem to, chance was at work."""
    line = affine(batch_sizes, values)
    return line if line.per_sample >= 0 else Affine(max(values), 0.0)


def ordinary_line(peaks: Sequence[Affine]) -> Affine:
    """Of a step's peaks the one that is close at ordinary batches."""
    return next((line for line in reversed(peaks) if line.constant >= 0), peaks[0])


def highest_lines(lines: Collection[Affine]) -> tuple[Affine, ...]:
    """Those that are highest at some batch size from 1 on, by growing slope."""
    found = [max(lines, key=lambda line: (line.at(1), line.per_sample))]
    while steeper := [line for line in lines if line.per_sample > found[-1].per_sample]:
        top = found[-1]
        found.append(min(steeper, key=lambda line: (_crossing(top, line), -line.per_sample)))
    return tuple(found)


def _crossing(low: Affine, steep: Affine) -> float:
    """The batch size from which the steeper line is the higher one."""
    return (low.constant - steep.constant) / (steep.per_sample - low.per_sample)


def merge(batch_sizes: tuple[int, int], one: Sequence[Record], other: Sequence[Record]) -> tuple[Operation, ...]:
    """Equal operations counted, in order of their first run."""
    if not same_operations(one, other):
        return _merge_by_name(batch_sizes, one, other)
    shared = _shared_out(batch_sizes, one, other)
    counts: Counter[Operation] = Counter()
    for place, (a, b) in enumerate(zip(one, other, strict=True)):
        like, small, large = shared.get(place) or (a, _sizes(a), _sizes(b))
        counts[_operation(batch_sizes, like, small, large, 1)] += 1
    return tuple(_counted(operation, count) for operation, count in counts.items())


def _sizes(record: Record) -> Sizes:
    return record.flops, record.read_bytes, record.written_bytes


def _shared_out(
    batch_sizes: tuple[int, int], one: Sequence[Record], other: Sequence[Record]
) -> dict[int, tuple[Record, Sizes, Sizes]]:
    """By place, of operations that chance shares rows out among, as among experts: the first of them, and what they do
    on average. A line through what one of them did may fall, or tell of less than nothing; all together have as many
    rows as there are samples for. Where no line is such a one, none is here."""
    pairs = list(zip(one, other, strict=True))
    groups: dict[tuple[Any, Shapes], list[int]] = defaultdict(list)
    for place, (a, b) in enumerate(pairs):
        groups[a[:4], _shapes_told(batch_sizes, a, b)].append(place)
    found: dict[int, tuple[Record, Sizes, Sizes]] = {}
    for (what, shapes), by_chance in groups.items():
        if not any(CHANCE in shape for shape in shapes):
            continue
        if all(_is_told(batch_sizes, _sizes(pairs[place][0]), _sizes(pairs[place][1])) for place in by_chance):
            continue
        alike = (places for (each, others), places in groups.items() if each == what and _fits(others, shapes))
        places = sorted(place for some in alike for place in some if place not in found)
        small, large = (_mean([pairs[place][index] for place in places]) for index in range(2))
        found |= dict.fromkeys(places, (pairs[places[0]][0], small, large))
    return found


def _shapes_told(batch_sizes: tuple[int, int], a: Record, b: Record) -> Shapes:
    """Sizes that are the same whatever the batch, and what the others are. CHANCE: neither that nor of all samples."""
    low, high = batch_sizes
    return tuple(
        tuple(x if x == y else SAMPLES if x * high == y * low else CHANCE for x, y in zip(small, large, strict=False))
        for small, large in zip(a.shapes, b.shapes, strict=False)
    )


def _fits(shapes: Shapes, by_chance: Shapes) -> bool:
    """Whether these may be such shapes: by chance a size may be the same at both batches as well, or be doubled."""
    return [len(shape) for shape in shapes] == [len(shape) for shape in by_chance] and all(
        like in (CHANCE, size)
        for shape, likes in zip(shapes, by_chance, strict=True)
        for size, like in zip(shape, likes, strict=True)
    )


def _is_told(batch_sizes: tuple[int, int], small: Sizes, large: Sizes) -> bool:
    """Whether the lines through two executions are of something that can be."""
    return all(_is_possible(affine(batch_sizes, pair)) for pair in zip(small, large, strict=True))


def _is_possible(line: Affine) -> bool:
    return line.per_sample >= 0 and line.at(1) >= 0


def _mean(records: Sequence[Record]) -> Sizes:
    flops, read, written = (sum(column) / len(records) for column in zip(*map(_sizes, records), strict=True))
    return flops, read, written


def _growing(batch_sizes: tuple[int, int], values: tuple[float, float]) -> Affine:
    """The line through two values that chance has shaken: never falling, never negative."""
    line = affine(batch_sizes, values)
    if line.per_sample < 0:
        return Affine(sum(values) / 2, 0.0)
    return line if line.constant >= 0 else Affine(0.0, values[1] / batch_sizes[1])


def _work(batch_sizes: tuple[int, int], values: tuple[float, float]) -> Affine:
    """The line through two points, unless it tells of less than nothing: then chance was at work, as in a model that
    hangs on its numbers."""
    line = affine(batch_sizes, values)
    return line if _is_possible(line) else _growing(batch_sizes, values)


def _operation(
    batch_sizes: tuple[int, int], like: Record, one: Sequence[float], other: Sequence[float], count: int
) -> Operation:
    flops, read, written = (_work(batch_sizes, pair) for pair in zip(one, other, strict=True))
    return Operation(
        like.kind, like.name, like.phase, like.dtype, count, flops, read, written, like.shapes, like.variant, like.grain
    )


def _counted(operation: Operation, count: int) -> Operation:
    return replace(operation, count=count)


def _merge_by_name(
    batch_sizes: tuple[int, int], one: Sequence[Record], other: Sequence[Record]
) -> tuple[Operation, ...]:
    """For steps whose operations depend on the batch (experts that some batch does not reach): totals by phase and
    name, as often as the larger batch ran them; one execution is their mean."""
    groups: dict[tuple[str, ...], tuple[list[Record], list[Record]]] = defaultdict(lambda: ([], []))
    for index, records in enumerate((one, other)):
        for record in records:
            groups[record[:4]][index].append(record)
    return tuple(_mean_operation(batch_sizes, small, large) for small, large in groups.values())


def _mean_operation(batch_sizes: tuple[int, int], small: list[Record], large: list[Record]) -> Operation:
    count = len(large) or len(small)
    one, other = (
        [sum(_sizes(record)[column] for record in records) / count for column in range(3)] for records in (small, large)
    )
    like = (small or large)[0]
    flops, read, written = (_growing(batch_sizes, pair) for pair in zip(one, other, strict=True))
    return Operation(
        like.kind, like.name, like.phase, like.dtype, count, flops, read, written, like.shapes, like.variant, like.grain
    )
