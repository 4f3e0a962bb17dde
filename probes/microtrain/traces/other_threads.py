"""Whether a step works in threads of its own, whose operations a dispatch mode does not see: a mode is its thread's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
    that has operations of torch's run by a thread that it begins, or by a pool of threads, whoever began these. What
    other threads begin and run, as to make batches ahead, is theirs.

    Of a pool each piece of work is looked at, not its threads: they live on, and may be measured later."""
    start, submit, ours = threading.Thread.start, ThreadPoolExecutor.submit, {threading.current_thread()}
    submitting = threading.local()

    def start_noticing(thread: threading.Thread) -> None:
        if threading.current_thread() in ours:
            ours.add(thread)
            if not getattr(submitting, "now", False):
                thread.run = _noticing(thread.run)  # type: ignore[method-assign]
        start(thread)

    def submit_noticing(
        pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        if threading.current_thread() in ours:
            work = _noticing(work)
        submitting.now = True
        try:
            return submit(pool, work, *args, **kwargs)
        finally:
            submitting.now = False

    _worked.clear()
    with (
        mock.patch.object(threading.Thread, "start", start_noticing),
        mock.patch.object(ThreadPoolExecutor, "submit", submit_noticing),
    ):
        try:
            yield
        except Exception as error:
            if _worked.is_set():
                raise Untraceable(_WORKS_IN_THREADS) from error
            raise
    if _worked.is_set():
        raise Untraceable(_WORKS_IN_THREADS)


def _noticing(work: Callable[..., Any]) -> Callable[..., Any]:
    def noticing(*args: Any, **kwargs: Any) -> Any:
        with _Noticing():
            return work(*args, **kwargs)

    return noticing
