"""A workload laid out for measuring: weights once a device, batches once a batch size, shared by all plans."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import torch
from torch import nn

from probes.measurement import MemoryPeak
from probes.microtrain.building.huggingface_models import import_transformers
from probes.microtrain.building.module_copies import copied
from probes.microtrain.failures import is_out_of_memory
from probes.microtrain.feeding import Batch, Feed, ResidentFeed, batch_bytes, has_any, make_feed, to_device
from probes.microtrain.measuring.altered_batches import Alterations, CopyingFeed, NoticingFeed, Places, bytes_beside
from probes.microtrain.measuring.denormals import measure_denormal_share
from probes.microtrain.measuring.device_cache import empty_device_cache
from probes.microtrain.models import BuiltModel, build_model
from probes.microtrain.processes.footprint import PeakWatch, read_resident_bytes
from probes.microtrain.step import Step, applied, make_optimizer
from probes.workload.description import OptimizerName, Plan, Workload

SEED = 0
RING_BYTES = 64 * 1024 * 1024  # of different batches, for one batch size
MIN_RING, MAX_RING = 2, 8  # repeating one batch trains into denormals, which are slow
# Values that a first step makes of each parameter, one after another (torch.optim); those of the others are one, or are
# there before.
STATES_MADE: dict[OptimizerName, int] = {"adam": 3, "adamw": 3, "rmsprop": 2}
_CPU = torch.device("cpu")


@dataclass
class Replica:
    """The model on one device, and the optimizer that all plans on it share: weights and state are fp32 in all.

    called: the module as steps call it; a compiled one compiles at its first call."""

    module: nn.Module
    called: Any
    optimizer: torch.optim.Optimizer | None
    startup_seconds: float  # until the weights were there: a device's context, and their copy


@dataclass
class Workbench:
    """Everything is built when it is first needed, so that what fails is the plan that needed it.

    changes: a plan's, shared by all plans on the bench as they share the model. first_calls: seconds that compiling
    took, by plan and batch size. layout_seconds: that the model and its ways to devices took, as they would again:
    without what a process does once, its imports and the devices' contexts. altered: what steps alter in their batches,
    as far as is known; None: nothing. runs: whose steps are fed from here; they are made anew where batches are let go
    of."""

    workload: Workload
    devices: frozenset[str]
    changes: tuple[str, ...] = ()
    first_calls: dict[tuple[object, ...], float] = field(default_factory=dict)
    base_bytes: int | None = field(default_factory=read_resident_bytes)
    layout_seconds: float = 0.0
    altered: Places | None = None
    runs: WeakSet[StepRun] = field(default_factory=WeakSet)
    _built: BuiltModel | None = None
    _replicas: dict[str, Replica] = field(default_factory=dict)
    _rings: dict[int, list[Batch]] = field(default_factory=dict)
    _alone: set[int] = field(default_factory=set)  # batch sizes whose steps ran out of memory beside other batches
    # Shared by all plans of a device and batch size, and gone with the last of them.
    _feeds: WeakValueDictionary[tuple[str, int], Feed] = field(default_factory=WeakValueDictionary)

    def build(self) -> BuiltModel:
        """The model on the CPU, with the same weights every time. Raises InvalidModel."""
        if self._built is None:
            make_optimizer("sgd", nn.Linear(1, 1))  # torch imports its compiler with the first one: seconds, once
            if self.workload.model.kind == "huggingface":
                import_transformers()
            begun = time.perf_counter()
            torch.manual_seed(SEED)
            self._built = build_model(self.workload.model)
            self._built.module.train(self.workload.mode == "training")
            if "channels_last" in self.changes:  # convolutions hand it on from their weights to all that follows
                self._built.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.layout_seconds += time.perf_counter() - begun
        return self._built

    def replica(self, device: str) -> Replica:
        """Raises UnsupportedWorkload when there is nothing to train."""
        if device not in self._replicas:
            built = self.build()
            alone = self.devices == {device}
            begun = time.perf_counter()
            synchronize(torch.device(device))  # begins its context
            started = time.perf_counter()
            module = built.module if device == "cpu" or alone else copied(built.module)
            module = module.to(torch.device(device))
            synchronize(torch.device(device))
            now = time.perf_counter()
            self.layout_seconds += now - started
            seconds = 0.0 if device == "cpu" else now - begun
            training = self.workload.mode == "training"
            optimizer = make_optimizer(self.workload.optimizer, module) if training else None
            called = torch.compile(module) if "compiled" in self.changes else module
            self._replicas[device] = Replica(module, called, optimizer, seconds)
        return self._replicas[device]

    def has_replica(self, device: str) -> bool:
        """Whether the weights are there: it has worked."""
        return device in self._replicas

    def ring(self, batch_size: int) -> list[Batch]:
        """Different batches of one size, on the CPU; one of a size that is held alone."""
        if batch_size not in self._rings:
            if batch_size in self._alone or not self._alone.isdisjoint(self._rings):
                self._let_go_of_batches()
            self._rings[batch_size] = self._make_ring(batch_size)
        return self._rings[batch_size]

    def may_hold_less(self, batch_size: int) -> bool:
        """Whether there may be batches here, beside the one in use, where steps of this size run out of memory."""
        return self._built is not None and batch_size not in self._alone

    def hold_alone(self, batch_size: int) -> None:
        """From now on one batch of this size, and none of another meanwhile, as a training loop holds them. What lies
        here is let go of, and made anew for the next step of its size.

        Such a step repeats its batch, but it takes nearly all the memory there is: that is long, so that few steps
        follow each other, and leaves nothing of the batch in a cache."""
        self._alone.add(batch_size)
        self._let_go_of_batches()

    def forget_half_made_states(self) -> None:
        """Where memory ran out while an optimizer made what it keeps of a parameter, it would miss the rest in the next
        step, whichever plan's that is."""
        whole = STATES_MADE.get(self.workload.optimizer, 0)
        optimizers = [replica.optimizer for replica in self._replicas.values() if replica.optimizer is not None]
        for optimizer in optimizers:
            if any(len(state) < whole for state in optimizer.state.values()):
                optimizer.state.clear()

    def _let_go_of_batches(self) -> None:
        for run in self.runs:
            run.step = None
        self._rings.clear()
        self._feeds.clear()
        gc.collect()
        empty_device_cache()

    def _make_ring(self, batch_size: int) -> list[Batch]:
        generator = torch.Generator().manual_seed(SEED)
        first = self._make_batch(batch_size, generator)
        if batch_size in self._alone:
            return [first]
        count = min(MAX_RING, max(MIN_RING, RING_BYTES // max(1, batch_bytes(first))))
        return [first, *(self._make_batch(batch_size, generator) for _ in range(count - 1))]

    def _make_batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        made = self.build().batch_for(self.workload.mode, batch_size, generator)
        return to_device(made, _CPU)  # a user's function makes them anywhere

    def note_alterations(self, batch_size: int, found: Alterations) -> None:
        """What steps did alter is made anew, one batch at a time, and feeds hand out copies from now on."""
        if found.places is None or (self.altered is not None and found.places <= self.altered):
            return
        self.altered = found.places | (self.altered or frozenset())
        ring, spoilt = self.ring(batch_size), {id(tensor) for tensor in found.tensors}
        for place, batch in enumerate(ring):
            if has_any(batch, spoilt):
                ring[place] = self._make_batch(batch_size, torch.Generator().manual_seed(SEED + 1 + place))
        for (_, size), feed in list(self._feeds.items()):
            if size == batch_size and isinstance(feed, ResidentFeed):
                feed.put_anew(spoilt, ring)

    def make_step(self, plan: Plan, batch_size: int) -> Step:
        """A step that shares weights, optimizer and batches with the others."""
        device = torch.device(plan.device)
        replica = self.replica(plan.device)
        feed = self.feed(plan.device, batch_size)
        step = Step(
            self.build(), replica.called, replica.optimizer, feed, device, plan.precision, self.workload.log_every
        )
        step.altered = self.altered  # as it is known by now: a step made anew is not watched again
        return step

    def spare_bytes(self, batch_size: int) -> int:
        """Bytes of batches on the CPU that a training loop would not hold: all but the one in use."""
        held = sum(batch_bytes(batch) for ring in self._rings.values() for batch in ring)
        ring = self._rings.get(batch_size)
        return held - bytes_beside(ring[0], self.altered) if ring else held

    def spare_device_bytes(self, device: str, batch_size: int) -> int:
        """The same on a device: resident data lies in as many batches, and those of other batch sizes beside them."""
        held = sum(feed.held_bytes for (where, _), feed in self._feeds.items() if where == device)
        own = self._feeds.get((device, batch_size))
        if own is None:
            return held
        return held - min(own.held_bytes, bytes_beside(self.ring(batch_size)[0], self._copied_on(device)))

    def feed(self, device: str, batch_size: int) -> Feed:
        """Of all plans there at this batch size."""
        feed = self._feeds.get((device, batch_size))
        if feed is None:
            feed = make_feed(self.ring(batch_size), torch.device(device), self.workload.data)
            self._feeds[(device, batch_size)] = feed
        copied = self._copied_on(device)
        return feed if copied is None else CopyingFeed(feed, copied)

    def _copied_on(self, device: str) -> Places | None:
        """For each step; what is copied to its device in each step is that step's own."""
        return self.altered if device == "cpu" or self.workload.data == "resident" else None


class StepRun:
    """One plan at one batch size, as a contest wants it."""

    def __init__(self, bench: Workbench, plan: Plan, batch_size: int) -> None:
        self.plan = plan
        self.batch_size = batch_size
        self.step: Step | None = None
        self._bench = bench
        bench.runs.add(self)
        self._watch = PeakWatch(torch.device(plan.device), bench.base_bytes)
        self._executions = 0
        self._held_state = False  # while a step was watched
        self._watches = self._notices = False  # what runs now

    def __call__(self, executions: int) -> float:
        """Seconds that they took, without preparing them. Where memory runs out they run once more, without batches
        that only the measuring holds."""
        try:
            return self._run(executions)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._bench.forget_half_made_states()
            if not self._bench.may_hold_less(self.batch_size):
                raise
        self._bench.hold_alone(self.batch_size)  # not while that error is handled: its frames hold on to tensors
        return self(executions)

    def _run(self, executions: int) -> float:
        step = self.prepared()
        with self._noticed(step), self._watched(step, executions):
            begun = time.perf_counter()
            for _ in range(executions):
                step()
            synchronize(step.device)
            seconds = time.perf_counter() - begun
        self._executions += executions
        return seconds

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Of what runs inside, peaks of memory are taken, and it is noticed what steps alter in their batches;
        preparing is not part of it."""
        self._watches = True
        try:
            with self.noticing():
                yield
        finally:
            self._watches = False

    @contextlib.contextmanager
    def noticing(self) -> Iterator[None]:
        """Steps after those that run inside are given copies, where one of them altered its batch."""
        self._notices = True
        try:
            yield
        finally:
            self._notices = False

    @contextlib.contextmanager
    def _watched(self, step: Step, executions: int) -> Iterator[None]:
        if not self._watches:
            yield
            return
        bench, size, held = self._bench, self.batch_size, step.holds_state
        with self._watch.watching(bench.spare_bytes(size), bench.spare_device_bytes(self.plan.device, size)):
            yield
        made = step.holds_state and executions > 1  # by the first of several
        self._held_state = self._held_state or held or made

    @contextlib.contextmanager
    def _noticed(self, step: Step) -> Iterator[None]:
        if not self._notices:
            yield
            return
        bench, key = self._bench, (self.plan.device, self.batch_size)
        noticing = NoticingFeed(bench.feed(*key))  # another plan's steps may have shown it meanwhile
        step.feed = noticing
        try:
            yield
        finally:
            step.feed = noticing.feed
        bench.note_alterations(self.batch_size, noticing.alterations())
        step.feed, step.altered = bench.feed(*key), bench.altered

    @property
    def has_run(self) -> bool:
        return self._executions > 0

    def setting(self) -> contextlib.AbstractContextManager[None]:
        return applied(self.plan)

    def compile(self) -> None:
        """The first call of a compiled model, where this bench has not had it; timed, for it takes many seconds."""
        calls, key = self._bench.first_calls, (*self.plan.key, self.batch_size)
        if key not in calls:
            begun = time.perf_counter()
            with applied(self.plan), self.noticing():
                self(1)
            calls[key] = time.perf_counter() - begun

    @property
    def compile_seconds(self) -> float | None:
        return self._bench.first_calls.get((*self.plan.key, self.batch_size))

    @property
    def startup_seconds(self) -> float:
        """Of its device, and of the weights' way there."""
        return self._bench.replica(self.plan.device).startup_seconds

    def memory(self) -> MemoryPeak:
        """The peaks over what was watched; none where the optimizer held nothing yet, as later steps take more."""
        peak = self._watch.peak()
        return peak if self._held_state else MemoryPeak(process_base_bytes=peak.process_base_bytes)

    @property
    def pid(self) -> int:
        """Of the process that it runs in."""
        return os.getpid()

    def denormal_share(self) -> float:
        """Of the results of one real step (probes.microtrain.measuring.denormals)."""
        with applied(self.plan):
            return measure_denormal_share(self.prepared())

    def drop(self) -> None:
        """Let go of everything that only this plan needed."""
        self.step = None
        gc.collect()
        empty_device_cache()

    def prepared(self) -> Step:
        """The step, made when it is first needed."""
        if self.step is None:
            self.step = self._bench.make_step(self.plan, self.batch_size)
        return self.step


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given; a CPU has always done so."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
