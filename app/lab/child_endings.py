"""How a measuring process ended, in words: what became of it, and what would help."""

from __future__ import annotations

from probes.oom_kills import is_killed_for_memory

# What a job that took too long is called, and what would help.
OVERDUE = {
    "trace": ("trace", "A quieter machine would do, or a smaller model."),  # who asks knows whether it can be measured
    "measure": ("measurement", "A smaller batch or model, fewer plans or more time would do."),
    "calibrate": (
        "calibration",
        "The machine is too busy or too slow, or a device does not answer; a quieter machine, or fewer devices (cpu "
        "alone leaves cards out), would do.",
    ),
    "experiment": ("experiment", "Fewer epochs or devices would do."),
}
# What would help where one was killed for want of memory; the rest of a sentence.
KILLED = {
    "trace": "a smaller model would do",
    "measure": "a smaller batch or model would do",
    "calibrate": "a calibration takes more than was free, and steps of your own model may still be measured (effort "
    "quick)",
    "experiment": "more memory would do, or fewer devices",
}


# Stands in what is said of a model of the user's own that was not there in time: no step of it could be run either.
NOT_RETURNED = "your function had not returned"


def say_overdue(kind: str, seconds: float, *, calling: bool = False) -> str:
    """kind: of the job. calling: it waited for the user's own function."""
    what, remedy = OVERDUE.get(kind, ("job", "More time would do."))
    if calling:
        return f"The {what} was ended after {seconds:.0f} seconds: {NOT_RETURNED}. One that returns sooner would do."
    return f"The {what} was ended after {seconds:.0f} seconds, its deadline. {remedy}"


def say_killed(kind: str, kills_before: int | None, kills_after: int | None) -> str:
    """kind: of the job; empty: of none. The others as is_killed_for_memory takes them."""
    remedy = KILLED.get(kind, "more memory would do")
    for_memory = is_killed_for_memory(kills_before, kills_after)
    if for_memory is None:
        return f"The measuring process was killed, perhaps by the kernel for want of memory: if so, {remedy}."
    if for_memory:
        return f"The measuring process was killed, most likely by the kernel for want of memory: {remedy}."
    return (
        "The measuring process was killed, and not by the kernel for want of memory: by somebody, or by a program that "
        "watches this machine. Try again; if such a program did it for memory, "
        f"{remedy}."
    )
