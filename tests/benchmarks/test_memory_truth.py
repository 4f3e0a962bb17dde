"""Rivals of the estimates of memory are held against the truth by what the truth counts."""

from __future__ import annotations

from benchmarks.memory import Case, read_truth
from benchmarks.workloads import Row

FEATURES, BATCH = 1000, 4096


def test_mem_tracker_is_told_of_the_batch() -> None:
    model = {"layers": [{"type": "linear", "out": 10}], "input_shape": [FEATURES]}
    row = Row("wide", "dense", model, (BATCH,))
    truth = read_truth(Case(row, row.workload(), "fp32"), BATCH)
    batch_bytes = 4 * FEATURES * BATCH  # nearly all that this step holds
    assert truth["allocated_bytes"] >= batch_bytes
    assert truth["tracker_bytes"] is not None
    assert truth["tracker_bytes"] >= batch_bytes
