"""How the time of an answer is divided between its contest and the trials of variants after it."""

from __future__ import annotations

from collections.abc import Sequence

from probes.workload.description import Plan, Workload

# Turns that each of the two gets: two at least, for one each cannot tell an environment from a busy moment. Each is in
# a process of its own where the time does for two such.
LEAST_TURNS = 2
# A turn builds the model, warms up and takes samples; shorter ones would be all warm-up.
LEAST_TURN_SECONDS = 1.0
STEPS_A_TURN = 8
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
    """From when a fresh process is ready until it has a model of this workload to run."""
    return IMPORT_SECONDS + (IMPORT_CONFIGS_SECONDS if workload.model.kind == "huggingface" else 0.0)


def least_turn_seconds(step_seconds: float | None) -> float:
    """step_seconds: of the plan that is varied, as far as is known."""
    return max(LEAST_TURN_SECONDS, STEPS_A_TURN * (step_seconds or 0.0))


def least_seconds(start_seconds: float, step_seconds: float | None = None, *, compiled: bool) -> float:
    """Below which a trial tells nothing. start_seconds: until a process has a model to run."""
    turns = PROCESSES * (start_seconds + LEAST_TURNS * least_turn_seconds(step_seconds))
    return turns + LEAST_COMPILE_SECONDS if compiled else turns


def seconds_kept_back(
    seconds: float, start_seconds: float, step_seconds: float | None = None, *, compiling: bool = False
) -> float:
    """Of the time for measuring, for trials after the contest; 0 where it would not do for one."""
    if compiling and SHARE_COMPILING * seconds >= least_seconds(start_seconds, step_seconds, compiled=True):
        return SHARE_COMPILING * seconds
    kept = SHARE * seconds
    return kept if kept >= least_seconds(start_seconds, step_seconds, compiled=False) else 0.0


def affordable(
    variants: Sequence[Plan], seconds: float, start_seconds: float, step_seconds: float | None = None
) -> list[tuple[Plan, float]]:
    """Each variant with its part of the time, in their order: those for which the time does, the rest shared evenly."""
    chosen: list[tuple[Plan, float]] = []
    for plan in variants:
        least = least_seconds(start_seconds, step_seconds, compiled=plan.compiled)
        if least <= seconds:
            chosen.append((plan, least))
            seconds -= least
    return [(plan, least + seconds / len(chosen)) for plan, least in chosen]
