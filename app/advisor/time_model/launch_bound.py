"""How long a device waits for the host to issue a step's operations: predicted, and put right by what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.advisor.curves.crossover import holds_from
from app.advisor.time_model.measured import MeasuredTime
from app.advisor.time_model.predicted import PredictedTime
from probes.measurement import Measurement


def launch_bound_until(
    predicted: PredictedTime, measured: MeasuredTime | None, batch_sizes: Sequence[int]
) -> int | None:
    """The smallest batch from which the device, no longer the host, is the limit at all larger ones looked at; 1 if it
    is at every one of them, None if it is not at the largest. By the prediction, put right by what was measured
    nearest: else an answer would call a batch limited by launching whose step it has just told to be computing."""

    def device_is_the_limit(batch: int) -> bool:
        return predicted.host_share(batch) * longer_than_told(predicted, measured, batch) <= 1.0

    until = holds_from(device_is_the_limit, batch_sizes)
    return 1 if until is not None and until == min(batch_sizes) else until


def longer_than_told(predicted: PredictedTime, measured: MeasuredTime | None, batch_size: int) -> float:
    """How many times as large as predicted the host's share was at the nearest batch at which it was measured; 1 where
    it was at none."""
    rows = {} if measured is None else measured.rows
    shares = {size: share for size, row in rows.items() if (share := _host_share(row)) is not None}
    if not shares:
        return 1.0
    nearest = min(shares, key=lambda size: abs(math.log(size / batch_size)))
    told = predicted.host_share(nearest)
    return shares[nearest] / told if 0 < told < math.inf else 1.0


def _host_share(row: Measurement) -> float | None:
    """How many times as long as the device computed the host took to issue the step; None where it was not measured."""
    overheads, step = row.overheads, row.step
    if overheads is None or step is None or not overheads.launch_seconds:
        return None
    if overheads.device_busy:
        return overheads.launch_seconds / (overheads.device_busy * step.median)
    computes_on = overheads.launch_seconds < (overheads.compute_seconds or 0.0)  # as measured_breakdown has it
    return overheads.launch_seconds / step.median if computes_on else None
