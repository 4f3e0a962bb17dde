"""How far a run's calibrations lie apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.calibrations_apart import apart, errors_alone, main
from benchmarks.estimates import profile_file
from tests.app.advisor.time_model.test_slow_calibrations import slowed


def test_each_is_told_by_its_steps_over_the_quickest_ones() -> None:
    ratios = apart([slowed(1.2), slowed(1.0), slowed(1.1)])
    assert ratios
    for row in ratios.values():
        assert row == pytest.approx([1.2, 1.0, 1.1])


def test_an_error_is_the_larger_one_of_both_ways() -> None:
    told = {"options": {"cpu fp32, 1 thread": {"median": 0.5}}}
    rows = [
        {"truth": {"cpu fp32, 1 thread": {"median": 1.0}}, "instant of each calibration alone": [told]},
        {"name": "x"},
    ]
    assert errors_alone(rows, 0) == pytest.approx([1.0])
    assert errors_alone(rows, 1) == []


def test_it_is_told_of_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "kept.json"
    run.write_text(json.dumps({"rows": []}), encoding="utf-8")
    for number, times in ((1, 1.0), (2, 1.5)):
        profile_file(run, number).write_text(json.dumps(slowed(times).to_json()), encoding="utf-8")
    assert main([str(run)]) == 0
    out = capsys.readouterr().out
    assert "kept.json" in out
    assert "| 1.00 | 1.50 |" in out
