"""Traces steps under autocast in another process, while this one traces them as they are: both take seconds.

The model is made anew there, so this is for models that are data: a user's own code runs once. The process is kept, for
what torch and transformers have loaded and remembered by then.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.fresh_processes import EndedEarly, Fresh
from probes.microtrain.traces.fake_results import forgotten_afterwards
from probes.microtrain.traces.primed_stepper import PrimedStepper
from probes.microtrain.traces.traced_step import AutocastStep, Pair, trace_autocast
from probes.workload.description import Workload

Wait = Callable[[Pair], AutocastStep | None]


def not_beside(_: Pair) -> None:
    """It is to be traced here."""


@contextlib.contextmanager
def autocast_beside(workload: Workload, pair: Pair) -> Iterator[Wait]:
    """Begins at once, where this process was started with one that forks. What is given waits for the end; None where
    it was traced at other batch sizes than these, or not at all: it is to be traced here then."""
    process = None if workload.model.kind == "python" else _asked((workload.to_json(), pair))
    if process is None:
        yield not_beside
        return
    answered = False

    def wait(wanted: Pair) -> AutocastStep | None:
        nonlocal answered
        if wanted != pair:
            return None
        try:
            found: AutocastStep | None = process.receive()
        except EndedEarly:  # memory that two processes do not have may do for one
            return None
        answered = True
        return found

    try:
        yield wait
    finally:
        if not answered:  # it is at work still, or gone
            end()


_kept: Fresh | None = None


def _asked(question: object) -> Fresh | None:
    """The other process, which has begun; None where there is none to be had."""
    global _kept
    try:
        if _kept is None and fresh_processes.is_prepared():
            _kept = Fresh(_serve, (torch.get_num_threads(),))
        if _kept is not None:
            _kept.send(question)
    except EndedEarly:
        end()
    return _kept


def end() -> None:
    """Let go of the other process; the next trace starts another."""
    global _kept
    if _kept is not None:
        _kept.end()
        _kept = None


def _serve(serve: Callable[[Callable[[Any], object]], object], threads: int) -> None:
    """In the other process. threads: what kernels take inside depends on how many there are."""
    torch.set_num_threads(threads)
    gc.freeze()  # or all that torch and transformers hold is looked through again and again
    serve(_trace)


def _trace(asked: tuple[dict[str, Any], Pair]) -> AutocastStep | None:
    """None of a model that cannot be made: whoever asked finds out why by itself."""
    document, pair = asked
    workload, mode = Workload.from_json(document), FakeTensorMode()
    try:
        with forgotten_afterwards():
            built = build_fake(workload.model, mode)
            with mode:
                return trace_autocast(PrimedStepper(workload, built), pair)
    except Exception:  # noqa: BLE001
        return None
