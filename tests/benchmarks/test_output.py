"""A suite that measures for an hour says before it, not after, that its figures cannot be kept."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.estimates import main as estimates
from benchmarks.output import Unfinished, output_file


def test_a_file_s_folder_is_made_and_the_file_left_for_later(tmp_path: Path) -> None:
    path = output_file(str(tmp_path / "deep" / "figures.json"))
    assert path.parent.is_dir()
    assert not path.exists()


def test_earlier_figures_stay_until_there_are_new_ones(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text("{}")
    assert output_file(str(tmp_path / "figures.json")).read_text() == "{}"


def test_a_folder_is_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        estimates(["--output", str(tmp_path)])
    assert ended.value.code == 2
    assert "is a folder; name a file in it" in capsys.readouterr().err


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written"):
        output_file(str(tmp_path / "file" / "figures.json"))


def test_what_was_measured_before_a_run_broke_off_stays_beside_its_output_until_it_ends(tmp_path: Path) -> None:
    unfinished = Unfinished(tmp_path / "figures.json")
    unfinished.keep([{"model": "one"}])
    unfinished.keep([{"model": "one"}, {"model": "two"}])
    (file,) = tmp_path.iterdir()
    assert file.name == "figures.unfinished.json"
    assert [row["model"] for row in json.loads(file.read_text(encoding="utf-8"))["rows"]] == ["one", "two"]
    unfinished.end()
    assert not list(tmp_path.iterdir())
