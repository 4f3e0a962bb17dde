"""A kept run of the crossovers is told again: its truth stays, and answers come from what it kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.retell_crossovers import main, run_retell
from probes.profile import Profile
from tests.app.advisor.build import ONE, TWO, a_measurement
from tests.benchmarks.test_retell import of_few_networks

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-29-intel-xeon-amx-2-cores"
THREADS = (ONE.label, TWO.label)


@pytest.fixture(scope="module")
def calibration() -> dict[str, Any]:
    return of_few_networks(json.loads((RESULTS / "crossovers_profile_1.json").read_text(encoding="utf-8")))


@pytest.fixture
def kept() -> dict[str, Any]:
    """The pairs of one model, none of which anything is told of, and one that had no truth."""
    rows = json.loads((RESULTS / "crossovers.json").read_text(encoding="utf-8"))["rows"]
    mine = [{**row, "instant": None, "quick": None} for row in rows if row["model"] == "tabular"]
    return {"seconds_a_batch": 1.2, "rows": [*mine, {"model": "digits", "error": "It did not run."}]}


def test_both_answers_are_told_anew_and_all_else_stays(
    kept: dict[str, Any], calibration: dict[str, Any], tmp_path: Path
) -> None:
    lines = ((ONE, 1e-4, 1e-5), (TWO, 1.9e-3, 4e-6))  # they cross at 300
    rows = [a_measurement(plan, size, at + each * size) for plan, at, each in lines for size in (64, 256, 1024, 4096)]
    profile = Profile.from_json(calibration)
    before = asyncio.run(run_retell(kept, [profile], tmp_path))
    assert all(row["instant"] is not None and row["quick"] is None for row in before["rows"][:-1])
    measured = {"tabular": [row.to_json() for row in rows]}
    after = asyncio.run(run_retell({**kept, "measured": measured}, [profile], tmp_path))
    (told,) = (row["quick"] for row in after["rows"][:-1] if (row["from"], row["to"]) == THREADS)
    assert told["kind"] == "at"
    assert told["medians_cross_at"] == pytest.approx(300, rel=0.3)
    for document in (before, after):
        assert [row.get("truth") for row in document["rows"]] == [row.get("truth") for row in kept["rows"]]
        assert document["rows"][-1] == kept["rows"][-1]
        assert {row["adviser"] for row in document["table"]} == {"instant", "quick", "torch default"}


def test_a_file_that_is_none_is_refused_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.json").write_text("{", encoding="utf-8")
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.json"), "--profile", str(tmp_path / "none.json")])
    assert "cannot be told again" in capsys.readouterr().err
