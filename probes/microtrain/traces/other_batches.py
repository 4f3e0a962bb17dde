"""Whether a step at two batch sizes tells of the step at others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from probes.microtrain.failures import Untraceable
from probes.microtrain.feeding import Batch, map_tensors, parts_of, tensors_in
from probes.microtrain.traces.merging import LARGE_BATCH, affine, outgrowing, repeated, same_operations
from probes.microtrain.traces.primed_stepper import PrimedStepper, Recording
from probes.microtrain.traces.recording import Record

Pair = tuple[int, int]  # of batch sizes

# Few samples and many; of each the first at which the step runs. Odd ones come first: a step may ask for that, too, and
# those that are traced are even. One sample alone, which batch norm refuses, many guard it from, and nothing else.
OTHER_SIZES = ((3, 4), (LARGE_BATCH - 1, LARGE_BATCH))
# Later steps that are looked at for chance: where a step hangs on it, it is another one in most of them.
REPEATS = 2
# What is told is off by more than this, as a share of the larger: it is another step.
OFF = 0.1


def check_larger(pair: Pair, one: Recording, other: Recording) -> None:
    """Raises Untraceable where batches of both sizes are one: of others it tells nothing."""
    if one.input_bytes == other.input_bytes > 0 and one.records == other.records:
        raise Untraceable(
            f"A step of {pair[1]} samples is one of {pair[0]} in this model, as where batches are filled up to a size. "
            "A trace tells what grows with the batch, and would be wrong at any larger one. Measure it instead (effort "
            "quick)."
        )


def check_growth(stepper: PrimedStepper, pair: Pair, one: Recording, other: Recording, *, by_chance: bool) -> None:
    """Raises Untraceable where two batches do not tell of others. Chance makes steps unlike, too, but does not go on to
    in a third one. by_chance: whether chance, or numbers, may have a say."""
    grown = outgrowing(pair, one.records, other.records)
    if grown is None and repeated(pair, one.records, other.records, by_chance=by_chance) is None:
        return
    further, third = (pair[1], 2 * pair[1]), stepper.record(2 * pair[1])
    if grown is not None and outgrowing(further, other.records, third.records) is not None:
        raise Untraceable(
            f"{grown.name} in this model becomes four times as large where the batch is doubled, as where a loss "
            "compares all samples of a batch with each other. A trace tells what grows with the batch, and would be "
            "wrong at any other batch size. Measure it instead (effort quick)."
        )
    if (name := repeated(further, other.records, third.records, by_chance=by_chance)) is not None:
        raise Untraceable(
            f"{name} runs in this model for each sample of a batch by itself, or for every few, as in a loop over "
            "them. A trace counts what a step runs once for all batch sizes, and would be wrong at any other batch "
            "size. Measure it instead (effort quick)."
        )


def check_same_step(stepper: PrimedStepper, pair: Pair, one: Recording, other: Recording) -> None:
    """Raises Untraceable where code of the user's own asks for the size of a batch, and does something else at few
    samples or at many. To be asked last: the steps that are tried may leave other gradients behind.

    Batches are those that were traced, with more rows or fewer. Where their parts do not say what they would be then,
    or chance has a say in what a step runs, nothing is tried. Nor where experts are taken to be chosen equally often:
    of few samples none is left for an expert, which is our rounding and not the model's code."""
    if stepper.evenly_routed or not same_operations(one.records, other.records):
        return
    with _batches_of_any_size(stepper, pair) as known:
        for size, recording in _recorded(stepper) if known else ():
            try:
                if not _is_another(stepper, pair, (one, other), size, recording):
                    continue
            except Exception:  # noqa: BLE001 - what fails only where it is looked at closer is not known to be another
                continue
            name = _most_unlike(other.records, recording.records)
            raise Untraceable(
                f"A step of {size} samples is another one in this model than a step of {pair[1]} ({name} shows it), as "
                "where its code asks for the size of a batch, or works on parts of it. A trace tells one step for all "
                "batch sizes, and would be wrong at some. Measure it instead (effort quick)."
            )


def _recorded(stepper: PrimedStepper) -> Iterator[tuple[int, Recording]]:
    """Steps of other sizes, where they run."""
    for sizes in OTHER_SIZES:
        for size in sizes:
            try:
                recording = stepper.record(size)
            except Exception:  # noqa: BLE001 - the sizes that are traced run, and that is all that was asked
                continue
            yield size, recording
            break


def _is_another(
    stepper: PrimedStepper, pair: Pair, recordings: tuple[Recording, Recording], size: int, recording: Recording
) -> bool:
    """Whether this step is none that the pair tells of. Where torch runs other kernels for the same calls, as it does
    for few samples here and there, it is."""
    products = [_told_and_run(pair, recordings, size, recording, lambda record: record.flops)]
    if same_operations(recordings[1].records, recording.records):
        return any(map(_is_off, products))
    counts = _told_and_run(pair, recordings, size, recording, lambda _: 1)
    writes = _told_and_run(pair, recordings, size, recording, lambda record: record.written_bytes)
    if not any(map(_is_off, (*products, counts, writes))):
        return False
    usual, now = _asked_for(stepper, pair[1]), _asked_for(stepper, size)
    # Fewer samples than parts that a batch is taken in are in fewer parts; more of them are not in more.
    if set(usual) == set(now) if size < pair[0] else usual == now:
        return False
    return not any(_changes_by_itself(stepper, *step) for step in ((pair[1], recordings[1]), (size, recording)))


