"""Which plan of a measurement has its turn first: the time may not do for all."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from probes.microtrain.measuring.contest import SLOW
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.workload.description import Plan


def foretold_seconds(job: MeasureJob) -> dict[Hashable, float]:
    """Of a step, by the plan's key, where it was foretold."""
    foretold = zip((plan.key for plan in job.plans), job.expected_seconds, strict=False)
    return {key: seconds for key, seconds in foretold if seconds is not None}


def in_turn(job: MeasureJob) -> list[Plan]:
    """The job's plans, what is foretold to be fast first. Every processor computes in fp32, and some take dozens of
    times as long for anything else."""
    expected = foretold_seconds(job)

    def turn(plan: Plan) -> tuple[float, bool, bool, int]:
        seconds = expected.get(plan.key)
        if seconds is None:
            seconds = _as_if_foretold(plan, job, expected)
        return seconds, plan.is_cpu, plan.precision != "fp32", -(plan.threads or 0)

    return sorted(job.plans, key=turn)


def _as_if_foretold(plan: Plan, job: MeasureJob, expected: Mapping[Hashable, float]) -> float:
    """Seconds by which a plan has its turn of which nothing is. Its step may outlast all the time, so it waits for
    those foretold to be done in it and not slow, of which each may be the best: the others would say no more than
    that they are not. Not on a device, which where steps are long is faster than the CPU."""
    if not expected or not plan.is_cpu:
        return 0.0
    on_cpu = [expected[other.key] for other in job.plans if other.is_cpu and other.key in expected]
    return min(job.seconds, SLOW * min(on_cpu or expected.values()))
