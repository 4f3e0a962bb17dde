"""How the time of an answer is divided between its contest and the trials of variants after it."""

from __future__ import annotations

from collections.abc import Sequence

from probes.workload.description import Plan, Workload

# Turns that each of the two gets: two at least, for one each cannot tell an environment from a busy moment. Each is in
# a process of its own where the time does for two such.
LEAST_TURNS = 2
# A turn warms up and takes samples; shorter ones would be all warm-up.
LEAST_TURN_SECONDS = 1.0
# Of so many steps. Long ones are a sample each: where a turn would be longer than this, it has fewer of them, down to a
# first, a second and three more, which also do for what is kept of a job's time for the parts of a step.
STEPS_A_TURN, LONG_TURN_SECONDS, FEWEST_STEPS = 8, 4.0, 5
# On top of a fresh process's first turn: it imports what torch's first optimizer wants (0.85 s on two cores of an Intel
# Xeon with AMX), and what builds a config's model (another 1.0 s there).
IMPORT_SECONDS, IMPORT_CONFIGS_SECONDS = 1.0, 1.0
# Of the time for measuring, kept back for this; the plans' own contest comes first. More where the model is likely to
# be compiled: such steps are short, and the contest needs little.
SHARE, SHARE_COMPILING = 0.4, 0.65
# The variant's and its control's.
PROCESSES = 2
# Compiling seven small layers took 15 s for inference and 21 s for training on two cores of 2025, nothing cached.
LEAST_COMPILE_SECONDS = 20.0


def preparing_seconds(workload: Workload) -> float:
    """From when a fresh process is ready until it has imported what a model of this workload needs."""
    return IMPORT_SECONDS + (IMPORT_CONFIGS_SECONDS if workload.model.kind == "huggingface" else 0.0)


def least_turn_seconds(step_seconds: float | None, begin_seconds: float = 0.0) -> float:
    """step_seconds: of the plan that is varied, as far as is known. begin_seconds: before a job's first step, as the
    model is built anew for each."""
    step = step_seconds or 0.0
    steps = min(STEPS_A_TURN * step, max(LONG_TURN_SECONDS, FEWEST_STEPS * step))
    return begin_seconds + max(LEAST_TURN_SECONDS, steps)


def least_seconds(start_seconds: float, turn_seconds: float = LEAST_TURN_SECONDS, *, compiled: bool) -> float:
    """Below which a trial tells nothing. start_seconds: until a process has imported what its model needs."""
    turns = PROCESSES * (start_seconds + LEAST_TURNS * turn_seconds)
    return turns + LEAST_COMPILE_SECONDS if compiled else turns


def seconds_kept_back(
    variants: Sequence[Plan], seconds: float, start_seconds: float, turn_seconds: float = LEAST_TURN_SECONDS
) -> float:
    """Of the time for measuring, for trials of these after the contest; 0 where it would not do for one."""

    def do(kept: float, *, compiled: bool) -> bool:
        wanted = any(plan.compiled == compiled for plan in variants)
        return wanted and kept >= least_seconds(start_seconds, turn_seconds, compiled=compiled)

    if do(SHARE_COMPILING * seconds, compiled=True):
        return SHARE_COMPILING * seconds
    return SHARE * seconds if do(SHARE * seconds, compiled=False) else 0.0


def affordable(
    variants: Sequence[Plan], seconds: float, start_seconds: float, turn_seconds: float = LEAST_TURN_SECONDS
) -> list[tuple[Plan, float]]:
    """Each variant with its part of the time, in their order: those for which the time does, the rest shared evenly."""
    chosen: list[tuple[Plan, float]] = []
    for plan in variants:
        least = least_seconds(start_seconds, turn_seconds, compiled=plan.compiled)
        if least <= seconds:
            chosen.append((plan, least))
            seconds -= least
    return [(plan, least + seconds / len(chosen)) for plan, least in chosen]
