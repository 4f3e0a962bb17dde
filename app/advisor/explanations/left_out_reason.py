"""Why the answer is without devices that do not have the precision asked for, or plans that nobody calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.advisor.explanations.words import say_list
from app.advisor.recommendation import Reason
from probes.workload.description import Plan, Precision


def explain_left_out(left_out: Mapping[str, Sequence[Precision]], precision: str) -> Reason | None:
    """left_out: by device of which no plan is in that precision, those that it has. None where there is none."""
    if not left_out:
        return None
    told = (f"for {device}, which has {say_list(precisions)}" for device, precisions in left_out.items())
    text = f"There is no plan in {precision} {', and '.join(told)}."
    numbers = {"precision": precision, "precisions": {device: [*having] for device, having in left_out.items()}}
    return Reason("precision-not-there", text, numbers)


def explain_uncalibrated(plans: Sequence[Plan]) -> Reason | None:
    """plans: that are left out, as the profile has nothing with as many threads, nor was one measured near this batch.
    None where there are none."""
    if not plans:
        return None
    labels = [plan.label for plan in plans]
    text = (
        f"This answer is without {say_list(labels)}: nothing was calibrated with as many threads, nor this model "
        "measured with them near this batch. A quick calibration takes some numbers of threads alone, "
        "`crosspoint calibrate --effort full` takes all."
    )
    return Reason("threads-not-calibrated", text, {"plans": labels})
