"""Settings follow from what was measured, and from how the batches of the times told arrive."""

from __future__ import annotations

import pytest

from app.advisor import Recommendation, Request, recommend
from probes.measurement import Overheads
from probes.workload.description import Data, Plan
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_survey, a_workload


def answer(plan: Plan, data: Data, transfer: float) -> Recommendation:
    """Of a step of a second, in which copying the batch takes so long."""
    parts = Overheads(transfer_seconds=transfer, launch_seconds=0.1, compute_seconds=0.9 - transfer)
    row = a_measurement(plan, 16, 1.0, data=data, overheads=parts)
    request = Request(a_workload(16, data=data), precision="fp32", devices=(plan.device,))
    return recommend(a_survey(gpus=[a_gpu()]), None, None, [row], request)


@pytest.mark.parametrize(
    ("plan", "data", "transfer", "told"),
    [
        (Plan("cuda:0"), "pinned", 0.0, True),
        (Plan("cuda:0"), "pinned", 0.2, True),
        (Plan("cuda:0"), "pageable", 0.2, True),
        (Plan("cuda:0"), "pageable", 0.01, False),
        (Plan("cuda:0"), "resident", 0.0, False),
        (ONE, "pinned", 0.0, False),
    ],
)
def test_memory_is_pinned_where_it_was_timed_so_or_pays(plan: Plan, data: Data, transfer: float, told: bool) -> None:
    found = answer(plan, data, transfer)
    assert found.recommended == plan
    assert found.settings.get("pin_memory", False) is told
    is_timed = not plan.is_cpu and data == "pinned"
    assert ("pin_memory()" in (found.snippet or "")) is is_timed
