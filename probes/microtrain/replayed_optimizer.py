"""An optimizer's step, run once and then replayed: its operations are those of the gradients, whatever the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from probes.issued import Issued
from probes.microtrain.recording import Record, Recorder


class Replay(NamedTuple):
    """What a step of the optimizer adds to a recording. live_bytes: beyond what was alive as it began. issued: None
    where nobody counted."""

    records: list[Record]
    live_bytes: list[int]
    issued: Issued | None


class ReplayedOptimizer:
    """Takes the place of `optimizer.step`."""

    def __init__(self, optimizer: torch.optim.Optimizer, recorder: Callable[[], Recorder]) -> None:
        """recorder: gives the one that is watching now."""
        self._groups = optimizer.param_groups
        self._run = optimizer.step
        self._recorder = recorder
        self._replays: dict[tuple[Any, ...], Replay] = {}

    def __call__(self) -> None:
        recorder, gradients = self._recorder(), self._gradients()
        recorder.phase = "optimizer"
        recorder.live.logs = False
        if gradients not in self._replays:
            self._replays[gradients] = self._record(recorder)
            return
        replay, base = self._replays[gradients], recorder.live.now
        recorder.records += replay.records
        recorder.live_bytes += [base + alive for alive in replay.live_bytes]
        recorder.calls += [None] * len(replay.records)  # its operations take nothing inside
        if recorder.issuing is not None and replay.issued is not None:
            recorder.issuing.replay(replay.issued)

    def _record(self, recorder: Recorder) -> Replay:
        begin, base, counter = len(recorder.records), recorder.live.now, recorder.issuing
        before = None if counter is None else counter.issued
        self._run()
        issued = None if counter is None or before is None else counter.issued.minus(before)
        return Replay(recorder.records[begin:], [alive - base for alive in recorder.live_bytes[begin:]], issued)

    def _gradients(self) -> tuple[Any, ...]:
        """What decides which operations run: which parameters have a gradient, of which type and layout."""
        gradients = (parameter.grad for group in self._groups for parameter in group["params"])
        return tuple(None if grad is None else (grad.dtype, grad.stride()) for grad in gradients)
