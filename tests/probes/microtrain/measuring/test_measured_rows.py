"""Plans that had no step say why."""

from __future__ import annotations

import time

import pytest

from probes.microtrain.measuring.contest import Contest
from probes.microtrain.measuring.measure_job import parse_measure_job
from probes.microtrain.measuring.measured_rows import MeasuredRows
from probes.workload.description import ModelDescription, Plan, Workload
from probes.workload.models import parse_model, python_model


@pytest.mark.parametrize(
    ("model", "said"),
    [(python_model("train:make_model"), "Your function had given no model"), (parse_model("iris-mlp"), "not built")],
)
def test_what_was_not_built_in_time_is_a_model_or_waits_for_the_users_function(
    model: ModelDescription, said: str
) -> None:
    workload, plan = Workload(model, 4), Plan("cpu", "fp32", 1)
    document = {"kind": "measure", "plans": [plan.to_json()], "batch_sizes": [4], "seconds": 3.0}
    now = time.perf_counter()
    (row,) = MeasuredRows(parse_measure_job(document, workload), now, Contest([], now), {}, {}, {}).all([])
    assert row.outcome == "failed"
    assert row.reason is not None
    assert said in row.reason
