"""The reason that says of a device's plan why it is not recommended though its steps are shorter: the run is over too
soon."""

from __future__ import annotations

from app.advisor.explanations.words import say_duration, say_seconds
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Option, Reason
from probes.workload.description import Workload


def explain_unrepaid(ranking: Ranking, workload: Workload) -> Reason | None:
    """Told of the quickest of such plans whose steps are shorter than those of the recommended one."""
    option = ranking.passed_over
    repaid = None if option is None else ranking.unrepaid.get(option.plan.key)
    if option is None or repaid is None:
        return None
    against = next(other for other in ranking.options if other.plan.key == repaid.against.key)
    text = (
        f"{option.plan.label} does not pay in this run of {workload.steps:,} steps. A step takes {_seconds(option)} "
        f"there and {_seconds(against)} on {against.plan.label}, and its start takes "
        f"{say_duration(repaid.startup_seconds)} more, which {repaid.steps:,} steps repay."
    )
    numbers = {
        "plan": option.plan.label,
        "against": against.plan.label,
        "startup_seconds": repaid.startup_seconds,
        "break_even_steps": repaid.steps,
        "steps": workload.steps,
    }
    return Reason("device-too-late", text, numbers)


def _seconds(option: Option) -> str:
    """As it is judged: of a crowded plan by its worst."""
    return say_seconds(option.judged_seconds or 0.0)
