"""What a process holds beyond its tensors, over the batch: freed memory that the C library's heap can neither give back
nor use; and what each step finds fresh of the system. Read off simulated steps (probes.heap_steps)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from probes.glibc_heap import PAGE_BYTES
from probes.heap_steps import Simulation, Step
from probes.trace import Knot

# The first steps scatter the heap; after them what a step finds fresh varies around a mean.
STEPS, SETTLED_STEPS = 3, 4
# A step that asks for less than this takes a few milliseconds at most, and hundreds of them soon ran: by then most of
# such heaps have found a place for everything (docs/decisions/0010).
LITTLE_BYTES = 8 * 2**20
STEPS_OF_LITTLE = 20  # and as many settled ones; fewer where these make more tensors than so many together
TENSORS_OF_LITTLE = 20_000
# Processes differ by what they find fresh, images' networks by all of it (docs/decisions/0014): several heaps where
# steps of few allocations leave the time, which so many allocations at a size take.
ALLOCATIONS, MOST_HEAPS = 2000, 6
OTHERS_APART = 7919  # of their seeds, so that no other size has the same
LARGEST_SIZE = 2**16
LARGEST_BYTES = 2**38
# A step of more allocations is simulated at fewer sizes: it takes as long as a trace may. One of very many, a loop over
# tokens in Python, at a few sizes for few steps, in which chance has had as many turns.
MANY_ALLOCATIONS, VERY_MANY_ALLOCATIONS = 1000, 5000
FEW_STEPS = 2
# Above 32 MiB each tensor is mapped by itself and nothing is left: from where this share is left, no more is looked at.
NOTHING = 0.005
# Where this share of the tensors' bytes less is left at the next size, sizes between are looked at, so many times.
DROP, REFINEMENTS = 0.1, 3


class HeapCurves(NamedTuple):
    """Over the batch. surplus: bytes held at the peak beyond those alive. fresh: bytes that a later step finds fresh of
    the system, which zeroes them page by page."""

    surplus: tuple[Knot, ...] = ()
    fresh: tuple[Knot, ...] = ()


class _Point(NamedTuple):
    """asked: bytes that a step allocates, all together. fresh: None where only the surplus was looked at."""

    batch_size: int
    surplus: int
    alive: int
    asked: int
    fresh: float | None


def heap_curves(step: Step | None) -> HeapCurves:
    """None: what the step allocates is not known, and the curves are empty."""
    if step is None:
        return HeapCurves()
    points = _curve(step)
    surplus = tuple(Knot(point.batch_size, point.surplus) for point in points)
    return HeapCurves(
        (*surplus, Knot(2 * points[-1].batch_size, points[-1].surplus)),  # no more beyond
        _smoothed([point for point in points if point.fresh is not None]),
    )


def _simulate(step: Step, batch_size: int) -> _Point:
    simulation = Simulation(step, batch_size, seed=batch_size)
    tensors = len(step.allocations.sizes)
    steps, settled = _steps(tensors, is_little=simulation.asked <= LITTLE_BYTES)
    _run(simulation, steps)
    fresh = [_run(simulation, settled)]
    for seed in range(1, min(ALLOCATIONS // (tensors * (steps + settled) + 1), MOST_HEAPS)):
        another = Simulation(step, batch_size, seed=batch_size + seed * OTHERS_APART)
        _run(another, steps)
        fresh.append(_run(another, settled))
    return _Point(batch_size, simulation.surplus, simulation.alive_peak, simulation.asked, fmean(fresh) / settled)


def _steps(tensors: int, *, is_little: bool) -> tuple[int, int]:
    """How many scatter the heap, and how many are looked at then."""
    if tensors > VERY_MANY_ALLOCATIONS:
        return FEW_STEPS, FEW_STEPS
    if not is_little:
        return STEPS, SETTLED_STEPS
    more = min(TENSORS_OF_LITTLE // max(tensors, 1), STEPS_OF_LITTLE)
    return max(more, STEPS), max(more, SETTLED_STEPS)


def _simulate_surplus(step: Step, batch_size: int) -> _Point:
    simulation = Simulation(step, batch_size, seed=batch_size)
    _run(simulation, STEPS)
    return _Point(batch_size, simulation.surplus, simulation.alive_peak, simulation.asked, None)


def _run(simulation: Simulation, steps: int) -> int:
    """Bytes that these steps found fresh."""
    before = simulation.heap.fresh_pages
    for _ in range(steps):
        simulation.step()
    return (simulation.heap.fresh_pages - before) * PAGE_BYTES


def _smoothed(points: Sequence[_Point]) -> tuple[Knot, ...]:
    """Each with a quarter of both neighbours, as shares of what a step asks for: one simulation is one of many ways in
    which it may go."""
    shares = [(point.fresh or 0.0) / max(point.asked, 1) for point in points]
    around = [shares[0], *shares, shares[-1]]
    means = [(low + 2 * mine + high) / 4 for low, mine, high in zip(around[:-2], shares, around[2:], strict=True)]
    return tuple(Knot(point.batch_size, round(mean * point.asked)) for point, mean in zip(points, means, strict=True))


def _curve(step: Step) -> list[_Point]:
    tensors = len(step.allocations.sizes)
    very_many = tensors > VERY_MANY_ALLOCATIONS
    factor = 16 if very_many else 4 if tensors > MANY_ALLOCATIONS else 2
    points = [_simulate(step, 1)]
    was = False
    while points[-1].batch_size < LARGEST_SIZE:
        point = _simulate(step, points[-1].batch_size * factor)
        points += [*_between(step, points[-1], point, 0 if very_many else REFINEMENTS), point]
        little = point.surplus <= NOTHING * point.alive
        if point.alive > LARGEST_BYTES or (was and little):
            break
        was = was or not little
    return points


def _between(step: Step, low: _Point, high: _Point, depth: int) -> list[_Point]:
    """Points between two where much less is left at the larger."""
    size = (low.batch_size + high.batch_size) // 2
    if not depth or size == low.batch_size or low.surplus - high.surplus <= DROP * low.alive:
        return []
    middle = _simulate_surplus(step, size)
    return [*_between(step, low, middle, depth - 1), middle, *_between(step, middle, high, depth - 1)]
