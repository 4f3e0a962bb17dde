"""An optimizer's step, run once for one parameter of each kind and replayed for all: whatever the batch, its operations
are those of the parameters, and on a CPU torch.optim steps one after the other (the `foreach` default)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeAlias

import torch

from probes.issued import Issued
from probes.microtrain.traces.recording import Record, Recorder

Kind: TypeAlias = tuple[Any, ...]  # what decides which operations step a parameter
Run: TypeAlias = Callable[[], object]


class Replay(NamedTuple):
    """What one parameter's step adds to a recording. live_bytes: beyond what was alive as it began. left_bytes: alive
    as it ends, in variables of the loop over parameters; shares: of what the one before it left, with each operation.
    issued: of its two steps, one after the other; None where nobody counted."""

    records: list[Record]
    live_bytes: list[int]
    left_bytes: int
    shares: list[float]
    issued: Issued | None


class ReplayedOptimizer:
    """Takes the place of `optimizer.step`."""

    def __init__(self, optimizer: torch.optim.Optimizer, recorder: Callable[[], Recorder]) -> None:
        """recorder: gives the one that is watching now."""
        self._optimizer = optimizer
        self._run = optimizer.step
        self._recorder = recorder
        self._replays: dict[Kind, Replay] = {}
        self._beside: Issued | None = None

    def __call__(self) -> None:
        recorder, counter = self._recorder(), self._recorder().issuing
        recorder.phase = "optimizer"
        recorder.live.logs = False
        counted = counter is not None and counter.pause()  # what follows is no part of a step
        try:
            self._replay(recorder)
        finally:
            if counter is not None and counted:
                counter.resume()

    def _replay(self, recorder: Recorder) -> None:
        stepped = [parameter for parameter in _parameters(self._optimizer) if parameter.grad is not None]
        replays, left = [self._replay_of(parameter) for parameter in stepped], 0
        for records, live_bytes, leaves, shares, _ in replays:
            alive = recorder.live.now
            recorder.records += records
            recorder.live_bytes += [
                alive + own + round(left * share) for own, share in zip(live_bytes, shares, strict=True)
            ]
            recorder.calls += [None] * len(records)  # its operations take nothing inside
            left = leaves
        if recorder.issuing is not None and stepped:
            recorder.issuing.replay(self._issued(stepped[0], replays))

    def _replay_of(self, parameter: torch.Tensor) -> Replay:
        """Stepped twice, to see what it leaves for the next one."""
        kind = self._kind_of(parameter)
        found, recorder = self._replays.get(kind), self._recorder()
        if found is None or (found.issued is None and recorder.issuing is not None):
            records, live_bytes, issued = self._record(recorder, [parameter, parameter])
            half = len(records) // 2
            first, second = live_bytes[:half], live_bytes[half:]
            added = [late - early for early, late in zip(first, second, strict=True)]
            left = max(added, default=0)
            shares = [each / left if left else 0.0 for each in added]
            found = self._replays[kind] = Replay(records[:half], first, left, shares, issued)
        return found

    def _issued(self, first: torch.Tensor, replays: Sequence[Replay]) -> Issued:
        """Of one step of all: what it has beside its parameters counts once. Two steps of a parameter, each by itself,
        have it twice, and one after the other once."""
        if self._beside is None:
            _, _, once = self._record(self._recorder(), [first])
            twice = self._replay_of(first).issued
            assert once is not None
            assert twice is not None
            self._beside = once.plus(once).minus(twice)
        of_two = [replay.issued.minus(self._beside) for replay in replays if replay.issued is not None]
        return self._beside.plus(Issued(*(sum(counts) // 2 for counts in zip(*of_two, strict=True))))

    def _record(
        self, recorder: Recorder, parameters: Sequence[torch.Tensor]
    ) -> tuple[list[Record], list[int], Issued | None]:
        """Records, bytes alive with each and what issued them, of a step of these parameters alone. Nothing of it stays
        in the recording."""
        begin, base, counter = len(recorder.records), recorder.live.now, recorder.issuing
        before = None if counter is None else counter.issued
        with counter.running() if counter is not None else nullcontext():
            _step_alone(self._optimizer, self._run, parameters)
        issued = None if counter is None or before is None else counter.issued.minus(before)
        found = recorder.records[begin:], [alive - base for alive in recorder.live_bytes[begin:]], issued
        del recorder.records[begin:], recorder.live_bytes[begin:], recorder.calls[begin:]
        if counter is not None and issued is not None:
            counter.replay(Issued().minus(issued))
        return found

    def _kind_of(self, parameter: torch.Tensor) -> Kind:
        grad, states = parameter.grad, self._optimizer.state[parameter].values()
        assert grad is not None
        zeros = any(id(state) in self._recorder().sparse for state in states)
        return (*_layout(parameter), grad.dtype, grad.stride(), zeros)


def prime(optimizer: torch.optim.Optimizer) -> None:
    """State for every parameter, all of which have gradients: as a step makes it for one of each kind."""
    states: dict[Kind, dict[str, Any]] = {}
    for parameter in _parameters(optimizer):
        known = states.get(_layout(parameter))
        if known is None:
            _step_alone(optimizer, optimizer.step, [parameter])
            states[_layout(parameter)] = optimizer.state[parameter]
        else:
            optimizer.state[parameter] = {
                name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value
                for name, value in known.items()
            }


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _layout(parameter: torch.Tensor) -> Kind:
    return parameter.shape, parameter.stride(), parameter.dtype


def _step_alone(optimizer: torch.optim.Optimizer, step: Run, parameters: Sequence[torch.Tensor]) -> None:
    """As if it had these parameters alone."""
    groups = [(group, group["params"]) for group in optimizer.param_groups]
    try:
        for group, members in groups:
            own = {id(member) for member in members}
            group["params"] = [parameter for parameter in parameters if id(parameter) in own]
        step()
    finally:
        for group, members in groups:
            group["params"] = members
