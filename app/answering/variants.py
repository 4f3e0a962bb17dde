"""Which variants of the recommended plan are worth a trial."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.advisor.denormals import saw_denormals
from app.advisor.environments import KEEP_MEMORY, bare
from app.advisor.plans import capability_of, cuda_accelerators
from app.advisor.recommendation import Option, Recommendation
from app.answering.trial_time import LEAST_COMPILE_SECONDS
from probes.compilers import why_not_compile
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.trace import Trace
from probes.workload.description import Plan, Workload

# Of a step, from which on compiling is tried: below, it saves little, and the trial takes half of all the time.
LAUNCH_SHARE = 0.2
# Sample, channel, height, width: what torch.channels_last is for.
IMAGE_DIMENSIONS = 4
# Compute capability from which Triton makes kernels (torch.utils._triton.has_triton).
TRITON = (7, 0)


class Pace(NamedTuple):
    """Seconds to issue an operation, FLOPs and bytes a second: orders of magnitude, to guess what limits a step where
    nobody has measured it."""

    issue_seconds: float
    flops: float
    bytes: float


ONE_CORE, A_CARD = Pace(4e-6, 5e10, 1e10), Pace(1e-5, 1e13, 5e11)


def environment_here() -> Mapping[str, str] | None:
    """What is worth trying on this machine; None with another C library."""
    return KEEP_MEMORY if _has_glibc() else None


def _has_glibc() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False  # musl knows no such name


def with_a_best(estimate: Recommendation) -> list[Recommendation]:
    """What is worth trying hardly hangs on which plan of a device is best: where no time is known yet, the first of
    each that may fit."""
    if estimate.recommended is not None:
        return [estimate]
    first_on: dict[str, Plan] = {}
    for option in estimate.options:
        if option.fits is not False:
            first_on.setdefault(option.plan.device, option.plan)
    return [replace(estimate, recommended=plan) for plan in first_on.values()]


def variants_of(
    survey: Survey, answer: Recommendation, trace: Trace | None, measurements: Sequence[Measurement]
) -> tuple[Plan, ...]:
    """What is worth trying on the recommended plan; the likelier gain first. Denormals and the host's allocator are a
    CPU's. trace: None of a model that cannot be followed."""
    best = answer.recommended
    if best is None:
        return ()
    plan, workload = bare(best), answer.workload
    environment = environment_here() if plan.is_cpu else None
    wanted = (
        (replace(plan, flush_denormal=True), plan.is_cpu and makes_denormals(measurements, plan, workload)),
        (replace(plan, compiled=True), not _is_too_old(survey, plan) and compiling_may_pay(answer, trace)),
        (replace(plan, channels_last=True), trace is not None and channels_can_lie_last(trace)),
        (replace(plan, environment=dict(environment or {})), environment is not None),
    )
    return tuple(variant for variant, is_wanted in wanted if is_wanted)


def channels_can_lie_last(trace: Trace) -> bool:
    """Whether a convolution has images that lie otherwise then: of several channels, and of several places. Signals
    stay as they are; for volumes torch has another layout, and refuses this one for the whole model."""
    shapes = [shape for each in trace.operations if each.kind == "convolution" for shape in each.shapes]
    images = (shape for shape in shapes if len(shape) == IMAGE_DIMENSIONS)
    volumes = any(len(shape) > IMAGE_DIMENSIONS for shape in shapes)
    return not volumes and any(channels > 1 and height * width > 1 for _, channels, height, width in images)


def _is_too_old(survey: Survey, plan: Plan) -> bool:
    """Of a card whose capability nobody knows it is tried."""
    cards = (card for card in cuda_accelerators(survey) if card.torch_device == plan.device)
    return any((0, 0) < capability_of(card) < TRITON for card in cards)


def makes_denormals(measurements: Sequence[Measurement], plan: Plan, workload: Workload) -> bool:
    """Whether its steps did. Where none was looked at: the user's own code may, random data alone does not."""
    seen = saw_denormals(measurements, plan, workload.batch_size)
    return workload.model.kind == "python" if seen is None else seen


def compiling_may_pay(answer: Recommendation, trace: Trace | None) -> bool:
    """Where torch.compile can run, the host's issuing of operations is a real share of the best plan's step, the run is
    not over sooner than compiling, and the model's owner has not had it compiled."""
    option = plain_option(answer)
    if option is None or (trace is not None and trace.compiled):
        return False
    share, plan = launch_share(option), option.plan
    if share is None:
        share = 0.0 if trace is None else guess_launch_share(trace, answer.workload.batch_size, on_cpu=plan.is_cpu)
    return share >= LAUNCH_SHARE and _outlasts_compiling(answer) and why_not_compile(plan.device) is None


def _outlasts_compiling(answer: Recommendation) -> bool:
    """A run does, for all that is known, whose length or steps' time nobody told."""
    steps, seconds = answer.workload.steps, seconds_of_best(answer)
    return steps is None or seconds is None or steps * seconds >= LEAST_COMPILE_SECONDS


def launch_share(option: Option) -> float | None:
    launch, seconds = option.breakdown_seconds.launch, option.step_seconds
    return None if launch is None or seconds is None else launch / seconds.median


def guess_launch_share(trace: Trace, batch_size: int, *, on_cpu: bool = True) -> float:
    """From the trace alone. A device computes while the host issues, and what issuing adds to that is its share."""
    pace, operations = ONE_CORE if on_cpu else A_CARD, trace.on(cpu=on_cpu).operations
    computing = sum(
        each.count
        * max(
            each.flops.at(batch_size) / pace.flops,
            (each.read_bytes.at(batch_size) + each.written_bytes.at(batch_size)) / pace.bytes,
        )
        for each in operations
    )
    issuing = pace.issue_seconds * sum(each.count for each in operations)
    if not issuing:
        return 0.0
    return issuing / (issuing + computing) if on_cpu else max(0.0, 1 - computing / issuing)


def plain_option(answer: Recommendation) -> Option | None:
    """The recommended plan's, as torch has it."""
    best = answer.recommended
    return next((each for each in answer.options if best is not None and each.plan.key == bare(best).key), None)


def seconds_of_best(answer: Recommendation) -> float | None:
    """A step's of the recommended plan, as torch has it."""
    option = plain_option(answer)
    return None if option is None or option.step_seconds is None else option.step_seconds.median
