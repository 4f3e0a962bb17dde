"""A process's heap under training steps at one batch size, simulated from what a step allocates in order
(probes.glibc_heap)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import cycle, islice
from typing import NamedTuple, TypeAlias

from probes.allocations import RESULT, Allocations, KernelAllocations
from probes.glibc_heap import Heap, chunk_bytes
from probes.trace import Affine

# What torch allocates beside a tensor's own bytes: its storage's record, its own, and its sizes; as seen by taking
# malloc's place under steps of a BERT (torch 2.13). They lie between tensors, and keep them apart.
RECORD_CHUNKS = tuple(chunk_bytes(size) for size in (96, 176, 24))
# What else a step asks for beside a tensor: arguments, autograd's nodes, Python's lists. Most is given back before the
# next tensor is made and does not matter. Of the rest one in ten lives long. Sizes, numbers and lives are those seen in
# 38 steps of the benchmark's models, roughly: what matters is that they are irregular (docs/decisions/0010).
SMALL_BYTES = (64, 104, 8, 16, 24, 32, 48, 512, 176, 96)
SMALL_WEIGHTS = (14, 10, 9, 8, 9, 4, 4, 4, 5, 2)
SMALL_EACH = 1.0  # tensor, on average
SHORT_LIFE, LONG_LIFE, LONG_SHARE = 2.0, 30.0, 0.1  # tensors made meanwhile, on average
DRAWN, APART = 10_007, 611  # drawn once for so many tensors; every seed begins elsewhere among them
# Where importing torch and transformers leaves glibc's threshold, and the room it leaves between other blocks (torch
# 2.13, by a replay of everything that a process allocated until then; 962,560 without transformers).
THRESHOLD_BYTES = 1_925_120
ROOM_BYTES = (1_155_664, 1_105_536, 110_240, 76_400, 33_136, 21_120)
BETWEEN_BYTES = 2000  # what keeps the rooms apart
# On a CPU torch.optim steps tensor by tensor; Adam and AdamW hold two temporaries of a parameter's size meanwhile
# (torch/optim/adam.py, _single_tensor_adam), RMSprop and Adagrad one.
TEMPORARIES = {"adam": 2, "adamw": 2, "rmsprop": 1, "adagrad": 1}


class Step(NamedTuple):
    """What a step does to the heap. inputs: so many of the allocations after the resident ones are the batch, which on
    a CPU lives from step to step. temporaries: of the optimizer, how many of each parameter's size, and of how many
    parameters. kernels: by place in the order, what those that begin there take inside."""

    allocations: Allocations
    temporaries: tuple[int, int]
    inputs: int = 0
    kernels: Mapping[int, Sequence[KernelAllocations]] = {}


class _Beside(NamedTuple):
    """What is allocated with a tensor. chunks: its records, then small blocks; lives: of those, in tensors made."""

    chunks: tuple[int, ...]
    lives: tuple[float, ...]


class _Kernel(NamedTuple):
    """KernelAllocations at one batch size. chunks: what each allocation takes of the heap."""

    sizes: list[int]
    chunks: list[int]
    order: tuple[int, ...]


_Tensor: TypeAlias = list[int]  # its blocks: its own, where it has bytes, and its records


@dataclass(slots=True)
class _Running:
    """A step on its way. place: in its order. made: so many tensors so far; live: those alive, by number."""

    place: int
    made: int
    live: dict[int, _Tensor]


class Simulation:
    """Steps at one batch size. alive_peak: the most bytes of tensors at once, with what kernels take inside. The small
    blocks beside tensors are drawn by chance, from `seed`: two processes differ by theirs as well."""

    def __init__(self, step: Step, batch_size: int, seed: int = 0) -> None:
        self.heap = Heap(THRESHOLD_BYTES)
        self.alive_peak = 0
        self._step = step
        self._sizes = _bytes_at(step.allocations.sizes, batch_size)
        self._chunks = [chunk_bytes(size) for size in self._sizes]
        self._kernels = _kernels_at(step.kernels, batch_size)
        self._alive = 0
        self._made = 0
        self._drawn = islice(cycle(_drawn()), seed * APART % DRAWN, None)
        self._small: list[tuple[float, int]] = []  # when it goes, in tensors made; its block
        _leave_room(self.heap)
        lasting = range(len(self._sizes))[: step.allocations.resident + step.inputs]
        self._resident = [self._allocate(place + 1) for place in lasting]

    @property
    def asked(self) -> int:
        """Bytes of all tensors that a step makes."""
        return sum(self._sizes[len(self._resident) :])

    @property
    def surplus(self) -> int:
        """Bytes held at the peak beyond the most that was alive."""
        return max(self.heap.held_peak - self.alive_peak, 0)

    def step(self) -> None:
        order = self._step.allocations.order
        running = _Running(self._step.inputs, len(self._resident), dict(enumerate(self._resident, start=1)))
        for place, kernels in self._kernels:
            if place >= running.place:  # else another kernel's results went beyond it
                self._go_on(running, place)
                for kernel in kernels:
                    self._run(kernel, running)
        self._go_on(running, len(order))
        live = running.live
        self._settle({made: tensor for made, tensor in live.items() if made > len(self._resident)}, live)
        while self._small:  # nothing of this outlives a step
            self.heap.free(heappop(self._small)[1])

    def _go_on(self, running: _Running, until: int) -> None:
        """The step's own allocations and frees, up to this place in its order."""
        order, sizes, live, made = self._step.allocations.order, self._sizes, running.live, running.made
        resident, inputs = self._step.allocations.resident, len(self._resident)
        for event in order[running.place : until]:
            if event == 0:
                made += 1
                live[made] = self._allocate(made)
            elif not resident < event <= inputs:  # the batch lives on
                self._free(live.pop(event), sizes[event - 1])
        running.place, running.made = max(running.place, until), made

    def _settle(self, new: dict[int, _Tensor], live: dict[int, _Tensor]) -> None:
        """What the step leaves of what lives from step to step, gradients above all, takes the place of what it freed;
        the optimizer steps; the rest goes."""
        by_size: dict[int, list[int]] = defaultdict(list)
        for made in reversed(new):
            by_size[self._sizes[made - 1]].append(made)
        for place, size in enumerate(self._sizes[: len(self._resident)]):
            if place + 1 not in live:
                alike = by_size[size]
                self._resident[place] = new.pop(alike.pop()) if alike else self._allocate(place + 1)
        each, parameters = self._step.temporaries
        resident = self._step.allocations.resident
        for number, size in enumerate(self._sizes[:resident:2][:parameters]):  # parameters come first
            held = [self._allocate(2 * number + 1) for _ in range(each)]
            for tensor in held:
                self._free(tensor, size)
        for made, tensor in new.items():
            self._free(tensor, self._sizes[made - 1])

    def _run(self, kernel: _Kernel, running: _Running) -> None:
        order = self._step.allocations.order
        blocks: list[int] = []
        for event in kernel.order:
            if event == RESULT:
                if running.place < len(order) and not order[running.place]:
                    self._go_on(running, running.place + 1)
            elif event:
                self._alive -= kernel.sizes[event - 1]
                self.heap.free(blocks[event - 1])
            else:
                self._take(kernel.sizes[len(blocks)])
                blocks.append(self.heap.allocate_aligned_chunk(kernel.chunks[len(blocks)]))

    def _allocate(self, number: int) -> _Tensor:
        """The tensor of this number, from 1 on, in the order in which a step makes them."""
        heap, small, size = self.heap, self._small, self._sizes[number - 1]
        self._made = made = self._made + 1
        while small and small[0][0] <= made:
            heap.free(heappop(small)[1])
        self._take(size)
        own = [heap.allocate_aligned_chunk(self._chunks[number - 1])] if size else []
        beside = next(self._drawn)
        blocks = heap.allocate_chunks(beside.chunks)
        for life in reversed(beside.lives):
            heappush(small, (made + life, blocks.pop()))
        return own + blocks

    def _take(self, size: int) -> None:
        self._alive += size
        if self._alive > self.alive_peak:
            self.alive_peak = self._alive

    def _free(self, tensor: _Tensor, size: int) -> None:
        self._alive -= size
        self.heap.free(*tensor)


