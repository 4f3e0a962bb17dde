"""Whether a step works in threads of its own, whose operations a dispatch mode does not see: a mode is its thread's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from probes.microtrain.failures import Untraceable
from probes.microtrain.traces.operation_kinds import kind_of
from probes.microtrain.traces.recording import SILENT

_WORKS_IN_THREADS = (
    "This model works in threads of its own, and a trace follows the one alone that calls it. Measure it instead "
    "(effort quick)."
)
# By a thread that began in a step, this one or, as those of pools that are kept, an earlier one.
_worked = threading.Event()


class _Noticing(TorchDispatchMode):
    """Of another thread. Looking at a tensor is no work: who reads a loss to write it down may do so anywhere."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace not in SILENT and kind_of(func) != "view":
            _worked.set()
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """For a process that traces one model at a time. Raises Untraceable, whatever else came of what runs inside, where
    that begins a thread, or had begun one before, which runs operations of torch's. Threads that others began, as to
    make batches ahead, may do what they like."""
    start, ours = threading.Thread.start, {threading.current_thread()}

    def start_noticing(thread: threading.Thread) -> None:
        if threading.current_thread() in ours:
            ours.add(thread)
            thread.run = _noticing(thread.run)  # type: ignore[method-assign]
        start(thread)

    _worked.clear()
    with mock.patch.object(threading.Thread, "start", start_noticing):
        try:
            yield
        except Exception as error:
            if _worked.is_set():
                raise Untraceable(_WORKS_IN_THREADS) from error
            raise
    if _worked.is_set():
        raise Untraceable(_WORKS_IN_THREADS)


def _noticing(run: Any) -> Any:
    def noticing() -> None:
        with _Noticing():
            run()

    return noticing
