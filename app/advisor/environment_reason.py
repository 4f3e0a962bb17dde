"""The reason that says what an environment saves here; nothing is said where it does not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

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
    exports = export_lines(gain.plan)
    text = (
        f"With `{'; '.join(exports)}` before Python starts, the allocator keeps memory between steps instead of having "
        f"the kernel zero it anew: a step takes {say_seconds(gain.step.median)} instead of "
        f"{say_seconds(gain.control.median)}, {say_percent(gain.share)} less, measured in turns in two fresh processes "
        "at this batch size. The process holds on to its peak of memory for that."
    )
    numbers = {
        "export": exports,
        "gain": gain.share,
        "step_seconds": asdict(gain.step),
        "without_seconds": asdict(gain.control),
        "batch_size": gain.batch_size,
    }
    return Reason("environment-pays", text, numbers)
