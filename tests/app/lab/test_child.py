"""A measuring process that misbehaves costs its own job, never the service."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from app.errors import LabError
from app.lab.child import PROGRAM, Child
from probes.microtrain.ending import PR_SET_CHILD_SUBREAPER
from tests.app.lab.programs import ECHO, HANGING, READY, STUBBORN, program, serving
from tests.app.serving import wait_until

T = TypeVar("T")
PATIENCE_SECONDS = 60.0


def is_gone(pid: int) -> bool:
    """No such process, or one that only waits for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def read_oom_score(process: str) -> int:
    return int(Path(f"/proc/{process}/oom_score_adj").read_text())


def with_child(words: tuple[str, ...], use: Callable[[Child], Awaitable[T]], ready_seconds: float = 120.0) -> T:
    """Start a child, use it, end it; nothing of it is left."""

    async def session() -> T:
        living: set[Child] = set()
        child = await Child.start(living, words, ready_seconds=ready_seconds)
        try:
            return await use(child)
        finally:
            await child.end()
            assert not living
            await asyncio.to_thread(wait_until, lambda: not psutil.pid_exists(child.pid), "the process's end")

    return asyncio.run(session())


async def run(child: Child, **job: Any) -> dict[str, Any]:
    return await child.run({"kind": "measure", **job}, PATIENCE_SECONDS)


def fail_to(use: Callable[[Child], Awaitable[Any]], words: tuple[str, ...]) -> LabError:
    with pytest.raises(LabError) as caught:
        with_child(words, use)
    return caught.value


def test_jobs_run_one_after_another_in_one_process() -> None:
    async def use(child: Child) -> list[dict[str, Any]]:
        return [await run(child), await run(child)]

    first, second = with_child(ECHO, use)
    assert first == second
    assert first["kind"] == "measure"


def test_what_a_library_prints_is_passed_over() -> None:
    chatty = serving(
        'print("Downloading … 3 %")',
        'print("[1, 2]", "null", "{", sep=chr(10))',
        'say(event="progress", job="another", fraction=1)',
        'say(event="result", job=job["job"], result={})',
    )
    assert with_child(chatty, run) == {}


def test_progress_is_passed_on() -> None:
    words = serving(
        'say(event="progress", job=job["job"], fraction=0.5, message="half")',
        'say(event="result", job=job["job"], result={})',
    )
    seen: list[dict[str, Any]] = []
    with_child(words, lambda child: child.run({"kind": "measure"}, PATIENCE_SECONDS, seen.append))
    assert [(event["fraction"], event["message"]) for event in seen] == [(0.5, "half")]


def test_a_job_that_says_why_it_failed_is_quoted() -> None:
    words = serving('say(event="failed", job=job["job"], code="out-of-memory", reason="It needs 9 GB.")')
    error = fail_to(run, words)
    assert (error.code, str(error)) == ("out-of-memory", "It needs 9 GB.")


