"""What a page costs inside a step, from processes that found other numbers of them fresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.estimates import RESULTS
from benchmarks.fault_prices import clocked, costs_of_faults, main
from benchmarks.retell import read_calibrations

RUN = RESULTS / "2026-11-30-amd-epyc-zen-4-2-cores" / "estimates.json"


def a_row(processes: list[float], faults: list[float | None] | None) -> dict[str, Any]:
    truth = {"processes": processes, "median": 0.01} | ({} if faults is None else {"faults": faults})
    return {"name": "one", "truth": {"cpu fp32, 1 thread": truth}}


def test_what_one_process_takes_longer_is_what_its_pages_cost() -> None:
    rows = [a_row([0.010, 0.012, 0.016], [1000.0, 2000.0, 4000.0])]
    assert costs_of_faults(rows)["cpu fp32, 1 thread"] == pytest.approx([2e-6] * 3)


def test_who_found_about_as_many_or_counted_none_tells_nothing() -> None:
    assert costs_of_faults([a_row([0.010, 0.020], [1000.0, 1100.0])]) == {}
    assert costs_of_faults([a_row([0.010, 0.020], [1000.0, None])]) == {}
    assert costs_of_faults([a_row([0.010, 0.020], None), {"name": "failed", "error": "no step"}]) == {}


def test_the_kept_run_is_told_beside_what_its_calibrations_clocked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(RUN)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == sorted(clocked(read_calibrations(RUN)))
    assert all("us a page in steps" in line for line in lines)


def test_a_run_that_counted_no_faults_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"rows": [a_row([0.010, 0.020], None)]}), encoding="utf-8")
    assert main([str(before)]) == 1
    assert "no two processes" in capsys.readouterr().err
