"""Steps a model, watched, as if it had been trained for a while: gradients and the optimizer's state are there."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.rnn import PackedSequence

from probes.allocations import Log, sorted_frees
from probes.issued import Issued
from probes.microtrain.building.built import Batch, BuiltModel
from probes.microtrain.chance import plain_chance_kept
from probes.microtrain.feeding import make_feed, parts_of
from probes.microtrain.feeding import tensors_in as tensors_in_batch
from probes.microtrain.kernel_memory.kernel_calls import Call
from probes.microtrain.step import Step, make_optimizer
from probes.microtrain.traces.asking import Guesses
from probes.microtrain.traces.issuing import IssueCounter
from probes.microtrain.traces.other_threads import in_one_thread
from probes.microtrain.traces.packed_weights import packed_weights
from probes.microtrain.traces.recording import Known, Record, Recorder, check_strided
from probes.microtrain.traces.repeats import Key
from probes.microtrain.traces.replayed_optimizer import ReplayedOptimizer, prime
from probes.microtrain.traces.sparse_states import sparse_states
from probes.trace import Phase
from probes.workload.description import Precision, Workload

StepKey = tuple[int, Precision]  # batch size and precision, in which steps are alike

# Of a step's peak. What is kept of less, as a loss for a report, is not worth a second recording.
LITTLE_KEPT = 0.01


@dataclass(frozen=True, slots=True)
class Recording:
    """One watched step. activation_bytes: alive as each operation ended, beyond what lives from step to step; calls:
    those whose kernels may take memory inside; log: what was allocated; inputs, places: of the log (LiveBytes); issued:
    what issued the operations."""

    records: list[Record]
    activation_bytes: list[int]
    input_bytes: int
    calls: list[Call | None]
    log: Log
    inputs: int
    places: dict[int, list[int]]
    issued: Issued | None

    @property
    def alive(self) -> list[int]:
        """activation_bytes of forward and backward; where these have no operations, those of the batch."""
        return [self.activation_bytes[place] for place in self.before_update] or [self.input_bytes]

    @property
    def alive_in_update(self) -> list[int]:
        """activation_bytes of the optimizer's step."""
        pairs = zip(self.records, self.activation_bytes, strict=True)
        return [alive for record, alive in pairs if record.phase == "optimizer"]

    @property
    def before_update(self) -> list[int]:
        """The places of forward's and backward's operations."""
        return [place for place, record in enumerate(self.records) if record.phase != "optimizer"]


class _Kept(NamedTuple):
    """A storage that a step made and left for later ones.

    idle_at: of later ones that left it where it is and did nothing with it, as with one of a cache by batch size: where
    a model takes such steps alone, it is never made."""

    storage: weakref.ref[torch.UntypedStorage]
    made_at: StepKey
    idle_at: set[StepKey]

    def among(self, key: StepKey) -> torch.UntypedStorage | None:
        """Where it lives, and counts in steps of this size and precision."""
        return None if key in self.idle_at else self.storage()


class Resident(NamedTuple):
    """A trace's figures of what lives from step to step."""

    parameters: int
    frozen_parameters: int
    parameter_tensors: int
    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    optimizer_bytes: int


