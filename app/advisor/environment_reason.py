"""The reason that says what a variant saves here; nothing is said where it does not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.advisor.environments import Gain, export_lines
from app.advisor.recommendation import Option, Reason
from app.advisor.words import say_percent, say_seconds


def explain_installed(allocators: Sequence[str]) -> Reason:
    """Told beside an environment that pays: there the allocator matters. They were not tried."""
    names = " and ".join(allocators)
    text = (
        f"{names} {'is' if len(allocators) == 1 else 'are'} installed here as well, and not tried: loading a library "
        f"is for you to decide. `CROSSPOINT_DATA_DIR=$(mktemp -d) LD_PRELOAD={allocators[0]} crosspoint measure MODEL` "
        "measures with it, apart from what is kept here."
    )
    return Reason("allocator-installed", text, {"libraries": list(allocators)})


def explain_environment(gains: Sequence[Gain], best: Option) -> Reason | None:
    """Told of the recommended plan alone."""
    gain = next((gain for gain in gains if gain.plan.key == best.plan.key), None)
    if gain is None:
        return None
    return _explain_layout(gain) if gain.plan.channels_last else _explain_exports(gain)


def _explain_layout(gain: Gain) -> Reason:
    text = (
        f"With `model.to(memory_format=torch.channels_last)` a step takes {_against_control(gain)}: convolutions here "
        "read an image's channels from one place."
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
        "less, measured in turns in two fresh processes at this batch size"
    )


def _numbers(gain: Gain) -> dict[str, Any]:
    return {
        "gain": gain.share,
        "step_seconds": asdict(gain.step),
        "without_seconds": asdict(gain.control),
        "batch_size": gain.batch_size,
    }
