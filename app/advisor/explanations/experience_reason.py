"""The reason that says what other models' measurements changed about the recommended plan's time."""

from __future__ import annotations

import math

from app.advisor.explanations.words import say_percent
from app.advisor.recommendation import Reason
from app.advisor.time_model.step_time import PlanTime

# Less than this changes nothing that anybody would do.
WORTH_TELLING = 0.02


def explain_experience(time: PlanTime | None, batch_size: int, data: str) -> Reason | None:
    """None where the plan's own measurements answer, or nothing like it was measured here."""
    if time is None or time.experience is None:
        return None
    estimate, learned = time.at(batch_size, data), time.learned(batch_size)
    if estimate is None or estimate.basis != "predicted" or learned.weight <= 0:
        return None
    if estimate.within is not None:  # a measurement, carried so far that it is no more than predicted
        return None
    voices = time.experience.voices(time.plan, batch_size)
    if not voices:
        return None
    count, factor = len(voices), math.exp(learned.log_ratio)
    numbers = {
        "workloads": count,
        "measurements": sum(len(rows) for rows in voices.values()),
        "factor": factor,
        "likeness": learned.weight,
        "scatter": learned.scatter,
    }
    who = f"{count} other workload{'s' if count != 1 else ''} that ran here"
    what = "was" if count == 1 else "were"
    if abs(factor - 1) < WORTH_TELLING:
        text = f"{who}, more or less like this one, {what} about as fast as predicted: the time stays as it is."
    else:
        more = "longer" if factor > 1 else "shorter"
        text = (
            f"The time is {say_percent(abs(factor - 1))} {more} than profile and trace predict, because {who}, more or "
            f"less like this one, {what}, too."
        )
    return Reason("learned-from-like-models", text[0].upper() + text[1:], numbers)