class PrimedStepper:
    """Satisfies probes.microtrain.step.Built, so that it learns when the forward ends and the backward begins."""

    def __init__(self, workload: Workload, built: BuiltModel, guesses: Guesses | None = None) -> None:
        """guesses: of numbers that the model asks for; each step begins with the first."""
        self._guesses = guesses or Guesses()
        self.workload = workload
        self.built = built
        self.module = built.module
        self._phase: Phase = "forward"
        self._known: dict[Key, Known] = {}
        self._recorder = Recorder(self._known)
        self._step: Step | None = None
        self._gradients = 0  # that lived from the step before to the last one recorded
        # What else lives from step to step: tensors that are plain attributes, a loss's or a teacher's weights.
        self._beside: list[torch.UntypedStorage] = []
        # What steps made and something keeps for the next ones, until these put other values in its place or for good:
        # what hooks store of the layers' outputs, maps of attention, weights computed anew in each forward.
        self._keeps = False
        self._kept: list[_Kept] = []
        self.evenly_routed = False  # whether that was assumed in a step so far
        self.layers_dropped = 0.0  # the share that chance leaves out, and the last step ran

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        return self.built.forward(module, batch)

    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        loss = self.built.loss(output, batch)
        self._recorder.phase = "backward"
        return loss

    def record(
        self,
        batch_size: int,
        precision: Precision = "fp32",
        *,
        counts: bool = False,
        large: bool = False,
        chance: int = 0,
    ) -> Recording:
        """One step at this batch size. Chance is the same each time that its number is: what a real step drops at
        random, it drops. counts: what issues its operations, which takes a tenth longer. large: numbers that are
        guessed are.

        A parameter that gets no gradient loses the one that it was primed with in the first step, which is recorded
        again: no later step has it. So it is where that step met memory of which the module does not tell, and at each
        size and in each precision where a step begins with what the one before it kept, or is found beside what was
        kept for others."""
        first, attributes = self._step is None, _fake_attributes(self.module) if self._step is None else {}
        key = (batch_size, precision)
        recording = self._record(key, counts=counts, large=large, chance=chance)
        before, self._gradients = self._gradients, self._count_gradients()
        again = self._gradients < before
        if first:
            self._beside = [*self._that_stay(attributes), *self._recorder.strangers()]
            again |= bool(self._beside)
        again |= self._keeps_otherwise(recording, key, first=first)
        return self._record(key, counts=counts, large=large, chance=chance) if again else recording

    def _keeps_otherwise(self, recording: Recording, key: StepKey, *, first: bool) -> bool:
        """Whether something that was made in this step is kept after it, or what counted in it does nothing there; then
        that is remembered. Whether it is worth it at all the first step says."""
        enough = LITTLE_KEPT * max(recording.alive)
        if first:
            self._keeps = _bytes_of(self._left()) > enough
        if not self._keeps:
            return False
        gc.collect()  # else what only holds itself counts
        self._keeps = not first or _bytes_of(self._left()) > enough
        self._kept = [each for each in self._kept if each.storage() is not None]
        idle = [each for each in self._kept if self._is_idle(each, key)]
        for each in idle:
            each.idle_at.add(key)
        left = [_Kept(weakref.ref(storage), key, set()) for storage in self._left() if self._keeps]
        self._kept += left
        return bool(left or idle)

    def _is_idle(self, kept: _Kept, key: StepKey) -> bool:
        """Whether it came from another size or precision, counted in the last step, and no operation took it there. One
        that another took the place of is gone."""
        storage = kept.among(key)
        return storage is not None and kept.made_at != key and storage._cdata not in self._recorder.used

    def _left(self) -> list[torch.UntypedStorage]:
        """What the last step made and left, but for new gradients, weights and states."""
        left = self._recorder.live.left()
        owned = {_memory(each) for each in (*self._owned_tensors(), *self._state_tensors())} if left else set()
        return [storage for storage in left if storage._cdata not in owned]

    def _hold_kept(self, key: StepKey) -> None:
        for storage in self._kept_for(key):
            self._recorder.live.hold(storage)

    def _kept_for(self, key: StepKey) -> list[torch.UntypedStorage]:
        return [storage for each in self._kept if (storage := each.among(key)) is not None]

    def _that_stay(self, attributes: dict[int, FakeTensor]) -> list[torch.UntypedStorage]:
        """Of the module's fake attributes before a step those that it left where they were: not what it computes anew
        and keeps. One of each memory, and none that is a parameter's or a buffer's. Whether it takes fake ones nobody
        knows; those with numbers the recorder meets."""
        later = _fake_attributes(self.module)
        stayed = {_memory(each): each for number, each in attributes.items() if later.get(number) is each}
        listed = {_memory(each) for each in (*self.module.parameters(), *self.module.buffers())}
        return [each.untyped_storage() for memory, each in stayed.items() if memory not in listed]

    def _record(self, key: StepKey, *, counts: bool, large: bool, chance: int) -> Recording:
        self._guesses.begin(large=large)
        with _equal_chance(chance):
            return self._watch(*key, counts=counts)

    def _watch(self, batch_size: int, precision: Precision, *, counts: bool) -> Recording:
        batch, key = self.built.batch_for(self.workload.mode, batch_size), (batch_size, precision)
        weights = (*self.module.parameters(), *self.module.buffers())
        check_strided("This model's weights or batches have", (*weights, *tensors_in_batch(batch)))
        step = self._step or self._make_step(batch)
        step.use_precision(precision)
        counter = IssueCounter() if counts else None
        sparse = sparse_states(self.module, step.optimizer)
        kept = {storage._cdata for storage in self._kept_for(key)}
        self._step, self._recorder = step, Recorder(self._known, issuing=counter, sparse=sparse, kept=kept)
        inputs = _distinct(tensors_in_batch(batch))
        self._recorder.learn_inputs(inputs.values())
        live = self._recorder.live
        live.add(self._owned_tensors())
        for storage in self._beside:
            live.hold(storage)
        live.add(self._state_tensors())
        resident = live.now
        self._hold_kept(key)
        live.resides()
        live.add(inputs.values())
        live.begins()
        with in_one_thread(), self._recorder, counter.running() if counter is not None else nullcontext():
            step.compute(batch)
        self.evenly_routed |= self._recorder.evenly_routed
        self.layers_dropped = self._recorder.layers_dropped
        activations = [alive - resident for alive in self._recorder.live_bytes]
        live.logs = False
        log = live.log._replace(order=sorted_frees(live.log.order))
        return Recording(
            self._recorder.records,
            activations,
            _total(inputs.values()),
            self._recorder.calls,
            log,
            live.inputs,
            live.calls,
            counter.issued if counter is not None else None,
        )

    def _make_step(self, batch: Batch) -> Step:
        """As make_step does, but the module stays where it is: fake tensors cannot be moved."""
        training, device = self.workload.mode == "training", torch.device("cpu")
        self.module.train(training)
        optimizer = make_optimizer(self.workload.optimizer, self.module) if training else None
        if optimizer is not None:
            self._prime(optimizer)
            optimizer.step = ReplayedOptimizer(optimizer, lambda: self._recorder)  # type: ignore[method-assign, assignment]
        return Step(self, self.module, optimizer, make_feed([batch], device, "resident"), device)

    def _prime(self, optimizer: torch.optim.Optimizer) -> None:
        """A gradient for every parameter, and the optimizer's state. Parameters that get no gradient in a real step
        lose theirs there."""
        with Recorder(self._known):  # it answers the optimizer's questions for its step count, and repeats equal zeros
            for parameter in self.module.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
            prime(optimizer)
        self._gradients = self._count_gradients()

    def _count_gradients(self) -> int:
        return sum(parameter.grad is not None for parameter in self.module.parameters())

    def _owned_tensors(self) -> Iterator[torch.Tensor]:
        """The module's, which live from step to step: what is trained first, each with its gradient beside it."""
        frozen = []
        for parameter in self.module.parameters():
            if parameter.grad is None:
                frozen.append(parameter)
            else:
                yield from (parameter, parameter.grad)
        yield from frozen
        yield from self.module.buffers()

    def _state_tensors(self) -> Iterator[torch.Tensor]:
        """The optimizer's, of the parameters that a step trains."""
        optimizer = self._step.optimizer if self._step is not None else None
        for parameter, state in optimizer.state.items() if optimizer is not None else ():
            if parameter.grad is not None:
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    def resident_bytes(self) -> Resident:
        """What lives from step to step, after a step was recorded. Packed weights are not trained."""
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        frozen = [p for p in self.module.parameters() if not p.requires_grad]
        packed = packed_weights(self.module)
        return Resident(
            parameters=sum(p.numel() for p in parameters),
            frozen_parameters=sum(p.numel() for p in (*frozen, *packed)),
            parameter_tensors=self._gradients if self.workload.mode == "training" else len(parameters),
            parameter_bytes=_total((*self.module.parameters(), *packed)),
            buffer_bytes=_total(self.module.buffers()) + sum(storage.nbytes() for storage in self._beside),
            gradient_bytes=_total(p.grad for p in parameters if p.grad is not None),
            optimizer_bytes=_total(self._state_tensors()),
        )