@pytest.mark.parametrize(("more", "blamed"), [(1, "most likely by the kernel"), (0, "not by the kernel")])
def test_a_process_that_is_killed_says_by_whom(more: int, blamed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the process started, as its job began, and at last."""
    kills = iter((2, 3, 3 + more))
    monkeypatch.setattr("app.lab.child.read_oom_kills", lambda _: next(kills))
    error = fail_to(run, serving("os.kill(os.getpid(), signal.SIGKILL)"))
    assert error.code == "killed"
    assert f"{blamed} for want of memory" in str(error)


def test_a_process_that_crashes_names_the_signal_and_shows_no_traceback() -> None:
    error = fail_to(run, serving("os.kill(os.getpid(), signal.SIGSEGV)"))
    assert "SIGSEGV" in str(error)
    error = fail_to(run, serving('raise RuntimeError("in /some/folder")'))
    assert "exit code 1" in str(error)
    assert "/some/folder" not in str(error)


def test_the_last_words_of_a_process_are_not_those_of_a_job_that_was_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = serving(
        'if job["kind"] == "die": os.kill(os.getpid(), signal.SIGKILL)',
        'print("an earlier trouble", file=sys.stderr, flush=True)',
        'say(event="failed", job=job["job"], code="unsupported", reason="No.")',
    )

    async def use(child: Child) -> None:
        with pytest.raises(LabError, match="No"):
            await run(child)
        while not child._stderr_tail:  # noqa: ASYNC110 - it comes by a pipe of its own
            await asyncio.sleep(0)
        with pytest.raises(LabError, match="killed"):
            await child.run({"kind": "die"}, PATIENCE_SECONDS)

    with_child(words, use)
    assert "Its last words: (none)" in caplog.text


def test_a_result_that_is_a_process_s_last_is_its_end_whatever_holds_it_up() -> None:
    """As a driver does that has lost its device."""
    words = serving('say(event="result", job=job["job"], result={"rows": 3}, last=True)', "time.sleep(600)")

    async def use(child: Child) -> tuple[dict[str, Any], bool, bool]:
        return await run(child), child.alive, is_gone(child.pid)

    assert with_child(words, use) == ({"rows": 3}, False, True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("calibrate", "a device does not answer"), ("trace", "smaller model"), ("measure", "smaller batch")],
)
def test_a_job_beyond_its_deadline_is_ended_and_says_what_would_help(kind: str, words: str) -> None:
    error = fail_to(lambda child: child.run({"kind": kind}, 0.2), HANGING)
    assert error.code == "too-slow"
    assert words in str(error)


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.lab.child.MAX_LINE_BYTES", 1024 * 1024)
    error = fail_to(run, serving('sys.stdout.write("x" * 9_000_000)', "sys.stdout.flush()"))
    assert "without end" in str(error)


def test_a_flood_of_errors_neither_blocks_nor_grows() -> None:
    words = serving(
        'sys.stderr.write("x" * 5_000_000)', 'say(event="result", job=job["job"], result={})', "sys.stdout.flush()"
    )

    async def use(child: Child) -> int:
        await run(child)
        return len(child._stderr_tail)

    assert with_child(words, use) <= 8 * 1024


def test_a_process_that_is_never_ready_is_ended() -> None:
    with pytest.raises(LabError, match="not ready"):
        with_child(program("time.sleep(600)"), run, ready_seconds=0.2)


def test_a_process_that_cannot_start_is_a_sentence() -> None:
    with pytest.raises(LabError, match="could not be started"):
        with_child(("/there/is/no/such/program",), run)
    with pytest.raises(LabError, match="exit code 3"):
        with_child(program("sys.exit(3)"), run)


def test_ending_takes_a_process_along_that_ignores_term() -> None:
    async def use(child: Child) -> None:
        started = asyncio.Event()
        job = asyncio.create_task(child.run({"kind": "measure"}, PATIENCE_SECONDS, lambda _: started.set()))
        await started.wait()
        await child.end()
        with pytest.raises(LabError):
            await job

    with_child(STUBBORN, use)


WITH_A_CHILD = serving(
    'inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])',
    'say(event="result", job=job["job"], result={"inner": inner.pid})',
)


def test_ending_takes_grandchildren_along() -> None:
    inner = with_child(WITH_A_CHILD, run)["inner"]
    wait_until(lambda: is_gone(inner), "the grandchild's end")


def test_what_outlives_a_process_that_died_ends_with_it() -> None:
    async def use(child: Child) -> None:
        inner = (await run(child))["inner"]
        os.kill(child.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: is_gone(inner), "the grandchild's end")

    with_child(WITH_A_CHILD, use)


@pytest.fixture
def as_first_process() -> Iterator[None]:
    """What a child leaves behind is this process's, as it is a container's first one's."""
    control = ctypes.CDLL(None).prctl
    control(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    control(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux hands orphans to another process than the first")
@pytest.mark.usefixtures("as_first_process")
def test_what_a_process_that_died_leaves_to_this_one_is_waited_for() -> None:
    async def use(child: Child) -> None:
        inner = (await run(child))["inner"]
        os.kill(child.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: not psutil.pid_exists(inner), "the grandchild's number to be free")

    with_child(WITH_A_CHILD, use)


def test_the_number_of_a_process_that_died_long_ago_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another group's by then."""

    async def use(child: Child) -> list[int]:
        os.kill(child.pid, signal.SIGKILL)
        await child._group_task
        signalled: list[int] = []
        monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(group))
        child.kill()
        await child.end()
        return signalled

    assert with_child(ECHO, use) == []


def kinds_of_files(folder: str) -> list[str]:
    return [path.name.partition("-")[0] for path in Path(folder).rglob("*")]


def test_no_temporary_file_is_left_of_a_process_that_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the socket of what forks plans' processes."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)

        async def use(child: Child) -> list[str]:
            found = kinds_of_files(folder)
            child.kill()
            return found

        found = with_child((*PROGRAM, "--forks"), use)
        assert "crosspoint" in found
        if sys.platform == "linux":
            assert "listener" in found
        assert list(Path(folder).iterdir()) == []


def test_a_cancelled_start_leaves_nothing_behind() -> None:
    async def session() -> None:
        living: set[Child] = set()
        start = asyncio.create_task(Child.start(living, program("time.sleep(600)")))
        while not living:  # noqa: ASYNC110 - a set has no event
            await asyncio.sleep(0)
        (child,) = living
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await asyncio.to_thread(wait_until, lambda: not psutil.pid_exists(child.pid), "the process's end")

    asyncio.run(session())


def test_a_cancellation_while_a_process_is_ended_waits_until_it_is_gone() -> None:
    """Not even its folder goes earlier."""
    late = serving(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        'say(event="result", job=job["job"], result={})',
        "sys.stdin.read()",
        'say(event="input ended")',
        "time.sleep(600)",
    )

    async def session() -> None:
        living: set[Child] = set()
        child = await Child.start(living, late)
        await run(child)
        ending = asyncio.create_task(child.end())
        await child._next_event()
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert is_gone(child.pid)
        assert child._folder is not None
        assert not await asyncio.to_thread(Path(child._folder.path).exists)
        assert not living

    asyncio.run(session())


def test_a_child_does_not_import_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('this is not the real json')")
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "__init__.py").write_text("raise SystemExit('these are not the real probes')")
    monkeypatch.chdir(tmp_path)

    async def session() -> dict[str, Any]:
        child = await Child.start(set())
        await child.end()
        return child.ready

    assert asyncio.run(session())["event"] == "ready"


def test_the_kernel_takes_a_child_before_the_service() -> None:
    async def use(child: Child) -> int:
        return await asyncio.to_thread(read_oom_score, str(child.pid))

    assert with_child(program(READY, "sys.stdin.read()"), use) > read_oom_score("self")
