"""Work in fresh processes: real ones, forked from one that has torch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.fresh_processes import EndedEarly, Fresh, end, run_fresh
from probes.own_time import read_own_ticks


def double(number: int) -> tuple[int, int, bool]:
    return 2 * number, os.getpid(), "torch" in sys.modules


def fail(word: str) -> None:
    raise ValueError(word)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def be_killed_while_it_sends() -> bytes:
    """As for want of memory: a long answer takes a while."""
    send = Connection._send  # type: ignore[attr-defined]

    def send_half(connection: Connection, message: Any, *_: object) -> None:
        send(connection, memoryview(message)[: len(message) // 2])
        be_killed()

    Connection._send = send_half  # type: ignore[attr-defined]
    return bytes(1000)


def sleep_for_ever() -> None:
    time.sleep(1000)


PROGRAM = """
import sys
from probes.microtrain.processes.fresh_processes import run_fresh
from tests.probes.microtrain.processes.test_fresh_processes import {work} as work
import {imported}

def here():
    return "{imported}" in sys.modules

if __name__ == "__main__":
    print(run_fresh(work, (), lambda: None), run_fresh(here, (), lambda: None), __file__)
"""


def has_wave() -> bool:
    return "wave" in sys.modules


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_a_process_imports_nothing_of_the_program_that_starts_it_but_for_what_is_defined_there(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(work=has_wave.__name__, imported="wave"), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    found = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.split() == ["False", "True", str(program)]


def test_each_call_has_a_process_of_its_own_that_has_torch() -> None:
    first, second = (run_fresh(double, (number,), lambda: None) for number in (3, 4))
    assert (first[0], second[0]) == (6, 8)
    assert (first[2], second[2]) == (True, True)
    if sys.platform == "linux":
        assert len({first[1], second[1], os.getpid()}) == 3


def test_what_fails_there_fails_here() -> None:
    with pytest.raises(ValueError, match="a sentence"):
        run_fresh(fail, ("a sentence",), lambda: None)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it runs in this process")
@pytest.mark.parametrize("work", [be_killed, be_killed_while_it_sends])
def test_a_process_that_is_killed_costs_only_its_own_answer(work: Callable[[], object]) -> None:
    with pytest.raises(EndedEarly):
        run_fresh(work, (), lambda: None)
    assert run_fresh(double, (1,), lambda: None)[0] == 2


@pytest.mark.skipif(sys.platform != "linux", reason="forks nowhere else")
@pytest.mark.parametrize("start", [lambda: run_fresh(int, (), lambda: None), lambda: Fresh(int, ())])
def test_a_process_that_cannot_be_forked_has_ended_early(
    start: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that forks is gone, or nothing more can be opened."""

    def gone(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("multiprocessing.forkserver.connect_to_new_process", gone)
    with pytest.raises(EndedEarly):
        start()


BARE = """
import sys
from probes.microtrain.processes.fresh_processes import run_fresh
before = dict(vars(sys.modules["__main__"]))
run_fresh(int, (), lambda: None)
print({"__file__", "__spec__"} & vars(sys.modules["__main__"]).keys() == {"__file__", "__spec__"} & before.keys())
"""


def test_a_program_without_a_file_has_none_afterwards() -> None:
    ran = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


def choose_a_start_method() -> str:
    multiprocessing.set_start_method("spawn")
    return multiprocessing.get_start_method()


def answer_with_one(serve: Callable[[Callable[[object], object]], object]) -> None:
    serve(lambda _: choose_a_start_method())


CHOOSING = """
import multiprocessing
from probes.microtrain.processes.fresh_processes import Fresh, end, run_fresh
from tests.probes.microtrain.processes.test_fresh_processes import answer_with_one, choose_a_start_method
print(run_fresh(choose_a_start_method, (), lambda: None))
print(Fresh(answer_with_one, ()).ask(None))
print(multiprocessing.get_start_method(allow_none=True))
multiprocessing.set_start_method("spawn")
print(run_fresh(choose_a_start_method, (), lambda: None))
print(multiprocessing.get_start_method(allow_none=True))
end()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks nowhere else")
def test_a_users_module_may_choose_how_its_own_processes_start() -> None:
    """It may do so once in a process, which starting one of ours would have been."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    ran = subprocess.run([sys.executable, "-c", CHOOSING], env=environment, capture_output=True, text=True)
    assert ran.stdout.split() == ["spawn", "spawn", "None", "spawn", "spawn"], ran.stderr


SMALL = "from probes.microtrain.processes.fresh_processes import run_fresh; print(run_fresh(int, (), lambda: None))"


def test_a_temporary_folder_with_a_long_path_costs_no_calibration(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", SMALL], env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True
    )
    assert (ran.stdout, ran.returncode) == ("0\n", 0), ran.stderr


PARENT = """
import sys
sys.path[:0] = {path!r}
from tests.probes.microtrain.processes.test_fresh_processes import sleep_for_ever
from probes.microtrain.processes.fresh_processes import run_fresh
if __name__ == "__main__":
    run_fresh(sleep_for_ever, (), lambda: print("waiting", flush=True))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it runs in this process")
def test_nothing_is_left_when_the_one_who_asked_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(path=sys.path))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(children) >= 2
    _, left = psutil.wait_procs(children, timeout=20)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def test_it_runs_here_where_processes_cannot_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_processes, "prepare", lambda: False)
    assert run_fresh(double, (5,), lambda: None)[:2] == (10, os.getpid())


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="forks nowhere else")
def test_what_forks_computed_is_this_process_s_own_once_they_have_ended() -> None:
    """Else a calibration is taken for others' load by who looks at the machine next."""
    before = read_own_ticks()
    run_fresh(burn, (0.5,), lambda: None)
    end()
    assert (read_own_ticks() - before) / os.sysconf("SC_CLK_TCK") >= 0.45
    children = os.times()
    assert children.children_user + children.children_system >= 0.45
    assert run_fresh(len, ([1, 2],), lambda: None) == 2  # another is started