def _bytes_at(sizes: Sequence[Affine], batch_size: int) -> list[int]:
    return [max(round(constant + per_sample * batch_size), 0) for constant, per_sample in sizes]


def _kernels_at(kernels: Mapping[int, Sequence[KernelAllocations]], batch_size: int) -> list[tuple[int, list[_Kernel]]]:
    """By their places, in order. Most are one of few objects."""
    known = {id(kernel): kernel for each in kernels.values() for kernel in each}
    found = {name: _kernel_at(kernel, batch_size) for name, kernel in known.items()}
    return [(place, [found[id(kernel)] for kernel in kernels[place]]) for place in sorted(kernels)]


def _kernel_at(kernel: KernelAllocations, batch_size: int) -> _Kernel:
    sizes = _bytes_at(kernel.sizes, batch_size)
    return _Kernel(sizes, [chunk_bytes(size) for size in sizes], kernel.order)


@cache
def _drawn() -> list[_Beside]:
    """One tensor after another."""
    chance = random.Random(0)
    found = []
    for _ in range(DRAWN):
        chunks, lives = list(RECORD_CHUNKS), []
        for _ in range(round(chance.expovariate(1 / SMALL_EACH))):
            lives.append(chance.expovariate(1 / (LONG_LIFE if chance.random() < LONG_SHARE else SHORT_LIFE)))
            chunks.append(chunk_bytes(chance.choices(SMALL_BYTES, SMALL_WEIGHTS)[0]))
        found.append(_Beside(tuple(chunks), tuple(lives)))
    return found


def _leave_room(heap: Heap) -> None:
    rooms = []
    for size in ROOM_BYTES:
        rooms.append(heap.allocate(size))
        heap.allocate(BETWEEN_BYTES)
    for room in rooms:
        heap.free(room)
