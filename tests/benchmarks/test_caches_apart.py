"""What steps suffer where cores share no cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.caches_apart import AFTER, FIRST, compare, describe, main


def test_steps_are_compared_by_what_the_fixed_work_took_around_them() -> None:
    calm, slow, between = (
        {FIRST: before, "step": step, AFTER: after}
        for before, step, after in ((1.0, 10.0, 1.1), (2.0, 14.2, 2.0), (1.0, 99.0, 2.0))
    )
    found = compare([calm, between, slow, calm])
    assert found["slow"] == 0.25
    assert found["ratios"] == {FIRST: 2.0, "step": pytest.approx(1.42), AFTER: pytest.approx(2.0 / 1.1)}
    assert found["powers"]["step"] == pytest.approx(0.506, abs=1e-3)
    assert "| step | 1.42 | 0.51 |" in describe(found)


def test_where_all_turns_are_alike_nothing_is_compared() -> None:
    found = compare([{FIRST: 1.0, "step": 10.0, AFTER: 1.0}] * 2)
    assert (found["slow"], found["ratios"], found["powers"]) == (0.0, {}, {})
    assert describe(found) == "0% of 2 turns were slow."


def test_it_runs_and_keeps_every_turn(tmp_path: Path) -> None:
    output = tmp_path / "apart.json"
    assert main(["--seconds", "0.01", "--output", str(output)]) == 0
    document = json.loads(output.read_text())
    assert document["turns"] == len(document["rows"]) >= 1
    assert all(seconds > 0 for row in document["rows"] for seconds in row.values())