@contextmanager
def _equal_chance(number: int) -> Iterator[None]:
    """Random numbers as in every step of this number: torch's, Python's, and numpy's where a model has imported it. The
    last two go on afterwards as if nothing had been drawn."""
    with plain_chance_kept():
        torch.manual_seed(number)
        random.seed(number)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(number)
        yield


def _fake_attributes(module: nn.Module) -> dict[int, FakeTensor]:
    """By identity, fake tensors with memory that a module, or one of its modules, has beside its parameters and
    buffers."""
    apart = ("_parameters", "_buffers", "_modules")
    values = (value for part in module.modules() for name, value in vars(part).items() if name not in apart)
    found = _distinct(_tensors_held(values))
    return {number: each for number, each in found.items() if isinstance(each, FakeTensor) and _has_memory(each)}


def _tensors_held(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those that stand in these values as in a batch, or in a network among them, as of a teacher in a list. Unlike a
    batch they may hold themselves, as trees with parents do, and share what they hold: each is looked through once."""
    waiting, seen = list(values), set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor | PackedSequence):
            yield from tensors_in_batch(value)
        elif id(value) not in seen and (parts := parts_of(vars(value) if isinstance(value, nn.Module) else value)):
            seen.add(id(value))
            waiting.extend(parts)


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_meta)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _distinct(tensors: Iterator[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Labels may be the inputs themselves."""
    return {id(tensor): tensor for tensor in tensors}


def _bytes_of(storages: Iterable[torch.UntypedStorage]) -> int:
    return sum(storage.nbytes() for storage in storages)


def _total(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
