"""A benchmark's process that fails or hangs is told as such, and costs the run nothing else."""

from __future__ import annotations

from pathlib import Path

from benchmarks.child import run_child


def a_program(folder: Path, text: str) -> dict[str, str]:
    """The environment in which it is the module `program`."""
    (folder / "program.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def test_the_last_line_is_the_answer(tmp_path: Path) -> None:
    environment = a_program(tmp_path, "import json, sys\nprint('hello')\nprint(json.dumps(json.load(sys.stdin)))")
    assert run_child("program", {"size": 3}, 60, environment) == {"size": 3}


def test_what_one_died_of_is_told(tmp_path: Path) -> None:
    assert run_child("program", {}, 60, a_program(tmp_path, "raise SystemExit('no room')")) == {
        "error": "ended with 1: no room"
    }


def test_one_that_hangs_is_ended_and_told_from_one_that_died(tmp_path: Path) -> None:
    hangs = a_program(tmp_path, "import time\ntime.sleep(600)")
    assert run_child("program", {}, 0.5, hangs) == {"error": "not done in 0.5 s", "overdue": True}
