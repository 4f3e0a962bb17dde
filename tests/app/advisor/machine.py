"""A made-up machine whose truth is known: what it would measure, so that what the advisor concludes can be checked.

Its figures mean nothing; they only have to hang together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.advisor.summary import trace_of_summary
from probes.measurement import Timing
from probes.points import NetworkPoint, Point
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan, Workload
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_summary

GPU = Plan("cuda:0", "fp32")


@dataclass(frozen=True)
class Truth:
    """Of one plan: flops and bytes a second, seconds an operation, and what work costs more inside a step."""

    rate: float
    bandwidth: float
    dispatch: float
    heavy: float = 1.0
    light: float = 2.0

    def step_seconds(self, trace: Trace, batch_size: int, *, on_device: bool) -> float:
        host = device = 0.0
        for operation in trace.operations:
            moved = operation.read_bytes.at(batch_size) + operation.written_bytes.at(batch_size)
            flops = operation.flops.at(batch_size)
            alone = (
                self.heavy * flops / self.rate if operation.kind == "matmul" else self.light * moved / self.bandwidth
            )
            device += operation.count * alone
            host += operation.count * self.dispatch
        return max(host, device) if on_device else host + device


TRUTHS: tuple[tuple[Plan, Truth], ...] = (
    (ONE, Truth(5e10, 1e10, 5e-6)),
    (TWO, Truth(9e10, 1.5e10, 9e-6)),
    (ONE_BF16, Truth(1e10, 1e10, 9e-6)),
    (TWO_BF16, Truth(2e10, 1.5e10, 15e-6)),
    (GPU, Truth(1e13, 5e11, 8e-6)),
)
NETWORKS = (
    (1e5, 1e4, 20, 16),
    (1e7, 1e5, 40, 32),
    (1e8, 1e6, 60, 8),
    (1e8, 1e7, 100, 16),
    (1e6, 1e7, 30, 32),
    (1e9, 1e6, 50, 4),
    (1e10, 1e8, 80, 64),
)


def truth_of(plan: Plan) -> Truth:
    return next(truth for known, truth in TRUTHS if known == plan)


def true_seconds(plan: Plan, workload: Workload, batch_size: int) -> float:
    return truth_of(plan).step_seconds(trace_of_summary(workload), batch_size, on_device=not plan.is_cpu)


def a_profile(plans: Sequence[Plan] = (ONE, TWO, ONE_BF16, TWO_BF16), fingerprint: str = "f") -> Profile:
    """What a calibration of the made-up machine would have found, without noise."""
    return Profile(
        name="made-up",
        created_at="2026-11-21T09:02:11Z",
        fingerprint=fingerprint,
        machine="a made-up machine",
        software={"torch": "2.13.0"},
        effort="quick",
        duration_seconds=30.0,
        noise={},
        points=tuple(point for plan in plans for point in _points(plan, truth_of(plan))),
        networks=tuple(_network(index, plan) for plan in plans for index in range(len(NETWORKS))),
        process_base_bytes=300_000_000,
        context_bytes={"cuda:0": 500_000_000},
    )


def _points(plan: Plan, truth: Truth) -> list[Point]:
    points = [_point("dispatch", plan, {}, 0, 0, truth.dispatch)]
    for size in (32, 128, 512, 2048):
        flops, moved = 2.0 * size**3, 12.0 * size**2
        points.append(_point("matmul", plan, {"n": size}, flops, moved, truth.dispatch + flops / truth.rate))
    points += [
        _point("bandwidth", plan, {}, 0, size, truth.dispatch + size / truth.bandwidth) for size in (1e4, 1e6, 1e8)
    ]
    return points if plan.is_cpu else [*points, *_device_points(plan)]


def _device_points(plan: Plan) -> list[Point]:
    copies = [
        _point("transfer", plan, {"pinned": pinned}, 0, size, 1e-5 + size / rate)
        for pinned, rate in ((0.0, 5e9), (1.0, 2e10))
        for size in (1e3, 1e6, 1e8)
    ]
    return [_point("synchronize", plan, {}, 0, 0, 20e-6), *copies]


def _point(
    constant: str, plan: Plan, parameters: dict[str, float], flops: float, moved: float, seconds: float
) -> Point:
    return Point(constant, plan, parameters, flops, moved, Timing.from_samples([seconds] * 3))


def _network(index: int, plan: Plan) -> NetworkPoint:
    flops, activations, operations, batch = NETWORKS[index]
    model = a_summary(
        parameters=100_000, flops_per_sample=flops, activation_bytes_per_sample=activations, operations=operations
    )
    workload = Workload(model, batch)
    seconds = true_seconds(plan, workload, batch)
    return NetworkPoint(f"network {index}", batch, plan, Timing.from_samples([seconds] * 3), trace_of_summary(workload))
