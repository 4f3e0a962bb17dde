"""Counts what issues operations, while a step runs: every call of a Python function, and who asked for an operation."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from probes.issued import Issued

# What torch and this project run to hand an operation to a dispatch mode, to know what is alive, and to ask fake
# tensors for their shape: a plain step runs next to none of it.
_TORCH = Path(torch.__file__).parent
WATCHING = tuple(
    str(path)
    for path in (
        _TORCH / "_library",
        _TORCH / "_dynamo",
        _TORCH / "_subclasses",
        _TORCH / "_compile.py",
        _TORCH / "_ops.py",
        _TORCH / "_higher_order_ops",
        _TORCH / "compiler",
        _TORCH / "utils" / "_python_dispatch.py",
        Path(__file__).parents[1],
        Path(__file__).parents[2] / "issued.py",
        contextlib.__file__,
        weakref.__file__,
    )
)
NO_BACKWARD = -1  # torch's number of the graph that runs, when none does


class IssueCounter:
    """Counts while `running`, but for what runs between `pause` and `resume`. `begins` is told of every operation,
    while paused."""

    def __init__(self) -> None:
        self._calls = self._nodes = self._nested = 0
        self._last: object = None  # what issued the last operation
        self._known: dict[CodeType, bool] = {}
        self._runs = False
        self._thread: int | None = None  # which it runs in

    @property
    def issued(self) -> Issued:
        return Issued(self._calls, self._nodes, self._nested)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Garbage is left until then: what finalizes others' objects would count as the step's."""
        before, collects = sys.getprofile(), gc.isenabled()
        gc.disable()
        self._thread = threading.get_ident()
        self.resume()
        try:
            yield
        finally:
            self._runs = False
            _set_again(before)
            if collects:
                gc.enable()

    def pause(self) -> bool:
        """False when it was not running, was paused before, or another thread asks: a device's backward has one of its
        own, in which no Python runs but what watches, and where nobody would take back what is set."""
        if not self._runs or threading.get_ident() != self._thread:
            return False
        sys.setprofile(None)
        self._runs = False
        return True

    def resume(self) -> None:
        self._runs = True
        sys.setprofile(self._note)

    def begins(self) -> None:
        """Somebody has asked for an operation: the same that asked for the last one, or another."""
        in_backward = torch._C._current_graph_task_id() != NO_BACKWARD
        by = _node() if in_backward else (self._calls, *self._place())
        if by == self._last:
            self._nested += 1
        elif in_backward:
            self._nodes += 1
        self._last = by

    def replay(self, others: Issued) -> None:
        """As if that had been issued here."""
        self._calls, self._nodes, self._nested = self.issued.plus(others)
        self._last = None

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call") and not self._watches(frame.f_code):
            self._calls += 1

    def _watches(self, code: CodeType) -> bool:
        known = self._known.get(code)
        if known is None:
            known = self._known[code] = code.co_filename.startswith(WATCHING)
        return known

    def _place(self) -> tuple[int, int]:
        """Where in Python code the operation was asked for: operators call no function."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and self._watches(frame.f_code):
            frame = frame.f_back
        return (id(frame), frame.f_lasti) if frame is not None else (0, 0)


def _set_again(profiler: Any) -> None:
    """What sys.getprofile told. cProfile's is no function, and sets itself."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
    else:
        profiler.enable()


def _node() -> tuple[object, ...]:
    """The node whose backward runs. Nothing of it is kept: it holds on to tensors."""
    node = torch._C._current_autograd_node()
    if node is None:
        return (None,)
    number = getattr(node, "_sequence_nr", None)
    return node.name(), id(node), None if number is None else number()
