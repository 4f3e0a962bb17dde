"""Runs functions in processes that have imported torch and computed nothing yet, forks of one that is kept for it.

What a step takes depends on the heap of its process: whether memory comes from what was freed before or page by page
from the system, which glibc decides by the largest block that was ever freed. A process that measured other things
before has another heap than the one in which a user trains.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import select
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

WARM = "probes.microtrain.processes.fresh_start"
WARM_FOR_CONFIGS = "probes.microtrain.processes.fresh_transformers"
LOOK_SECONDS = 0.2
END_SECONDS = 2.0


class EndedEarly(Exception):
    """The process ended before it had an answer: it crashed, or was killed, as for want of memory."""


_prepared = False


def is_prepared() -> bool:
    """The process that forks was started, and not ended since."""
    return _prepared


def prepare(*, for_configs: bool = False) -> bool:
    """Begin to start the process that forks; it imports torch meanwhile, for_configs: and transformers. One that runs
    already stays as it is. False where there is none: on other systems what torch computes with does not survive a
    fork, and its socket needs a temporary folder with a path that is not too long for one."""
    global _prepared
    if sys.platform != "linux":
        return False
    warm = [WARM, WARM_FOR_CONFIGS] if for_configs else [WARM]
    multiprocessing.get_context("forkserver").set_forkserver_preload(warm)
    try:
        with _start_method_left_open():
            forkserver.ensure_running()
    except OSError:
        return False
    _prepared = True
    return True


def wait_until_ready() -> None:
    """Until a process can be forked. Raises EndedEarly."""
    run_fresh(int, (), lambda: None)


def end() -> None:
    """End the process that forks, and wait for it: what it and its forks computed counts as this process's own from
    then on (os.times), and is not taken for others' load. The next `prepare` starts another."""
    global _prepared
    _prepared = False
    for fresh in tuple(_living):
        fresh.end()
    stop = getattr(getattr(forkserver, "_forkserver", None), "_stop", None)  # multiprocessing has no public way
    if stop is not None:
        stop()


Answer = Callable[[Any], Any]
_living: set[Fresh] = set()  # what forks ends after the last of these


class Fresh:
    """A fresh process that answers questions, until `end`.

    work(serve, *arguments) is called there; serve(answer) sends what answer(question) returns, until nobody asks any
    more. All is pickled; what work or answer raises ends the process. Raises EndedEarly where the one that forks is
    gone; where there is none, for `prepare` said so, this fails.
    """

    def __init__(self, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("forkserver")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, work, arguments), daemon=True)
        try:
            _start(self._process, work)
        except BaseException:
            self._here.close()
            raise
        finally:
            there.close()
        _living.add(self)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def ask(self, question: Any) -> Any:
        """Raises EndedEarly."""
        self.send(question)
        return self.receive()

    def send(self, question: Any) -> None:
        """Ask, and do something else meanwhile. Raises EndedEarly."""
        try:
            self._here.send(question)
        except OSError as error:
            raise EndedEarly from error

    def receive(self) -> Any:
        """The answer to what was sent. Raises EndedEarly."""
        return _received(self._here.recv)

    def end(self) -> None:
        """It ends at once, whatever it does."""
        _living.discard(self)
        self._here.close()
        self._process.join(END_SECONDS)
        if self._process.is_alive():  # in C code that lets no other thread of it run
            self._process.kill()
            self._process.join()


def run_fresh(work: Callable[..., Any], arguments: tuple[Any, ...], on_wait: Callable[[], object]) -> Any:
    """What work(*arguments) returns in a fresh process; on_wait is called now and then meanwhile. All is pickled.

    Without forks it runs here. Raises EndedEarly, and whatever work raises.
    """
    if not prepare():
        return work(*arguments)
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, work, arguments), daemon=True)
    try:
        with contextlib.closing(there):
            _start(process, work)
        while not here.poll(LOOK_SECONDS):
            on_wait()
        outcome = pickle.loads(_received(here.recv_bytes))
    finally:
        here.close()
        if process.pid is not None:
            process.join()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _received(receive: Callable[[], Any]) -> Any:
    """multiprocessing raises EOFError where nothing came, OSError in the middle of a message. Raises EndedEarly."""
    try:
        return receive()
    except (EOFError, OSError) as error:
        raise EndedEarly from error


_starting = threading.Lock()


@contextlib.contextmanager
def _start_method_left_open() -> Iterator[None]:
    """A process of ours names how it is started, but to start one fixes that for all others: a user's own module, which
    may set it once, would be told that it has been set."""
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def _start(process: BaseProcess, work: Callable[..., object]) -> None:
    """multiprocessing has a process import the program that starts it, for what is defined there. Of another module's
    work that would only fill the heap: forks of a program that imports a web server found no fresh pages in steps in
    which runs of Python by itself find fifteen hundred (docs/decisions/0014). Raises EndedEarly where the one that
    forks is gone."""
    program = sys.modules["__main__"]
    names = {} if work.__module__ == program.__name__ else vars(program).keys() & {"__spec__", "__file__"}
    with _starting:
        before = {name: getattr(program, name) for name in names}
        try:
            for name in names:
                setattr(program, name, None)
            with _start_method_left_open():
                process.start()
        except (EOFError, OSError) as error:
            raise EndedEarly from error
        finally:
            for name, value in before.items():
                setattr(program, name, value)


def _answer(there: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _begin(there)
    try:
        outcome: Any = work(*arguments)
    except Exception as error:  # noqa: BLE001 - the one who asked is told
        outcome = error
    there.send_bytes(pickle.dumps(outcome))


def _serve(there: Connection, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    _begin(there)
    multiprocessing.current_process().daemon = False  # a user's model may have processes of its own (a DataLoader's)

    def serve(answer: Answer) -> None:
        with contextlib.suppress(EOFError, OSError):  # nobody asks any more
            while True:
                there.send(answer(there.recv()))

    work(serve, *arguments)


def _begin(there: Connection) -> None:
    multiprocessing.set_start_method(None, force=True)  # as it is in a process that nobody started so
    threading.Thread(target=_end_when_nobody_reads, args=(there.fileno(),), daemon=True).start()


def _end_when_nobody_reads(descriptor: int) -> None:
    """Whoever asked is gone, however it ended; the process that forks ends when its last fork has."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors alone: the other end was closed
    poll.poll()
    os._exit(1)
