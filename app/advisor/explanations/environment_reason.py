"""The reason that says what a variant saves; nothing is said where it does not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.advisor.denormals import saw_denormals
from app.advisor.environments import Gain, bare, export_lines
from app.advisor.explanations.words import say_duration, say_percent, say_seconds
from app.advisor.recommendation import Option, Reason
from app.advisor.starts import Repaid, Starts
from probes.measurement import Measurement
from probes.workload.description import Workload

# A step's time in its trial and that beside the other plans, from which difference on both are told.
UNLIKE = 0.05


def explain_installed(allocators: Sequence[str]) -> Reason:
    """Told beside an environment that pays: there the allocator matters. They were not tried."""
    names = " and ".join(allocators)
    text = (
        f"{names} {'is' if len(allocators) == 1 else 'are'} installed here as well, and not tried: loading a library "
        f"is for you to decide. `CROSSPOINT_DATA_DIR=$(mktemp -d) LD_PRELOAD={allocators[0]} crosspoint measure MODEL` "
        "measures with it, given the same options, apart from what is kept here."
    )
    return Reason("allocator-installed", text, {"libraries": list(allocators)})


def explain_environment(
    gains: Sequence[Gain], best: Option, starts: Starts, measurements: Sequence[Measurement]
) -> Reason | None:
    """Told of the recommended plan alone. starts: when those to be paid are repaid. measurements: of this workload."""
    gain = next((gain for gain in gains if gain.plan.key == best.plan.key), None)
    if gain is None:
        return None
    reason, told = _explain(gain, starts, measurements), best.step_seconds
    if told is None or abs(told.median / gain.step.median - 1) <= UNLIKE:
        return reason
    also = f"That was in its trial; beside the other plans, as it is ranked, it is {say_seconds(told.median)}."
    return replace(reason, text=f"{reason.text} {also}")


def _explain(gain: Gain, starts: Starts, measurements: Sequence[Measurement]) -> Reason:
    if gain.plan.environment:
        return _explain_exports(gain)
    if gain.plan.compiled:
        return _explain_compiled(gain, starts.get(gain.plan.key))
    if gain.plan.flush_denormal:
        return _explain_flushing(gain, seen=bool(saw_denormals(measurements, gain.plan, gain.batch_size)))
    return _explain_layout(gain)


def explain_too_late(gains: Sequence[Gain], best: Option, starts: Starts, workload: Workload) -> Reason | None:
    """Told of the recommended plan compiled, where a longer run would repay that."""
    for gain in gains:
        repaid = starts.get(gain.plan.key)
        if repaid is None or repaid.within(workload.steps) or bare(gain.plan).key != bare(best.plan).key:
            continue
        text = (
            f"torch.compile does not pay in this run of {workload.steps:,} steps. With it a step takes "
            f"{_against_control(gain)}. {_price(gain, repaid)}"
        )
        return Reason("compile-too-late", text, {**_numbers(gain), **_start(gain, repaid), "steps": workload.steps})
    return None


def _explain_compiled(gain: Gain, repaid: Repaid | None) -> Reason:
    text = (
        f"With `model = torch.compile(model)` a step takes {_against_control(gain)}: operations run together that "
        f"torch otherwise issues one by one. {_price(gain, repaid)}"
    )
    return Reason("compile-pays", text, {**_numbers(gain), **_start(gain, repaid)})


def _price(gain: Gain, repaid: Repaid | None) -> str:
    repay = "" if repaid is None else f", which {repaid.steps:,} steps repay{_against(gain, repaid)}"
    begun = "" if gain.plan.is_cpu else ", the device's start included,"
    return (
        f"The first step takes {say_duration(gain.startup_seconds)}{begun} where nothing was compiled before{repay}; "
        "for inputs of another shape it compiles anew, as for an epoch's last, smaller batch (`drop_last=True` leaves "
        "that out)."
    )


def _against(gain: Gain, repaid: Repaid) -> str:
    """Nothing of the plan that is compiled, against which the step was told."""
    return "" if repaid.against.key == bare(gain.plan).key else f" against {repaid.against.label}"


def _start(gain: Gain, repaid: Repaid | None) -> dict[str, Any]:
    steps = None if repaid is None else repaid.steps
    return {"startup_seconds": gain.startup_seconds, "break_even_steps": steps}


def _explain_flushing(gain: Gain, *, seen: bool) -> Reason:
    """seen: denormals were, in steps; else nobody knows why it gains."""
    cause = ": steps make some, which the CPU computes with slowly" if seen else ""
    text = (
        f"With `torch.set_flush_denormal(True)` before anything is computed a step takes {_against_control(gain)}. "
        f"Numbers too small for a full fraction (denormals) count as 0 then{cause}."
    )
    return Reason("flush-denormal-pays", text, _numbers(gain))


def _explain_layout(gain: Gain) -> Reason:
    text = (
        f"With `model.to(memory_format=torch.channels_last)` a step takes {_against_control(gain)}: convolutions "
        "then read an image's channels from one place."
    )
    return Reason("channels-last-pays", text, _numbers(gain))


def _explain_exports(gain: Gain) -> Reason:
    exports = export_lines(gain.plan)
    text = (
        f"With `{'; '.join(exports)}` before Python starts, the allocator keeps memory between steps instead of having "
        f"the kernel zero it anew: a step takes {_against_control(gain)}. The process holds on to its "
        "peak of memory for that."
    )
    return Reason("environment-pays", text, {"export": exports, **_numbers(gain)})


def _against_control(gain: Gain) -> str:
    return (
        f"{say_seconds(gain.step.median)} instead of {say_seconds(gain.control.median)}, {say_percent(gain.share)} "
        f"less, measured in turns in {2 * gain.processes} fresh processes at this batch size"
    )


def _numbers(gain: Gain) -> dict[str, Any]:
    return {
        "gain": gain.share,
        "processes": 2 * gain.processes,
        "step_seconds": gain.step.median,
        "without_seconds": gain.control.median,
        "batch_size": gain.batch_size,
    }
