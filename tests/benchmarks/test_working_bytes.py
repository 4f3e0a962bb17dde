"""What libraries take is fitted to networks that no estimate is judged by."""

from __future__ import annotations

from typing import Any

from benchmarks.memory import RANDOM, chosen_cases, drawn_cases
from benchmarks.memory import SEED as JUDGED
from benchmarks.working_bytes import SEED, config_cases, describe_medians, layer_cases, medians
from benchmarks.workloads import WORKLOADS
from probes.workload.description import Workload


def keys(workloads: list[Workload]) -> set[str]:
    return {workload.model.key for workload in workloads}


def test_none_of_them_is_judged() -> None:
    assert SEED != JUDGED
    fitted = keys([case.workload for case in (*config_cases(), *layer_cases(8))])
    judged = keys([case.workload for case in (*chosen_cases(), *drawn_cases(RANDOM, JUDGED))])
    assert len(fitted) > len(config_cases()) // 2
    assert not fitted & judged
    types = {row.model["huggingface"]["model_type"] for row in WORKLOADS if "huggingface" in row.model}
    assert not types & {case.row.name for case in config_cases()}


def test_both_modes_are_looked_at() -> None:
    for cases in (config_cases(), layer_cases(4)):
        assert {case.workload.mode for case in cases} == {"training", "inference"}


def test_every_drawn_network_trains_and_no_case_is_there_twice() -> None:
    cases = layer_cases(24)
    named = [(case.row.name, case.workload.mode, case.precision) for case in cases]
    assert len(set(named)) == len(named)
    names = {case.row.name for case in cases}
    for mode, precision in (("training", "fp32"), ("training", "bf16"), ("inference", "fp32")):
        assert {name for name, *how in named if how == [mode, precision]} == names
    assert {case.row.mode for case in cases} == {"training", "inference"}  # as they were drawn


def a_row(libraries: int, *, convolves: bool = False, kind: str = "layers") -> dict[str, Any]:
    return {"kind": kind, "mode": "training", "convolves": convolves, "libraries_bytes": libraries}


def test_medians_are_by_kind_and_mode_and_convolutions_come_on_top() -> None:
    rows = [a_row(80_000_000), a_row(90_000_000), a_row(120_000_000), a_row(97_000_000, convolves=True)]
    rows += [a_row(160_000_000, kind="huggingface"), {"failed": "It did not run."}]
    found = medians(rows)
    assert found["working"] == {"huggingface, training": 160_000_000, "layers, training": 90_000_000}
    assert found["convolutions"] == 7_000_000
    assert found["rows"] == {"huggingface, training": 1, "layers, training": 3, "convolutions": 1}
    assert "layers, training: 90.0 MB (3 rows)" in describe_medians(found)


def test_where_no_row_tells_nothing_is_said() -> None:
    found = medians([a_row(97_000_000, convolves=True)])
    assert (found["working"], found["convolutions"]) == ({}, None)
    assert describe_medians(found) == "convolutions: not known (0 rows)"
