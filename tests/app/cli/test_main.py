"""The command line as a user meets it: help, exit codes, sentences instead of tracebacks."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from app.advisor.request import EFFORTS, PRECISION_CHOICES
from app.cli import workload_options
from app.cli.endings import CommandFailed, ExitCode, report_ending
from app.cli.main import COMMANDS, main
from app.cli.output import PIPED_WIDTH
from app.errors import CrosspointError, LabError, StoreError
from probes.workload.description import InvalidModel

CROSSPOINT = (sys.executable, "-c", "import sys; from app.cli.main import main; sys.exit(main())")


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        (*CROSSPOINT, *arguments), capture_output=True, text=True, timeout=60, check=False, **options
    )


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert "3 nothing fits" in out


def test_no_words_at_all_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.DONE
    assert "Usage: crosspoint" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == ExitCode.DONE
    assert f"Usage: crosspoint {name}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--help"], ["recommend", "--help"], ["serve", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    heavy = {"torch", "transformers", "numpy", "rich", "fastapi", "asyncio", "sqlite3", "psutil", "app.advisor"}
    code = (
        f"import sys; from app.cli.main import main; main({words!r}); "
        f"print({heavy} & set(sys.modules), file=sys.stderr)"
    )
    finished = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, timeout=60, check=True)
    assert finished.stderr.strip() == "set()"


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["recommend", "iris-mlp", "--epochs", "3"],
        ["recommend", "iris-mlp", "--effort", "instant", "--time-limit", "5"],
        ["recommend", '{"layers": [{"type": "linear", "in": 4, "out": 2}], "loss": "mse", "loss": "mse"}'],
        ["recommend"],
        ["recommend", "resnet-50", "--batch-size", "0"],
        ["recommend", "resnet-50", "--batch-size", "1e18"],
        ["recommend", "resnet-50", "--effort", "heroic"],
        ["recommend", "resnet-50", "--time-limit", "nan"],
        ["recommend", "no/such/file.json"],
        ["recommend", "resnet-50", "--sequence-length", "5"],
        ["measure", "reznet-50"],
        ["measure", "iris-mlp", "--seconds", "nan"],
        ["map", "iris-mlp", "--svg", "/no/such/folder/map.svg"],
        ["map", "iris-mlp", "--svg", "-"],
        ["models", "reznet-50"],
        ["hardware", "--sysroot", "/no/such/folder"],
        ["experiment", "iris", "--epochs", "0"],
        ["experiment", "iris", "--log-every", "1,sometimes"],
        ["experiment", "iris", "--report", "/no/such/folder/report.html"],
        ["experiment", "iris", "--report", "-"],
        ["serve", "--port", "seventy"],
    ],
)
def test_wrong_usage_is_code_2_with_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error: " in captured.err
    assert "Traceback" not in captured.err


def test_a_shell_that_completes_after_a_misspelt_command_gets_no_traceback() -> None:
    asking = {"_CROSSPOINT_COMPLETE": "bash_complete", "COMP_WORDS": "crosspoint recomend --", "COMP_CWORD": "2"}
    found = run(env={**os.environ, **asking})
    assert (found.returncode, found.stderr) == (0, "")


def test_a_command_that_is_misspelt_comes_with_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recomend"]) == ExitCode.USAGE
    assert "Did you mean 'recommend'?" in capsys.readouterr().err


def test_the_choices_offered_are_those_that_the_advisor_knows() -> None:
    assert workload_options.EFFORTS == EFFORTS
    assert workload_options.PRECISION_CHOICES == PRECISION_CHOICES


def test_an_unknown_model_comes_with_near_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "reznet-50", "--effort", "instant"]) == ExitCode.USAGE
    assert "resnet-50" in capsys.readouterr().err


def test_a_bad_setting_in_the_environment_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSPOINT_SURVEY_SECONDS", "soon")
    assert main(["hardware"]) == ExitCode.USAGE
    assert "CROSSPOINT_SURVEY_SECONDS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("which?"), 2),
        (InvalidModel("There is no such model.", ("iris-mlp",)), 2),
        (LabError("invalid-model", "layers[3] does not fit."), 2),
        (LabError("out-of-memory", "The measurement ran out of memory."), 4),
        (CrosspointError("failed", "The measuring process ended."), 4),
        (StoreError("This was not saved: the disk is full."), 1),
        (CommandFailed("No plan fits.", ExitCode.NOTHING_FITS), 3),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(32, "Broken pipe"), 141),
        (OSError(28, "No space left on device"), 1),
        (ZeroDivisionError("a fault of ours"), 1),
    ],
)
def test_every_way_to_end_has_its_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.endings.os.dup2", lambda *_: None)  # it would close this test's own output
    assert report_ending(error) == code


def test_near_names_stand_in_the_sentence_once(capsys: pytest.CaptureFixture[str]) -> None:
    report_ending(InvalidModel("There is no such model.", ("iris-mlp", "resnet-50")))
    assert capsys.readouterr().err == "Error: There is no such model. Near: iris-mlp, resnet-50.\n"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    finished = subprocess.run(
        (*CROSSPOINT, "--help"), stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(theirs)
    assert finished.returncode == ExitCode.READER_GONE
    assert finished.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_output_that_cannot_be_written_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            (*CROSSPOINT, "--help"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert finished.returncode == ExitCode.FAULT
    assert finished.stderr == "Error: The output could not be written: No space left on device.\n"


def test_an_ascii_terminal_gets_question_marks_instead_of_a_traceback() -> None:
    finished = run("experiment", "iris", "--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert finished.returncode == ExitCode.DONE
    assert finished.stderr == ""


@pytest.mark.parametrize("columns", ["0", "-1", "²", "9" * 5000])
def test_a_width_that_no_terminal_has_is_as_good_as_none(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CROSSPOINT_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", columns)
    summary = '{"parameters": 1000, "flops_per_sample": 1000, "activation_bytes_per_sample": 1000, "operations": 6}'
    assert main(["recommend", f'{{"summary": {summary}}}', "--effort", "instant"]) == ExitCode.DONE
    assert max(map(len, capsys.readouterr().out.splitlines())) <= PIPED_WIDTH
