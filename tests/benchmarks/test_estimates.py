"""How the benchmark of estimates spends its time; what it measures is measured by the code that the product runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.estimates import Bench, Case, main, split
from benchmarks.workloads import WORKLOADS


def test_blocks_keep_the_order_and_hold_about_as_many_batch_sizes() -> None:
    blocks = split(WORKLOADS, 4)
    assert [row for block in blocks for row in block] == list(WORKLOADS)
    sizes = [sum(len(row.batch_sizes) for row in block) for block in blocks]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 4


def test_what_the_time_did_not_do_for_is_a_row_that_says_so() -> None:
    row, nothing = WORKLOADS[0], None
    said: list[str] = []
    kept: list[Any] = []
    stores: Any = (nothing, nothing, nothing)  # nobody is asked
    bench = Bench(*stores, seconds=1.0, processes=2, say=said.append, keep=kept.append, until=0.0)
    cases = [Case(row, row.workload(size), 0) for size in row.batch_sizes]
    asyncio.run(bench._compare_in_time(cases))
    documents = [asyncio.run(bench._told(case)) for case in cases]
    assert {document["error"] for document in documents} == {"not begun: the time was over"}
    assert {document["name"] for document in documents} == {row.name}


def test_a_choice_that_leaves_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--workloads", "1", "--only", WORKLOADS[-1].name])
    assert "none of these is among the first 1 workloads" in capsys.readouterr().err