def _changes_by_itself(stepper: PrimedStepper, size: int, recording: Recording) -> bool:
    """Whether a later step of this size is another one, as where each second step trains another part, or one of other
    chance is."""
    later = (stepper.record(size, chance=number) for number in range(1, REPEATS + 1))
    return any(not same_operations(each.records, recording.records) for each in later)


def _told_and_run(
    pair: Pair,
    recordings: tuple[Recording, Recording],
    size: int,
    recording: Recording,
    amount: Callable[[Record], int],
) -> tuple[float, float]:
    one, other, this = (sum(map(amount, each.records)) for each in (*recordings, recording))
    return affine(pair, (one, other)).at(size), this


def _is_off(told_and_run: tuple[float, float]) -> bool:
    told, run = told_and_run
    return abs(told - run) > OFF * max(told, run)


def _most_unlike(usual: Sequence[Record], now: Sequence[Record]) -> str:
    """The name of the operation that computes most, or runs most often, of those that run another number of times;
    where none does, of all."""
    before, after = (Counter(record.name for record in records) for records in (usual, now))
    flops: Counter[str] = Counter()
    for record in (*usual, *now):
        flops[record.name] += record.flops
    return max(before | after, key=lambda name: (before[name] != after[name], flops[name], after[name]))


class _Asked(TorchFunctionMode):
    """What code in Python asks torch for, and of which parameters; which kernels run for it is torch's affair."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[Any, ...]] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls[func, *(id(arg) for arg in args if isinstance(arg, nn.Parameter))] += 1
        return func(*args, **(kwargs or {}))


def _asked_for(stepper: PrimedStepper, size: int) -> Counter[tuple[Any, ...]]:
    """In a step of this size, which ran before. Some modules take another way where anybody looks: those of all sizes
    are to be seen alike."""
    with _Asked() as asked:
        stepper.record(size)
    return asked.calls


class _Unknown(Exception):
    """What a batch of another size would be, two of them do not say."""


@contextmanager
def _batches_of_any_size(stepper: PrimedStepper, pair: Pair) -> Iterator[bool]:
    """While inside, the stepper's batches are made after two of the user's, which may take long to make: of fake
    tensors, so that any size takes no memory. False: they say nothing of other sizes."""
    built, make = stepper.built, stepper.built.make_batch
    small, large = (make(size, None) for size in pair)
    try:
        _batch_of(pair[1], pair, small, large)
    except _Unknown:
        yield False
        return

    def make_alike(size: int, _generator: torch.Generator | None = None) -> Batch:
        return _batch_of(size, pair, small, large)

    built.make_batch = make_alike
    try:
        yield True
    finally:
        built.make_batch = make


def _batch_of(size: int, pair: Pair, small: Batch, large: Batch) -> Batch:
    """Raises _Unknown."""
    if _beside_tensors(small) != _beside_tensors(large):
        raise _Unknown
    of_small, done = iter(list(tensors_in(small))), dict[int, torch.Tensor]()  # labels may be the inputs themselves

    def made(tensor: torch.Tensor) -> torch.Tensor:
        like = next(of_small)
        if id(tensor) not in done:
            done[id(tensor)] = _grown(size, pair, like, tensor)
        return done[id(tensor)]

    return map_tensors(large, made)


def _beside_tensors(batch: Batch) -> list[Any]:
    """What else stands in it, and where tensors do. Raises _Unknown where it is more than words and numbers."""
    if isinstance(batch, torch.Tensor):
        return [torch.Tensor]
    if isinstance(batch, PackedSequence):
        raise _Unknown
    if parts := list(parts_of(batch)):
        return [each for part in parts for each in _beside_tensors(part)]
    if batch is None or isinstance(batch, int | float | str):
        return [batch]
    raise _Unknown


def _grown(size: int, pair: Pair, small: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
    """In the order of dimensions that it has in memory."""
    if small.dim() != large.dim():
        raise _Unknown
    shape = [_grown_size(size, pair, *sizes) for sizes in zip(small.shape, large.shape, strict=True)]
    strides, step = [0] * len(shape), 1
    for place in sorted(range(len(shape)), key=lambda place: (large.stride(place), -place)):
        strides[place], step = step, step * shape[place]
    return torch.empty_strided(shape, strides, dtype=large.dtype).requires_grad_(large.requires_grad)


def _grown_size(size: int, pair: Pair, small: int, large: int) -> int:
    if small == large:
        return large
    if small * pair[1] != large * pair[0] or large % pair[1]:
        raise _Unknown
    return large // pair[1] * size
