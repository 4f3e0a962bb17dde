"""The answer in one sentence or two."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.advisor.explanations.advice import Advice
from app.advisor.explanations.choice_reasons import is_guess
from app.advisor.explanations.elsewhere import say_where
from app.advisor.explanations.uncopied import say_best_uncopied
from app.advisor.explanations.words import say_bytes, say_list, say_ratio, say_seconds
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Interval, Option
from app.advisor.request import Request
from probes.profile import Profile
from probes.workload.description import PLAN_CHANGES, Plan

ALIKE = 0.05  # of two times: nearer than that, one is not said to be the faster


def say_verdict(
    ranking: Ranking, request: Request, advice: Advice, calibrated: bool, elsewhere: Profile | None = None
) -> str:
    """Where to train, how long a step takes, against what, and whether it fits. elsewhere: the profile of the machine
    that this is about, when it is another one."""
    if elsewhere is not None:
        unknown = f"{advice.why or 'the profile has too few points for it'}. {advice.unknown}"
        return f"On {say_where(elsewhere)}: {_say_verdict(ranking, request, 'there', unknown)}"
    uncalibrated = f"this machine has not been calibrated {'for it' if calibrated else 'yet'}"
    return _say_verdict(ranking, request, "here", f"{advice.why or uncalibrated}. {advice.unknown}")


def _say_verdict(ranking: Ranking, request: Request, where: str, unknown: str) -> str:
    best = ranking.best
    if best is None or best.step_seconds is None:
        return _without_answer(ranking, request, where, unknown)
    verb = "Train" if request.workload.mode == "training" else "Run inference"
    about = "" if best.basis == "measured" else "about "
    head = f"{verb} on {say_plan(best.plan)}: {about}{say_seconds(best.step_seconds.median)} a step"
    uncopied = say_best_uncopied(ranking.unlike, request.workload.data, best.step_seconds.median)
    missing = f" {uncopied}" if uncopied else _say_untimed(ranking)
    if ranking.close:
        others = [say_plan(o.plan) for o in ranking.close if o.plan.key != best.plan.key]
        return f"{head}; too close to call against {_named(others)}{_worth(ranking)}{_fit(best)}.{missing}"
    return f"{head}{_against(ranking, best)}{_fit(best)}.{missing}"


def _say_untimed(ranking: Ranking) -> str:
    """The devices of which no plan has a time, not even one without copies, and some may run: nobody knows whether they
    are the quicker ones. Not the CPU: of what it did not reach in time a reason tells."""
    on_devices = [option for option in ranking.unlike if not option.plan.is_cpu and not option.cannot_run]
    may_run = [option for option in on_devices if option.fits is not False]
    known = [option for option in may_run if (option.step_seconds or option.uncopied_seconds) is not None]
    timed = {option.plan.device for option in known}
    untimed = dict.fromkeys(option.plan.device for option in may_run if option.plan.device not in timed)
    if not untimed:
        return ""
    return f" No time is known yet of {say_list(list(untimed))}, which may be quicker."


def say_plan(plan: Plan) -> str:
    """`cuda:0 in bf16`, `the CPU with 4 threads`, `the CPU in bf16 with one thread`; what is changed of the model,
    too."""
    changes = "".join(f", {PLAN_CHANGES[name]}" for name in plan.changes)
    if not plan.is_cpu:
        return f"{plan.device} in {plan.precision}{changes}"
    precision = "" if plan.precision == "fp32" else f" in {plan.precision}"
    threads = (
        "" if plan.threads is None else " with one thread" if plan.threads == 1 else f" with {plan.threads} threads"
    )
    settings = f" and {' and '.join(sorted(plan.environment))} set" if plan.environment else ""
    return f"the CPU{precision}{threads}{changes}{settings}"


def _without_answer(ranking: Ranking, request: Request, where: str, unknown: str) -> str:
    """Of the plans that were asked for alone, where there may be others."""
    possible = [option for option in ranking.options if option.fits is not False and not option.cannot_run]
    lacking = possible if ranking.untold is None else [ranking.untold]
    if uncopied := say_best_uncopied(lacking, request.workload.data):
        return f"Not known yet. {uncopied}{_beside_untold(ranking)}"
    if not ranking.options or possible:
        return f"Not known yet: {unknown}"
    if all(option.cannot_run for option in ranking.options):
        asked = " as asked" if request.leaves_plans_out else ""
        return f"It cannot run {where}{asked}: {ranking.options[0].why_not}"
    running = [option for option in ranking.options if not option.cannot_run]
    biggest = max(running, key=lambda option: option.max_batch_size or 0)
    small = "No plan that was asked for has room" if request.leaves_plans_out else f"Nothing {where} is big enough"
    whose = f"Of the plans {say_plan(biggest.plan)} comes nearest. " if len(running) > 1 else ""
    return f"{small} for batch size {request.workload.batch_size}. {whose}{biggest.why_not or ''}".strip()


def _beside_untold(ranking: Ranking) -> str:
    """Of the best plan that has a time, where it may be the quicker or not."""
    first, untold = ranking.first, ranking.untold
    if first is None or first.judged_seconds is None or untold is None or untold.uncopied_seconds is None:
        return ""
    spare = first.judged_seconds - untold.uncopied_seconds
    name = say_plan(first.plan)
    name = f"T{name[1:]}" if name.startswith("the ") else name  # a device is called as torch calls it
    return (
        f" {name} takes about {say_seconds(first.judged_seconds)}, which is less only if copying a batch takes more "
        f"than {say_seconds(spare)}."
    )


def _against(ranking: Ranking, best: Option) -> str:
    """What a longer run would be better done with, else the best on the other kind of device, or the runner-up on this
    one; the runner-up as well where it cannot be told from the best: the answer may be wrong by that one."""
    timed = [o for o in ranking.unlike if o is not best and o.step_seconds is not None and o.fits is not False]
    if not timed or best.step_seconds is None:
        return ""
    if (passed_over := ranking.passed_over) is not None:
        return f", preferred to {say_plan(passed_over.plan)}, whose start this run is too short to repay"
    elsewhere = [option for option in timed if option.plan.is_cpu != best.plan.is_cpu]
    other = elsewhere[0] if elsewhere else timed[0]
    if other.step_seconds is None:
        return ""
    if (is_guess(best) or is_guess(other)) and not _suffer_alike(best, other):
        return _against_guess(best, other, best.step_seconds, other.step_seconds)
    near = ranking.near
    is_told = near is not None and near is not other and not is_guess(near) and not is_guess(best)
    named = [near, other] if near is not None and is_told else [other]
    return f", {' and '.join(_times_as_fast(best.step_seconds, each) for each in named)}"


def _times_as_fast(best: Interval, other: Option) -> str:
    ratio = 1.0 if other.step_seconds is None else other.step_seconds.median / best.median
    times = "about" if abs(ratio - 1) < ALIKE else say_ratio(ratio)
    return f"{times} as fast as {say_plan(other.plan)}"


def _suffer_alike(one: Option, other: Option) -> bool:
    """What others do to the two leaves their ratio as it is on a calm machine."""
    if one.slowed is None or other.slowed is None or not (one.crowded and other.crowded):
        return False
    return one.plan.threads == other.plan.threads and math.isclose(one.slowed, other.slowed)


def _against_guess(best: Option, other: Option, best_seconds: Interval, other_seconds: Interval) -> str:
    """Where the median of one of the two lies between extremes: how much it is at least, where these are apart."""
    least = other_seconds.low / (best_seconds.high if is_guess(best) else best_seconds.median)
    if other_seconds.low >= best_seconds.high and least >= 1 + ALIKE:
        return f", at least {say_ratio(least)} as fast as {say_plan(other.plan)}"
    if best.crowded or other.crowded:
        is_less = best.plan.threads == other.plan.threads and best_seconds.median < other_seconds.median
        how = f"likely less than {say_plan(other.plan)} takes" if is_less else f"preferred to {say_plan(other.plan)}"
        return f", {how} while others hold cores"
    is_less = best_seconds.median < other_seconds.median
    how = f"likely less than {say_plan(other.plan)} takes" if is_less else f"preferred to {say_plan(other.plan)}"
    return f", {how}, by times that others may have lengthened"


def _worth(ranking: Ranking) -> str:
    """Of the head against those that cannot be told from it."""
    if not ranking.as_cheap:
        return ", and it is the cheaper choice"
    if len(ranking.as_cheap) < len(ranking.close) - 1:
        return ", none of which is cheaper"
    return ", and either will do" if len(ranking.close) == 2 else ", and any of them will do"


def _fit(best: Option) -> str:
    memory = best.memory
    if memory.peak_bytes is None or memory.available_bytes is None:
        return ""
    spare = memory.available_bytes - memory.peak_bytes
    return f"; it fits with {say_bytes(spare)} to spare" if spare > 0 else "; it fits, with nothing to spare"


def _named(names: Sequence[str]) -> str:
    shown = list(names[:2])
    if len(names) > 2:
        shown.append(f"{len(names) - 2} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
