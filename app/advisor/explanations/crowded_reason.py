"""The reason that says what follows from cores that others hold."""

from __future__ import annotations

from collections.abc import Sequence

from app.advisor.crowding import Crowd
from app.advisor.explanations.words import say_percent
from app.advisor.recommendation import Option, Reason


def explain_crowd(crowd: Crowd | None, options: Sequence[Option], best: Option | None) -> Reason | None:
    """Told where some plan for the CPU that may run needs a core that others hold."""
    if crowd is None:
        return None
    may_run = [option for option in options if option.fits is not False and not option.cannot_run]
    exposed = [option for option in may_run if crowd.exposure(option.plan) > 0]
    if not exposed:
        return None
    said = [_who(crowd), _what_follows(exposed), _about_best(crowd, best)]
    numbers = {
        "others_cores": crowd.others,
        "free_cores": crowd.free,
        "usable_cores": crowd.usable,
        "steal_fraction": crowd.load.steal_fraction,
        "cpu_pressure_percent": crowd.load.cpu_pressure_percent,
        "load_average": crowd.load.load_average,
        "plans": [option.plan.label for option in options if option.crowded],
    }
    return Reason("crowded", " ".join(part for part in said if part), numbers)


def _who(crowd: Crowd) -> str:
    if crowd.others is None:
        waited = say_percent((crowd.load.cpu_pressure_percent or 0.0) / 100)
        return f"This machine is crowded: in {waited} of the last ten seconds something had to wait for a core."
    stolen = crowd.load.steal_fraction or 0.0
    kept = f" ({say_percent(stolen)} of all CPU time went to the hypervisor's other machines)" if stolen >= 0.01 else ""
    inside = f" and {crowd.inside:.1f} of the {crowd.usable:g} usable ones," if crowd.is_held_inside else ""
    return (
        f"This machine is crowded: others hold {crowd.others:.1f} of {crowd.online:.0f} cores{kept},{inside} "
        f"{crowd.background:.1f} of them taken for what always runs, and {crowd.free:.1f} of {crowd.usable:g} usable "
        "ones are free."
    )


def _what_follows(exposed: Sequence[Option]) -> str:
    timed = [option for option in exposed if option.step_seconds is not None]
    if not timed:
        return ""
    if not any(option.crowded for option in timed):
        return _what_was_met(timed)
    return (
        "Several threads wait in each operation for the one that lost its core, so a plan with more threads than free "
        "cores is judged by its worst unless it was measured meanwhile."
    )


def _what_was_met(timed: Sequence[Option]) -> str:
    """Of times that others, as they are now, leave as they are."""
    among = [option for option in timed if not option.relieved]
    if not among:
        return (
            "The times here were measured while others held more cores, and lie between what steps took then and the "
            "least that they may take without them."
        )
    at_others = "" if all(option.basis == "measured" for option in among) else ", in part at other batch sizes"
    met = "were" if not at_others else "rest on what was"
    but = "" if len(among) == len(timed) else ", but for those whose notes tell of others who held more cores then"
    return f"The times here {met} measured among them{at_others}, and contain it as far as it could be told{but}."


def _about_best(crowd: Crowd, best: Option | None) -> str:
    if best is None or not best.plan.is_cpu or best.plan.threads is None:
        return ""
    if best.crowded:
        return f"{best.plan.label} suffers from it too: ask again when it is quiet."
    return f"{best.plan.label} suffers least." if crowd.exposure(best.plan) == 0 else ""
