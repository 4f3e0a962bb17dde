"""What a process holds beyond its tensors, over the batch: freed memory that the C library's heap can neither give back
nor use, simulated from what a step allocates in order (probes.glibc_heap)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from probes.allocations import Allocations
from probes.glibc_heap import PAGE_BYTES, Heap
from probes.trace import Knot

# What torch allocates beside a tensor's own bytes: its storage's and its own record, and its sizes; as seen by taking
# malloc's place under steps of a BERT (torch 2.13). They lie between tensors, and keep them apart.
RECORD_BYTES = (176, 96, 24)
# The first steps scatter the heap; after them it grows little.
STEPS, SETTLED_STEPS = 3, 2
# Where importing torch and transformers leaves glibc's threshold (torch 2.13; 962,560 without transformers).
THRESHOLD_BYTES = 1_925_120
# On a CPU torch.optim steps tensor by tensor; Adam and AdamW hold two temporaries of a parameter's size meanwhile
# (torch/optim/adam.py, _single_tensor_adam), RMSprop and Adagrad one.
TEMPORARIES = {"adam": 2, "adamw": 2, "rmsprop": 1, "adagrad": 1}

LARGEST_SIZE = 2**16
LARGEST_BYTES = 2**38
# A step of more allocations is simulated at fewer sizes: it takes as long as a trace may.
MANY_ALLOCATIONS = 1000
# Above 32 MiB each tensor is mapped by itself and nothing is left: from where this share is left, no more is looked at.
NOTHING = 0.005
# Where this share of the tensors' bytes less is left at the next size, sizes between are looked at, so many times.
DROP, REFINEMENTS = 0.1, 3


class HeapCurves(NamedTuple):
    """Over the batch. surplus: bytes held at the peak beyond those alive. fresh: bytes that a later step finds fresh of
    the system, which zeroes them page by page."""

    surplus: tuple[Knot, ...] = ()
    fresh: tuple[Knot, ...] = ()


class _Tensor(NamedTuple):
    block: int | None  # None of a tensor without bytes
    records: list[int]


class Simulation:
    """Steps at one batch size. alive_peak: the most bytes of tensors at once."""

    def __init__(self, allocations: Allocations, temporaries: tuple[int, int], batch_size: int) -> None:
        """temporaries: of the optimizer, how many of each parameter's size, and of how many parameters."""
        self.heap = Heap(THRESHOLD_BYTES)
        self.alive_peak = 0
        self._allocations = allocations
        self._temporaries = temporaries
        self._sizes = [max(round(line.at(batch_size)), 0) for line in allocations.sizes]
        self._alive = 0
        self._resident = [self._allocate(size) for size in self._sizes[: allocations.resident]]

    @property
    def surplus(self) -> int:
        """Bytes held at the peak beyond the most that was alive."""
        return max(self.heap.held_peak - self.alive_peak, 0)

    def step(self) -> None:
        allocations, sizes, resident = self._allocations, self._sizes, len(self._resident)
        live = dict(enumerate(self._resident, start=1))
        number = resident
        for event in allocations.order:
            if event:
                self._free(live.pop(event), sizes[event - 1])
            else:
                number += 1
                live[number] = self._allocate(sizes[number - 1])
        self._settle({made: tensor for made, tensor in live.items() if made > resident}, live)

    def _settle(self, new: dict[int, _Tensor], live: dict[int, _Tensor]) -> None:
        """What the step leaves of what lives from step to step, gradients above all, takes the place of what it freed;
        the optimizer steps; the rest goes."""
        by_size: dict[int, list[int]] = defaultdict(list)
        for made in reversed(new):
            by_size[self._sizes[made - 1]].append(made)
        for place, size in enumerate(self._sizes[: len(self._resident)]):
            if place + 1 not in live:
                alike = by_size[size]
                self._resident[place] = new.pop(alike.pop()) if alike else self._allocate(size)
        each, parameters = self._temporaries
        for size in self._sizes[: self._allocations.resident : 2][:parameters]:  # parameters come first
            held = [self._allocate(size) for _ in range(each)]
            for tensor in held:
                self._free(tensor, size)
        for made, tensor in new.items():
            self._free(tensor, self._sizes[made - 1])

    def _allocate(self, size: int) -> _Tensor:
        self._alive += size
        self.alive_peak = max(self.alive_peak, self._alive)
        records = [self.heap.allocate(each) for each in RECORD_BYTES]
        return _Tensor(self.heap.allocate_aligned(size) if size else None, records)

    def _free(self, tensor: _Tensor, size: int) -> None:
        self._alive -= size
        for block in (tensor.block, *tensor.records):
            if block is not None:
                self.heap.free(block)


def heap_curves(allocations: Allocations | None, optimizer: str | None, parameter_tensors: int) -> HeapCurves:
    """Empty: what the step allocates is not known. optimizer: None of inference."""
    if allocations is None:
        return HeapCurves()
    temporaries = (TEMPORARIES.get(optimizer or "", 0), parameter_tensors)

    def at(batch_size: int) -> _Point:
        simulation = Simulation(allocations, temporaries, batch_size)
        for _ in range(STEPS):
            simulation.step()
        before = simulation.heap.fresh_pages
        for _ in range(SETTLED_STEPS):
            simulation.step()
        fresh = (simulation.heap.fresh_pages - before) * PAGE_BYTES // SETTLED_STEPS
        return _Point(batch_size, simulation.surplus, simulation.alive_peak, fresh)

    points = _curve(at, 4 if len(allocations.sizes) > MANY_ALLOCATIONS else 2)
    surplus = tuple(Knot(point.batch_size, point.surplus) for point in points)
    return HeapCurves(
        (*surplus, Knot(2 * points[-1].batch_size, points[-1].surplus)),  # no more beyond
        tuple(Knot(point.batch_size, point.fresh) for point in points),
    )


class _Point(NamedTuple):
    batch_size: int
    surplus: int
    alive: int
    fresh: int


def _curve(at: Callable[[int], _Point], factor: int) -> list[_Point]:
    points = [at(1)]
    was = False
    while points[-1].batch_size < LARGEST_SIZE:
        size = points[-1].batch_size * factor
        point = at(size)
        points += [*_between(at, points[-1], point, REFINEMENTS), point]
        little = point.surplus <= NOTHING * point.alive
        if point.alive > LARGEST_BYTES or (was and little):
            break
        was = was or not little
    return points


def _between(at: Callable[[int], _Point], low: _Point, high: _Point, depth: int) -> list[_Point]:
    """Points between two where much less is left at the larger."""
    size = (low.batch_size + high.batch_size) // 2
    if not depth or size == low.batch_size or low.surplus - high.surplus <= DROP * low.alive:
        return []
    middle = at(size)
    return [*_between(at, low, middle, depth - 1), middle, *_between(at, middle, high, depth - 1)]
