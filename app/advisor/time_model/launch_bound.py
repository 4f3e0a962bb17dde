"""How long a device waits for the host to issue a step's operations: predicted, and put right by what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from app.advisor.curves.crossover import holds_from
from app.advisor.time_model.predicted import PredictedTime
from app.advisor.time_model.two_clocks import TwoClocks


def launch_bound_until(predicted: PredictedTime, clocks: TwoClocks | None, batch_sizes: Sequence[int]) -> int | None:
    """The smallest batch from which the device, no longer the host, is the limit at all larger ones looked at; 1 if it
    is at every one of them, None if it is not at the largest. By the prediction, put right by what was measured: else
    an answer would call a batch limited by launching whose step it has just told to be computing. clocks: None where
    nothing was measured."""

    def device_is_the_limit(batch: int) -> bool:
        issuing = 1.0 if clocks is None else clocks.issuing(batch)
        return predicted.host_share(batch) * issuing <= 1.0

    until = holds_from(device_is_the_limit, batch_sizes)
    return 1 if until is not None and until == min(batch_sizes) else until
