"""What the benchmark of neighbours counts, and that it runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.neighbours import Round, main, shares

CALM = Round(0.0, (1.0, 1.0), (1.05, 1.0))
FIRST_TAKEN = Round(1.0, (1.5, 1.0), (1.5, 1.0))
ONE_CORE = Round(2.0, (1.0, 1.1), (1.9, 1.9))


def test_a_core_that_is_taken_is_told_from_two_that_share_one() -> None:
    found = shares([CALM, CALM, FIRST_TAKEN, ONE_CORE])
    assert found["first core by itself"] == 0.25
    assert found["second core by itself"] == 0.0
    assert found["both at once alone"] == 0.25
    assert found["anything"] == 0.5


@pytest.mark.skipif(sys.platform != "linux", reason="processes are held to a core on Linux")
def test_it_measures_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two cores are needed")
    assert main(["--seconds", "0.5", "--output", str(tmp_path / "found.json")]) == 0
    document = json.loads((tmp_path / "found.json").read_text())
    assert all(seconds > 0 for row in document["rounds"] for seconds in (*row["alone"], *row["together"]))
    assert "anything: slow in" in capsys.readouterr().out
