"""What a calibration timed: constants one by one, and whole steps of micro-networks. Part of a profile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from probes.measurement import Timing
from probes.reckoned import told_if_reckoned
from probes.trace import Trace
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class Point:
    """One constant, measured once over: `seconds` for ONE execution of what `parameters` describe.

    constant: one of the names in `probes.microtrain.constants` (dispatch, matmul, convolution, bandwidth, …).
    parameters: sizes that tell points of one constant apart (m, n, k; bytes; …). flops, bytes: moved and computed
    by one execution, 0 where it makes no sense. reckoned: see probes.context.Context.
    """

    constant: str
    plan: Plan
    parameters: dict[str, float]
    flops: float
    bytes: float
    seconds: Timing
    reckoned: bool = False


@dataclass(frozen=True, slots=True)
class NetworkPoint:
    """A whole micro-network's step under a plan: what operations cost in context. page_faults: of a step, counted while
    it was timed. reckoned: see probes.context.Context."""

    name: str
    batch_size: int
    plan: Plan
    seconds: Timing
    trace: Trace
    page_faults: float = 0.0
    reckoned: bool = False


def point_to_json(point: Point, plan: int) -> dict[str, Any]:
    row = asdict(point)
    del row["reckoned"]
    return {**row, "plan": plan, **told_if_reckoned(point)}


def network_to_json(point: NetworkPoint, plan: int, trace: int) -> dict[str, Any]:
    return {
        "name": point.name,
        "batch_size": point.batch_size,
        "plan": plan,
        "seconds": asdict(point.seconds),
        "page_faults": point.page_faults,
        "trace": trace,
        **told_if_reckoned(point),
    }
