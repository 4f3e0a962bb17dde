"""Ctrl-C, TERM and HUP end a command and whatever it started."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from app.cli import entry
from app.cli.endings import ExitCode
from probes.compilers import why_not_compile
from tests.app.serving import wait_until

CROSSPOINT = (sys.executable, "-c", "import sys; from app.cli.main import main; sys.exit(main())")
# Nothing else is measured, and however slow the machine is, there are ten minutes for compiling.
COMPILING = (
    sys.executable,
    "-c",
    """
import sys
from app.answering import real_steps
from app.answering.trials import Trial
from app.cli.main import main
from probes.workload.description import Plan

async def all_of_it(*_):
    return 60.0

async def nothing(*_):
    pass

def trial(lab, survey, workload, answer, seconds, on_turn, plan, *rest):
    return Trial(lab, survey, workload, plan, 0.001, seconds, on_turn)

real_steps.RealSteps.run_plans = nothing
real_steps.RealSteps.seconds_for_variants = all_of_it
real_steps.variants_of = lambda *_: (Plan("cpu", "fp32", 1, compiled=True),)
real_steps.affordable = lambda variants, *_: [(plan, 600.0) for plan in variants]
real_steps.trial_of = trial
sys.exit(main())
""",
)
EXPERIMENT = ("experiment", "iris", "--epochs", "1000000", "--json")


pytestmark = pytest.mark.usefixtures("hup_ends")


def test_ctrl_c_while_input_is_awaited_is_code_130_without_a_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "model.json"
    os.mkfifo(pipe)
    command = subprocess.Popen((*CROSSPOINT, "recommend", str(pipe)), stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):  # returns when the command has opened its end: it is reading now
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
    assert command.returncode == ExitCode.INTERRUPTED
    assert errors.strip() == "Interrupted."


def test_ctrl_c_while_modules_are_imported_is_code_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "app.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "app.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert entry.main() == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.strip() == "Interrupted."


@pytest.fixture
def terminal() -> tuple[int, int]:
    """Our end and the command's end of a terminal."""
    return pty.openpty()


def read_until(descriptor: int, words: bytes) -> bytes:
    """What a terminal shows up to `words`; raises OSError when the command ends before."""
    seen = b""
    while words not in seen:
        seen += os.read(descriptor, 4096)
    return seen


def training(ours: int, theirs: int, folder: Path) -> subprocess.Popen[bytes]:
    """A command whose process trains by now, as its bar says."""
    command = subprocess.Popen(
        (*CROSSPOINT, *EXPERIMENT),
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, **places_in(folder), "TERM": "xterm"},
    )
    os.close(theirs)
    read_until(ours, b"of 1,000,000 epochs")
    return command


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_measurement_that_is_ended_takes_its_processes_and_files_along(
    terminal: tuple[int, int], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ours, theirs = terminal
    command = training(ours, theirs, tmp_path)
    children = psutil.Process(command.pid).children(recursive=True)
    assert children
    assert folders_in(tmp_path)
    command.send_signal(number)
    read_until(ours, b"\x1b[?25h")  # the cursor is shown again
    output, _ = command.communicate(timeout=60)
    os.close(ours)
    assert command.returncode == code
    assert output == b""
    assert folders_in(tmp_path) == []
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_hup_of_a_terminal_that_is_gone_is_code_129(terminal: tuple[int, int], tmp_path: Path) -> None:
    """Where the bar's end cannot be written."""
    ours, theirs = terminal
    command = training(ours, theirs, tmp_path)
    os.close(ours)
    command.send_signal(signal.SIGHUP)
    command.communicate(timeout=60)
    assert command.returncode == 129
    assert folders_in(tmp_path) == []


def places_in(folder: Path) -> dict[str, str]:
    """Variables for a store and for temporary files of a command's own."""
    temporary = folder / "tmp"
    temporary.mkdir()
    return {"CROSSPOINT_DATA_DIR": str(folder / "data"), "TMPDIR": str(temporary)}


def folders_in(folder: Path) -> list[str]:
    """Names of what a command made for its processes' files; torch has a folder of its own there."""
    return [path.name for path in (folder / "tmp").glob("crosspoint-*") if path.is_dir()]


@contextmanager
def started(
    folder: Path, *words: str, before: str = "", program: tuple[str, ...] = CROSSPOINT
) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose output nobody reads; before: what the shell does that starts it."""
    command = subprocess.Popen(
        ("sh", "-c", f'{before} exec "$@"', "sh", *program, *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **places_in(folder)},
    )
    try:
        yield command
    finally:
        command.kill()
        command.wait(60)


def test_what_hup_is_not_to_end_goes_on_without_its_terminal(tmp_path: Path) -> None:
    """As nohup starts a command."""
    with started(tmp_path, *EXPERIMENT, before="trap '' HUP;") as command:
        wait_until(lambda: folders_in(tmp_path), "a process has a folder for its files")
        command.send_signal(signal.SIGHUP)
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 143
    assert folders_in(tmp_path) == []


@pytest.mark.skipif(why_not_compile() is not None, reason="torch.compile cannot run here")
def test_a_model_that_is_being_compiled_leaves_nothing_of_it(tmp_path: Path) -> None:
    words = ("recommend", "iris-mlp", "--device", "cpu", "--effort", "thorough", "--json")
    with started(tmp_path, *words, program=COMPILING) as command:
        wait_until(lambda: any((tmp_path / "tmp").glob("crosspoint-compile-*/*")), "something was compiled")
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 143
    assert folders_in(tmp_path) == []
