"""How the benchmark of the largest batch finds the truth and judges what was told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.largest_batch import (
    NARROW,
    describe_row,
    describe_table,
    is_seen_to_fit,
    judge,
    largest_that_fits,
    run_limited,
    summarize,
)
from benchmarks.workloads import WORKLOADS


@given(st.integers(1, 5000), st.integers(0, 5000))
def test_bisection_ends_within_two_per_cent_below_the_limit_wherever_it_starts(start: int, largest: int) -> None:
    tried: list[int] = []

    def fits(batch_size: int) -> bool:
        tried.append(batch_size)
        return batch_size <= largest

    found = largest_that_fits(start, fits)
    assert found <= largest
    assert largest <= max(found * NARROW, found)
    assert len(tried) == len(set(tried))
    assert all(size >= 1 for size in tried)


def a_row(truth: int, told: int | None, found: int | None) -> dict[str, Any]:
    return {
        "model": "a network",
        "truth": truth,
        "crosspoint": {"batch_size": told, "seconds": 0.5},
        "lightning": {"batch_size": found, "seconds": 30.0, "error": None if found else "It died."},
    }


def test_the_table_tells_how_far_off_and_how_often_too_large() -> None:
    rows = [a_row(100, 95, 90), a_row(200, 210, None), a_row(10, None, 8)]
    table = summarize(rows)
    assert (table["crosspoint"]["answered"], table["crosspoint"]["too_large"]) == (2, 1)
    assert abs(table["crosspoint"]["median_error"] - 0.05) < 1e-9
    assert abs(table["lightning"]["worst_error"] + 0.2) < 1e-9
    shown = describe_table({"rows": rows})
    assert "95 (-5%)" in shown
    assert "none" in shown


def test_a_batch_that_does_not_fit_into_the_limit_does_not_run() -> None:
    row = next(row for row in WORKLOADS if row.name == "tabular")
    job = {"workload": row.workload().to_json(), "limit_bytes": 2**30, "threads": 1, "task": "fits"}
    small, large = (run_limited({**job, "batch_size": batch_size}) for batch_size in (16, 2_000_000))
    assert small == {"fits": True, "reason": None}
    assert not large.get("fits")


def test_a_batch_that_nobody_saw_end_is_not_said_to_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.largest_batch.CHILD_SECONDS", 0.0)
    with pytest.raises(RuntimeError, match="a batch of 16 fits is not known: not done in 0 s"):
        is_seen_to_fit({}, 16)


def test_a_model_that_cannot_be_judged_is_a_row_that_says_so() -> None:
    nobody: Any = None  # whom to ask
    row = asyncio.run(judge(nobody, nobody, nobody, WORKLOADS[0], nobody, 2**31))
    assert (row["model"], row["error"][:14]) == ("iris", "AttributeError")
    assert describe_row(row) == f"iris: {row['error']}"
    rows = [row, a_row(100, 95, 90)]
    table = summarize(rows)["crosspoint"]
    assert (table["models"], table["answered"], table["median_seconds"]) == (2, 1, 0.5)
    assert f"| iris | not known: {row['error']} |" in describe_table({"rows": rows})


# What either task finds when it begins: how much it may still take, and whether the finder's code is there.
AT_THE_BEGINNING = """
import resource, sys
from pathlib import Path
from benchmarks import largest_batch_child as child
from probes.microtrain.processes.footprint import parse_status_bytes

def look(*_):
    used = parse_status_bytes(Path("/proc/self/status").read_text(), "VmData")
    return {"left": resource.getrlimit(resource.RLIMIT_DATA)[0] - used, "imported": "pytorch_lightning" in sys.modules}

child.fits = child.find_with_lightning = look
child.main()
"""


@pytest.mark.skipif(find_spec("pytorch_lightning") is None, reason="pytorch-lightning is not installed here")
def test_the_finder_has_as_much_memory_as_the_truth_it_is_held_against() -> None:
    row = next(row for row in WORKLOADS if row.name == "iris")
    job = {"workload": row.workload().to_json(), "limit_bytes": 2**31, "threads": 1, "batch_size": 16}
    found = []
    for task in ("fits", "lightning"):
        told = json.dumps({**job, "task": task})
        done = subprocess.run(
            [sys.executable, "-c", AT_THE_BEGINNING], input=told, capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert [each["imported"] for each in found] == [True, True]
    assert found[0]["left"] == pytest.approx(found[1]["left"], rel=0.02)
