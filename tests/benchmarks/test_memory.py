"""The benchmark of memory compares like with like."""

import json
from pathlib import Path

from app.advisor.memory_model.memory import working_bytes
from app.advisor.summary import trace_of_summary
from benchmarks.memory import (
    WORKLOADS,
    Truths,
    accelerate_bytes,
    chosen_cases,
    compare,
    deepspeed_bytes,
    drawn_cases,
    read_base,
    summarise,
)
from benchmarks.random_networks import random_networks
from tests.app.advisor.build import a_workload


def test_every_workload_is_a_case_and_some_are_in_bf16_or_with_another_optimizer() -> None:
    cases = chosen_cases()
    assert {case.row.name for case in cases} == {row.name for row in WORKLOADS}
    assert {case.precision for case in cases} == {"fp32", "bf16"}
    assert {"adamw", "adam", "sgd"} <= {case.workload.optimizer for case in cases}


def test_every_drawn_network_is_a_case_in_both_types() -> None:
    expected = [(row.name, precision) for row in random_networks(3, 7) for precision in ("fp32", "bf16")]
    assert [(case.row.name, case.precision) for case in drawn_cases(3, 7)] == expected


def test_what_real_steps_took_is_kept_and_not_taken_again(tmp_path: Path) -> None:
    case, path = chosen_cases()[0], tmp_path / "truths.json"
    key = json.dumps([case.row.name, case.workload.mode, case.workload.optimizer, case.precision, 16])
    path.write_text(json.dumps({key: {"batch_size": 16}}))
    assert Truths(path).of(case, 16) == {"batch_size": 16}


def a_truth(own_base: int, process: int = 600_000_000) -> dict[str, int]:
    figures = {"allocated_bytes": 10**8, "process_bytes": process, "tracker_bytes": 10**8}
    return {"batch_size": 16, "base_bytes": own_base, **figures}


def test_a_process_is_told_by_the_base_of_another() -> None:
    case, trace = chosen_cases()[0], trace_of_summary(a_workload())
    one, other = (compare(case, trace, a_truth(own), 300_000_000) for own in (1, 10**9))
    assert one["estimated_process_bytes"] == other["estimated_process_bytes"] > 300_000_000
    assert (other["base_bytes"], other["own_base_bytes"]) == (300_000_000, 10**9)


def test_what_libraries_took_is_what_is_left_of_a_process() -> None:
    case, trace = chosen_cases()[0], trace_of_summary(a_workload())
    told = compare(case, trace, a_truth(1), 300_000_000)["estimated_process_bytes"]
    exact = compare(case, trace, a_truth(1, told), 300_000_000)
    assert exact["libraries_bytes"] == working_bytes(trace, "layers")


def test_the_base_is_that_of_a_process_with_torch_in_it_and_nothing_else() -> None:
    assert 50_000_000 < read_base() < 2_000_000_000


def test_the_published_rules_know_parameters_only() -> None:
    training, inference = (trace_of_summary(a_workload(mode=mode)) for mode in ("training", "inference"))
    assert accelerate_bytes(training) == 16 * training.parameters
    assert accelerate_bytes(inference) == 4 * inference.parameters
    assert deepspeed_bytes(training) == 20 * training.parameters
    assert deepspeed_bytes(inference) is None


def test_errors_are_against_the_truth_and_failures_are_shown() -> None:
    row = {
        "family": "dense",
        "allocated_bytes": 100,
        "process_bytes": 200,
        "estimated_process_bytes": 220,
        "estimates": {"ours": 98, "accelerate": 50, "mem_tracker": None, "deepspeed": 100},
    }
    summary = summarise([row, {"family": "dense", "failed": "it did not run"}])
    assert summary["allocated"]["ours"] == {"rows": 1, "median": 0.02, "worst": 0.02}
    assert summary["allocated"]["mem_tracker"]["rows"] == 0
    assert summary["process"]["median"] == 0.1
    assert len(summary["failed"]) == 1
