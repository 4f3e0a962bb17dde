"""Which plan of a measurement has its turn first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.plan_order import in_turn
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model

ONE, BF16 = Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)
TWO, BF16_TWO, CARD = Plan("cpu", "fp32", 2), Plan("cpu", "bf16", 2), Plan("cuda:0", "fp32")
ON_CPU = (ONE, BF16, TWO, BF16_TWO)


@pytest.mark.parametrize(
    ("plans", "expected", "begun"),
    [
        (ON_CPU, [1.5, 4.0, 5000.0, 30.0], [ONE, BF16, BF16_TWO, TWO]),
        (ON_CPU, [1.5, 4.0, 5000.0, None], [ONE, BF16, BF16_TWO, TWO]),
        (ON_CPU, [100.0, 225.0, 5000.0, None], [BF16_TWO, ONE, BF16, TWO]),  # a step of those known takes too long
        (ON_CPU, [None, None, 5000.0, None], [ONE, BF16_TWO, BF16, TWO]),
        ((ONE, BF16, CARD), [1.0, None, None], [CARD, ONE, BF16]),
        ((ONE, BF16, CARD), [1.0, None, 1e-3], [CARD, ONE, BF16]),
        ((ONE, CARD), [None, 1e-3], [CARD, ONE]),
        ((*ON_CPU, CARD), [], [CARD, TWO, ONE, BF16_TWO, BF16]),
    ],
)  # fmt: skip
def test_what_nothing_is_foretold_of_waits_for_what_is_to_be_done_in_time(
    plans: Sequence[Plan], expected: Sequence[float | None], begun: Sequence[Plan]
) -> None:
    """Its step may outlast all the time, which is then gone for the others."""
    job = MeasureJob(
        Workload(parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [8]}), 4),
        tuple(plans),
        (4,),
        6.0,
        None,
        expected_seconds=tuple(expected),
    )
    assert in_turn(job) == list(begun)
