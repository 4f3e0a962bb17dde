"""The reason that tells that this machine is slower for good than when it was calibrated."""

from __future__ import annotations

from collections.abc import Mapping

from app.advisor.explanations.words import say_list, say_ratio
from app.advisor.recommendation import Reason


def explain_slower(calibrated: Mapping[int, float], now: Mapping[int, float]) -> Reason | None:
    """None where it is not. calibrated, now: by threads, seconds of fixed work on cores as quick as they get
    (app.answering.lasting_paces)."""
    slower = {threads: now[threads] / pace for threads, pace in calibrated.items() if now.get(threads, 0.0) > pace}
    if not slower:
        return None
    counts = f"{say_list([str(count) for count in sorted(slower)])} {'thread' if [*slower] == [1] else 'threads'}"
    text = (
        f"In none of the last measurements with {counts}, over an hour and more, were this machine's cores as quick as "
        f"when it was calibrated: the same work took {say_ratio(min(slower.values()))} as long at least, as with a "
        "lower clock (a power limit, a battery). So what was measured with as many now is told as it was. What is "
        "predicted is of the quicker machine until more than half of the calibrations are of this one: calibrate again "
        "if it stays so."
    )
    numbers = {str(threads): times for threads, times in slower.items()}
    return Reason("slower-than-calibrated", text, {"times_as_long": numbers})
