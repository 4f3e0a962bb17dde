"""What other widths would have made of kept intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from app.advisor.time_model.intervals import interval_around, widen
from benchmarks.interval_widths import BEFORE, main, share_held, told_in


def a_run(*off_by: float) -> dict[str, Any]:
    """Of one thread, each a step that was told 1 s, to a hundredth within its process; truth beside it."""
    made = widen(interval_around(1.0, 0.01), BEFORE[0])
    said = {"median": made.median, "low": made.low, "high": made.high}
    label = "cpu fp32, 1 thread"
    rows = [{"quick": {"options": {label: said}}, "truth": {label: {"median": math.exp(off)}}} for off in off_by]
    return {"rows": [*rows, {"quick": None, "truth": {label: {"median": 1.0}}}, {"error": "did not run"}]}


def test_narrower_intervals_hold_less() -> None:
    told = list(told_in(a_run(0.0, 0.04, -0.06, 0.08)))
    assert [share_held(told, BEFORE, (width, 0.0)) for width in (0.07, 0.05, 0.03)] == [0.75, 0.5, 0.25]


def test_it_is_told_of_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, empty = tmp_path / "estimates.json", tmp_path / "empty.json"
    run.write_text(json.dumps(a_run(0.0, 0.06)), encoding="utf-8")
    empty.write_text('{"rows": []}', encoding="utf-8")
    assert main([str(run), str(empty), "--widths", "0.05", "0.08"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "2 intervals; 0.07 and 0.11: 100.0%, 0.05 and 0.08: 50.0%" in first
    assert second.endswith("0 intervals; none")
    with pytest.raises(SystemExit):
        main([str(run), "--widths", "0.05"])
