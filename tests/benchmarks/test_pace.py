"""How long the pace takes to settle after other work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import pace
from benchmarks.pace import MOMENTS, Run, main, settle
from probes.microtrain.plans import Cores

QUICK, SLOW = 40e-6, 80e-6


def runs(*seconds: float) -> list[Run]:
    """One after another from the beginning on."""
    found: list[Run] = []
    for each in seconds:
        found.append(Run((found[-1].ended if found else 0.0) + each, each))
    return found


def test_what_is_slow_at_first_is_told_by_the_moment() -> None:
    waking = runs(*[SLOW] * 4, *[QUICK] * 100)
    table = settle({"sleep": [waking], "busy waiting": [runs(*[QUICK] * 100)]})
    at_once, later = table["sleep"][0], table["sleep"][MOMENTS.index(0.0005)]
    assert (round(at_once, 2), round(later, 2)) == (2.0, 1.0)
    assert table["busy waiting"] == [1.0] * len(MOMENTS)


def test_a_moment_before_any_run_has_ended_is_told_by_the_first() -> None:
    table = settle({"sleep": [runs(10 * SLOW, *[QUICK] * 100)]})
    assert table["sleep"][0] == 10 * SLOW / QUICK


@pytest.mark.parametrize(("cores", "threads"), [(1, ["1"]), (2, ["1", "2"])])
def test_it_measures_on_the_threads_that_have_cores_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, threads: list[str]
) -> None:
    monkeypatch.setattr(pace, "read_cores", lambda: Cores(cores, cores))
    output = tmp_path / "pace.json"
    assert main(["--rounds", "1", "--output", str(output)]) == 0
    document = json.loads(output.read_text())
    assert list(document["threads"]) == threads
    assert all(ratio > 0 for table in document["threads"].values() for row in table.values() for ratio in row)
