"""Commands whose reader leaves, and roots that are no machine: an exit code and one sentence, never a traceback."""

import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.endings import ExitCode
from app.cli.main import main
from tests.probes.machines import write_machine, x86_machine

COMMAND = [sys.executable, "-c", "import sys; from app.cli.main import main; sys.exit(main())"]
FIGURES = {"parameters": 10**3, "flops_per_sample": 10**3, "activation_bytes_per_sample": 10**3, "operations": 6}
SUMMARY = json.dumps({"summary": FIGURES})


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


ROOTS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "file": lambda path: path.write_text("a machine?"),
    "pipe": os.mkfifo,
    "socket": make_socket,
    "loop": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nothing"),
}


@pytest.fixture(autouse=True)
def data_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSPOINT_DATA_DIR", str(tmp_path_factory.mktemp("data")))


@pytest.fixture(params=sorted(ROOTS))
def no_root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    ROOTS[request.param](tmp_path / "root")
    return tmp_path / "root"


def test_a_sysroot_that_is_no_folder_is_wrong_usage(no_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--sysroot", str(no_root)]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Error: --sysroot: the sysroot ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["hardware"],
        ["hardware", "--labels"],
        ["hardware", "--history"],
        ["doctor"],
        ["recommend", "iris-mlp", "--effort", "instant", "--json"],
        ["map", "iris-mlp"],
        ["profile", "list"],
        ["serve", "--host", "not a host"],
    ],
)
def test_so_is_one_that_the_environment_names(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CROSSPOINT_SYSROOT", str(tmp_path / "missing"))
    assert main(words) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "CROSSPOINT_SYSROOT" in captured.err


def test_a_service_of_a_machine_that_is_not_there_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "not a host", "--sysroot", "/no/such/folder"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("Error: --sysroot: the sysroot ")


@pytest.mark.parametrize("words", [["hardware"], ["hardware", "--labels"], ["doctor", "--no-torch"]])
def test_an_empty_sysroot_is_not_the_current_folder(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As where a script's variable is not set."""
    assert main([*words, "--sysroot", ""]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "it is empty" in captured.err


@pytest.mark.parametrize("flag", ["--data-dir", "--sysroot"])
def test_a_service_takes_no_empty_folder_either(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "not a host", flag, ""]) == ExitCode.USAGE
    assert "is empty: leave it out, or name a folder." in capsys.readouterr().err


def test_a_program_gets_each_probes_reason_too(no_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--json", "--sysroot", str(no_root)]) == ExitCode.USAGE
    reports = json.loads(capsys.readouterr().out)["probes"].values()
    assert {report["outcome"] for report in reports} == {"failed"}
    assert all(report["reason"].startswith("the sysroot") for report in reports)


@pytest.mark.parametrize("words", [[], ["--json"], ["--labels"]])
def test_a_machine_of_rubbish_is_shown_as_far_as_it_goes(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dict.fromkeys(x86_machine(), "\x1b[31m 99999999999999999999999 �")
    assert main(["hardware", *words, "--sysroot", str(write_machine(tmp_path, files))]) == ExitCode.DONE
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert "\x1b" not in captured.out


@pytest.mark.parametrize("words", [["hardware"], ["hardware", "--json"], ["models"], ["hardware", "--bogus"]])
def test_a_reader_that_left_both_ends_is_what_shells_know_as_141(words: list[str]) -> None:
    assert run_into_closed_pipe([*COMMAND, *words]) == (ExitCode.READER_GONE, "")


def test_so_is_a_terminal_that_is_gone() -> None:
    ours, theirs = pty.openpty()
    os.close(ours)
    try:
        finished = subprocess.run([*COMMAND, "hardware", "--bogus"], stderr=theirs, check=False, timeout=60)
    finally:
        os.close(theirs)
    assert finished.returncode == ExitCode.READER_GONE


def test_the_survey_alone_ends_quietly_when_its_reader_left() -> None:
    assert run_into_closed_pipe([sys.executable, "-m", "probes"]) == (ExitCode.READER_GONE, "")


def run_into_closed_pipe(words: list[str]) -> tuple[int, str]:
    """Exit code, and what a faithful reader of standard error would have seen; nobody reads standard output."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        shown = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        deaf = subprocess.run(words, stdout=theirs, stderr=theirs, check=False, timeout=60)
    finally:
        os.close(theirs)
    return deaf.returncode, "" if "--bogus" in words else shown.stderr


@pytest.mark.parametrize("words", [["gpu", "RTX 4070 Ti", "--json"], ["gpu", "RTX 4070 Ti"], ["models"], ["--help"]])
def test_why_output_could_not_be_written_is_said_whatever_it_is(words: list[str], tmp_path: Path) -> None:
    """And whoever writes it: a command, rich or click. Here no file may grow, as where a quota is used up."""
    shell = ("sh", "-c", 'ulimit -f 0; exec "$@" >"$0"', str(tmp_path / "out"))
    finished = subprocess.run((*shell, *COMMAND, *words), capture_output=True, text=True, check=False, timeout=60)
    assert finished.stderr == "Error: The output could not be written: File too large.\n"
    assert finished.returncode == ExitCode.FAULT


def test_a_reader_that_is_not_waited_for_and_does_not_keep_up_is_told_of() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    try:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(theirs, b"x" * 512)
        finished = subprocess.run(
            [*COMMAND, "models"], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert finished.stderr == "Error: The output could not be written: Resource temporarily unavailable.\n"
    assert finished.returncode == ExitCode.FAULT


def run_in_shell(redirections: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command with streams closed as a shell does it, `2>&-`."""
    shell = ("sh", "-c", f'exec "$@" {redirections}', "sh")
    return subprocess.run((*shell, *words), capture_output=True, text=True, check=False, timeout=60)


def test_a_closed_standard_error_costs_no_answer() -> None:
    finished = run_in_shell("2>&-", *COMMAND, "recommend", SUMMARY, "--effort", "instant", "--json")
    assert finished.returncode == ExitCode.DONE
    assert json.loads(finished.stdout)["verdict"]


def test_a_closed_standard_output_costs_no_file(tmp_path: Path) -> None:
    root, labels = write_machine(tmp_path / "root", x86_machine()), tmp_path / "labels"
    words = ["hardware", "--labels", "--sysroot", str(root), "--output", str(labels)]
    finished = run_in_shell(">&-", *COMMAND, *words)
    assert (finished.returncode, finished.stderr) == (ExitCode.DONE, "")
    assert "cpu.logical-cores=8" in labels.read_text()


def test_a_closed_standard_input_holds_no_model_and_no_profile() -> None:
    finished = run_in_shell("<&-", *COMMAND, "recommend", "-")
    assert finished.returncode == ExitCode.USAGE
    assert finished.stderr.startswith("Error: standard input cannot be used: it is not JSON")
    assert run_in_shell("<&-", *COMMAND, "profile", "import", "-").returncode == ExitCode.USAGE


def test_with_all_three_closed_a_model_is_measured_all_the_same(tmp_path: Path) -> None:
    """The measuring process is spoken to over pipes, which may not get the descriptors of standard streams."""
    report = tmp_path / "report.html"
    words = ["experiment", "iris", "--epochs", "20", "--device", "cpu", "--report", str(report)]
    finished = run_in_shell("<&- >&- 2>&-", *COMMAND, *words)
    assert finished.returncode == ExitCode.DONE
    assert "Time against readings" in report.read_text(encoding="utf-8")
