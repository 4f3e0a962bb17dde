"""What to do about a time that is not known, or was not measured: only what can be done is advised."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.advisor.request import EFFORT_SECONDS, Request

CALIBRATE = "Run `crosspoint calibrate` once"
# Where that was done: a quick one leaves some numbers of threads out, and its time may not do for every plan.
CALIBRATE_IN_FULL = "Run `crosspoint calibrate --effort full`"
LONGER = "measuring for longer (effort thorough, or a higher time limit)"
DESCRIBED = "described by its layers or its config, the model could be measured"
FEWER = "asked for fewer plans (one device, one precision), the time may do for them"
LONGEST = "`crosspoint measure` may take up to an hour for it"
UNTRACED = "this model could not be traced, so only measuring tells its time"


@dataclass(frozen=True, slots=True)
class Advice:
    """Sentences. unknown: what gives a time where none is known. predicted: what measures one that is predicted; empty
    where nothing does. why: why no calibration gives one, to follow "and" or a colon; empty where one does. is_here:
    steps can run on the machine that is asked about."""

    unknown: str
    predicted: str = ""
    why: str = ""
    is_here: bool = True


def advice_for(
    request: Request,
    *,
    elsewhere: bool,
    captured: bool,
    is_calibrated: bool = False,
    untraced: bool = False,
    untold_type: str | None = None,
    unreadable: str | None = None,
) -> Advice:
    """elsewhere: the answer is for the machine of a profile. is_calibrated: there is a profile. captured: this machine
    is known from files alone, so that nothing can run on it. untraced: there is no trace that a profile could price.
    untold_type: of numbers of which the calibration of a plan says nothing. unreadable: why nobody can tell whether
    there is a profile, as a sentence's end.
    """
    measuring = _measuring(request, here=not (elsewhere or captured))
    if untraced:
        return Advice(f"{measuring[0].upper()}{measuring[1:]}.", why=UNTRACED)
    if unreadable is not None and not captured:
        why = f"whether this machine was calibrated cannot be looked up, as {unreadable}"
        return Advice(_until_readable(request, measuring), why=why)
    usual = _usual_advice(request, is_calibrated=is_calibrated, elsewhere=elsewhere, captured=captured)
    if untold_type is None:
        return usual
    return replace(usual, unknown=f"No calibration of such a plan has clocked {untold_type}: {measuring}.")


def _usual_advice(request: Request, *, is_calibrated: bool, elsewhere: bool, captured: bool) -> Advice:
    if elsewhere:
        return Advice("Calibrate that machine again, and import its profile.")
    if captured:
        return Advice(
            "A captured machine can only be read: calibrate the machine itself, import its profile and ask with that "
            "(`--profile NAME`)."
        )
    calibrate = CALIBRATE_IN_FULL if is_calibrated else CALIBRATE
    if request.workload.model.kind == "summary":
        return Advice(f"{calibrate}; {DESCRIBED} as well.", f"{DESCRIBED[0].upper()}{DESCRIBED[1:]}.")
    if request.effort == "instant":
        return Advice(
            f"{calibrate}, or ask with effort quick, which measures this very model.", "Effort quick measures it."
        )
    if _may_take_longer(request):
        return Advice(f"{calibrate}, or try {LONGER}.", f"{LONGER[0].upper()}{LONGER[1:]} may reach it.")
    return Advice(f"{calibrate}.")


def _until_readable(request: Request, measuring: str) -> str:
    """Nothing of a calibration: there may be one, and another would not be saved."""
    if request.workload.model.kind == "summary":
        return "Ask again once it can."
    return f"Ask again once it can; meanwhile {measuring}."


def _measuring(request: Request, *, here: bool) -> str:
    """What tells the time of a model whatever its numbers are."""
    if not here:
        return "the model has to be measured on the machine itself"
    if request.effort == "instant":
        return "effort quick measures this very model"
    if _may_take_longer(request):
        return f"{LONGER} may reach it"
    return LONGEST if request.precision != "auto" and len(request.devices) == 1 else FEWER


def _may_take_longer(request: Request) -> bool:
    return request.measuring_seconds < max(EFFORT_SECONDS.values())
