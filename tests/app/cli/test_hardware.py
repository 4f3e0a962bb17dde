"""`crosspoint hardware`: node labels and history, as files and commands see them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from app.cli.endings import ExitCode
from app.cli.main import main
from tests.probes.machines import write_machine, x86_machine


@pytest.fixture
def machine(tmp_path: Path) -> str:
    return str(write_machine(tmp_path / "machine", x86_machine()))


def test_labels_are_printed_a_line_each(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--labels", "--sysroot", machine]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert "feature.node.kubernetes.io/crosspoint.cpu.logical-cores=8" in lines
    assert lines == sorted(lines)
    assert "somewhere" not in str(lines)


def test_a_feature_file_is_replaced_whole_and_may_be_read_by_all(
    machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "features.d"
    folder.mkdir()
    target = folder / "crosspoint"
    target.write_text("old")
    before = target.stat().st_ino
    assert main(["hardware", "--labels", "--sysroot", machine, "--output", str(target)]) == ExitCode.DONE
    assert capsys.readouterr().out == ""
    assert target.read_text().endswith("\n")
    assert "old" not in target.read_text()
    assert target.stat().st_ino != before, "renamed into its place, not written over"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [path.name for path in folder.iterdir()] == ["crosspoint"]


@pytest.mark.parametrize("place", ["missing/crosspoint", "/dev/full"])
def test_a_file_that_cannot_be_written_is_a_sentence(
    machine: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / place)
    assert main(["hardware", "--labels", "--sysroot", machine, "--output", target]) == ExitCode.FAULT
    assert "could not be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--labels", "--json"],
        ["--labels", "--history"],
        ["--labels", "--history", "--json"],
        ["--output", "x"],
        ["--history", "--sysroot", "/"],
    ],
)
def test_what_does_not_go_together_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", *words]) == ExitCode.USAGE
    assert "Error: " in capsys.readouterr().err


def test_history_begins_with_the_machine_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CROSSPOINT_DATA_DIR", str(tmp_path))
    assert main(["hardware", "--history"]) == ExitCode.DONE
    assert "first seen" in capsys.readouterr().out
    assert main(["hardware", "--history", "--json"]) == ExitCode.DONE
    (state,) = json.loads(capsys.readouterr().out)["history"]
    assert state["changes"] == []


def test_a_dash_is_standard_output(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["hardware", "--labels", "--sysroot", machine, "--output", "-"]) == ExitCode.DONE
    assert "cpu.logical-cores=8" in capsys.readouterr().out
    assert not (tmp_path / "-").exists()
