"""What is collected of a machine is what estimates are judged by."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.collect import describe_workload, judged_rows
from benchmarks.workloads import WORKLOADS
from probes.workload.description import Workload


def test_a_judged_model_is_collected_as_it_is_judged_but_for_where_its_batches_lie() -> None:
    collected = [Workload.from_json(describe_workload(row)) for row in judged_rows()]
    assert collected == [replace(row.workload(), data="resident") for row in WORKLOADS]
    assert {workload.optimizer for workload in collected} > {"adamw"}
