"""Why: each reason with a stable code, a sentence, and the numbers behind it.

A reason is told only where there is evidence for this very workload on this very machine. Nothing here preaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from app.advisor.crowding import Crowd
from app.advisor.environments import Gain, bare
from app.advisor.explanations.advice import Advice
from app.advisor.explanations.choice_reasons import (
    WORTH_TELLING,
    explain_device_choice,
    explain_precision,
    explain_threads,
    is_guess,
)
from app.advisor.explanations.crowded_reason import explain_crowd
from app.advisor.explanations.dropped_layers import explain_dropped_layers
from app.advisor.explanations.elsewhere import explain_elsewhere
from app.advisor.explanations.environment_reason import explain_environment, explain_too_late
from app.advisor.explanations.limit_reason import explain_limit, explain_slower_device
from app.advisor.explanations.noise_signs import signs_of_noise
from app.advisor.explanations.routing_reason import explain_routing
from app.advisor.explanations.slow_cores_reason import explain_slow_cores
from app.advisor.explanations.uncopied import explain_uncopied
from app.advisor.explanations.unknown_work import explain_unknown_work
from app.advisor.explanations.unrepaid_reason import explain_unrepaid
from app.advisor.explanations.untrained_parts import explain_untrained_parts
from app.advisor.explanations.without_time import explain_without_time
from app.advisor.explanations.words import say_duration, say_list, say_percent, say_seconds
from app.advisor.memory_model.remedies import Remedy, StepSeconds, remedies_for, say_remedies
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Option, Reason
from app.advisor.time_model.intervals import between_processes, narrow
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import AUTOCAST, Trace
from probes.workload.description import Plan, Precision, Workload

# A median whose interval by its own samples is wider than this says little.
NOISY = 0.25


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that reasons are drawn from."""

    workload: Workload
    ranking: Ranking
    profile: Profile | None
    trace: Trace | None
    measurements: Sequence[Measurement]
    advice: Advice  # on a time that is not known
    halved: Mapping[str, Precision]  # by device, a precision of two bytes that it has, and torch does not refuse
    elsewhere: bool = False  # the profile is another machine's, and so is the answer
    crowd: Crowd | None = None  # who holds cores of this machine now
    gains: Sequence[Gain] = ()  # variants whose steps pay
    rested: Sequence[Measurement] = ()  # what times at the batch asked for rest on
    machine: Survey | None = None  # that is asked about; None: nobody knows its cards
    step_seconds: StepSeconds = field(default=lambda plan, batch_size: None)  # whether it fits there or not
    startup_seconds: float | None = None  # before the recommended plan's steps are steady (app.advisor.starts.start_of)

    def option(self, plan: Plan) -> Option | None:
        return next((option for option in self.ranking.options if option.plan.key == plan.key), None)


def explain(evidence: Evidence) -> tuple[Reason, ...]:
    """Every reason that applies, the ones about the recommended plan first."""
    best = evidence.ranking.best
    about_best: list[Reason | None] = []
    if best is not None:
        plain = evidence.option(bare(best.plan)) or best
        relieved = {option.plan.key for option in evidence.ranking.options if option.relieved}
        starts = evidence.ranking.compiled
        about_best = [
            explain_limit(best),
            _run_time(evidence, best),
            explain_device_choice(evidence.ranking, best),
            explain_slower_device(evidence.ranking, best),
            explain_unrepaid(evidence.ranking, evidence.workload),
            explain_environment(evidence.gains, best, starts, evidence.measurements),
            explain_too_late(evidence.gains, best, starts, evidence.workload),
            explain_threads(evidence.ranking, plain),
            explain_precision(evidence.ranking, plain),
            _reading(evidence, best),
            _too_close(evidence.ranking),
            _noise(best),
            explain_slow_cores(evidence.rested, best.plan, evidence.crowd, relieved, elsewhere=evidence.elsewhere),
        ]
    crowded = explain_crowd(evidence.crowd, evidence.ranking.options, best)
    general = [
        _elsewhere(evidence),
        _unknown_room(evidence, best),
        crowded,
        *_too_big(evidence),
        *_refused(evidence),
        *explain_without_time(evidence.ranking.unlike, evidence.profile, evidence.advice),
        *explain_uncopied(evidence.ranking.unlike, evidence.workload.data),
        _predicted_only(evidence, best),
        explain_routing(evidence.trace, best),
        explain_dropped_layers(evidence.trace, best),
        explain_untrained_parts(evidence.trace, evidence.workload),
        explain_unknown_work(evidence.trace, best),
        _noisy_profile(evidence),
    ]
    return tuple(reason for reason in (*about_best, *general) if reason is not None)


def _elsewhere(evidence: Evidence) -> Reason | None:
    if not evidence.elsewhere or evidence.profile is None:
        return None
    plans = [option.plan for option in evidence.ranking.options]
    told = {plan.key for plan in plans}
    is_measured = any(row.outcome == "ok" and row.plan.key in told for row in evidence.measurements)
    is_traced = evidence.trace is not None and evidence.workload.model.kind != "summary"
    devices = {plan.device for plan in plans}
    return explain_elsewhere(evidence.profile, devices, is_measured=is_measured, is_traced=is_traced)


def _run_time(evidence: Evidence, best: Option) -> Reason | None:
    """What the whole run takes, where the data set's size was told; one epoch unless more were asked for."""
    workload, seconds = evidence.workload, best.step_seconds
    samples, batch, epochs, steps = workload.dataset_samples, workload.batch_size, workload.epochs or 1, workload.steps
    if steps is None or samples is None or seconds is None:
        return None
    start = evidence.startup_seconds or 0.0
    total = steps * seconds.median + start
    over = "" if epochs == 1 else f", {epochs:,} times over"
    begun = f", its start of {say_duration(start)} included" if start > WORTH_TELLING * total else ""
    is_unknown = evidence.startup_seconds is None and not best.plan.is_cpu
    begun = ", without the device's start, which is not known" if is_unknown else begun
    about, numbers = f"about {say_duration(total)}", {"steps": steps, "seconds": total}
    if is_guess(best):
        least, most = steps * seconds.low + start, steps * seconds.high + start
        about = f"{say_duration(least)} to {say_duration(most)}, as others let it,"
        numbers |= {"low": least, "high": most}
    text = (
        f"{_counted(samples, 'row')} in batches of {batch:,}{over}: {_counted(steps, 'step')}, "
        f"{about} on {best.plan.label}{begun}."
    )
    numbers |= {"epochs": epochs, "dataset_samples": samples}
    if evidence.startup_seconds is not None:
        numbers["startup_seconds"] = evidence.startup_seconds
    return Reason("run-time", text, numbers)


def _reading(evidence: Evidence, best: Option) -> Reason | None:
    """What reading the loss every step, or every few, costs."""
    every = evidence.workload.readings_every
    if every is None or best.step_seconds is None or not best.breakdown_seconds.synchronize:
        return None
    cost = best.breakdown_seconds.synchronize
    share = cost / best.step_seconds.median
    often = "every step" if every == 1 else f"every {every} steps"
    text = f"Reading the loss {often} takes {say_seconds(cost)} a step, {say_percent(share)} of it."
    return Reason("reading-the-loss", text, {"share": share, "seconds_a_step": cost, "log_every": every})


def _too_close(ranking: Ranking) -> Reason | None:
    if not ranking.close:
        return None
    names = [option.plan.label for option in ranking.close]
    ranges = {
        option.plan.label: [option.step_seconds.low, option.step_seconds.high]
        for option in ranking.close
        if option.step_seconds is not None
    }
    why = "because it takes the least" if not ranking.as_cheap else "as the quickest of those that take the least"
    text = (
        f"The intervals of {say_list(names)} overlap; {ranking.options[0].plan.label} is named {why}: nothing "
        "compiled, CPU before GPU, fewer threads, fp32 before lower precisions, no settings."
    )
    return Reason("too-close-to-call", text, {"intervals": ranges})


def _noise(best: Option) -> Reason | None:
    """By what was measured alone: what another process would take differs on a calm machine, too. Not where others who
    hold cores now widen what was measured without them (reason `crowded`)."""
    if best.step_seconds is None or best.basis != "measured" or best.crowded:
        return None
    here = narrow(best.step_seconds, between_processes(best.plan))
    spread = (here.high - here.low) / here.median
    if spread < NOISY:
        return None
    text = (
        f"The machine was busy or unsteady while this was measured: the step's median there lies somewhere between "
        f"{say_seconds(here.low)} and {say_seconds(here.high)}."
    )
    return Reason("noise", text, {"relative_spread": spread})


def _too_big(evidence: Evidence) -> Iterable[Reason]:
    """One reason a device for what does not fit; with the precision that would, where one does."""
    told: set[str] = set()
    for option in evidence.ranking.options:
        if option.fits is not False or option.cannot_run or option.plan.device in told:
            continue
        told.add(option.plan.device)
        memory = option.memory
        there = [o for o in evidence.ranking.options if o.plan.device == option.plan.device]
        fitting = [o for o in there if o.fits and not o.cannot_run]
        also = _what_fits(option.plan, fitting)
        numbers = {
            "peak_bytes": memory.peak_bytes,
            "available_bytes": memory.available_bytes,
            "max_batch_size": option.max_batch_size,
        }
        remedies = _remedies(evidence, option, there)
        text = f"{option.plan.label} does not fit. {option.why_not}{also}{say_remedies(remedies)}"
        yield Reason("does-not-fit", text, {**numbers, "remedies": [asdict(remedy) for remedy in remedies]})


def _unknown_room(evidence: Evidence, best: Option | None) -> Reason | None:
    """Of another machine `other-machine` says it."""
    if best is None or evidence.elsewhere or best.fits is not None or best.memory.available_bytes is not None:
        return None
    device = best.plan.device
    text = f"Whether it fits is not known, as nothing tells how much memory is free on {device}."
    return Reason("free-memory-unknown", text, {"device": device, "peak_bytes": best.memory.peak_bytes})


def _what_fits(plan: Plan, fitting: Sequence[Option]) -> str:
    """A precision that makes it fit, where there is one; else a plan that does."""
    if not fitting:
        return ""
    narrower = next((o.plan.precision for o in fitting if o.plan.precision in AUTOCAST), None)
    if narrower is not None and plan.precision not in AUTOCAST:
        return f" In {narrower} it fits."
    return f" {fitting[0].plan.label} fits."


def _remedies(evidence: Evidence, option: Option, there: Sequence[Option]) -> tuple[Remedy, ...]:
    """there: every option on its device."""
    if evidence.trace is None:
        return ()
    halved = _halved(evidence, there)
    lower = [o for o in there if o.plan.precision == halved and not o.cannot_run]
    same = min(lower, key=lambda o: (not o.fits, o.plan.threads != option.plan.threads), default=None)
    return remedies_for(
        option, evidence.trace, evidence.workload, halved, same, evidence.machine, evidence.step_seconds
    )


def _halved(evidence: Evidence, there: Sequence[Option]) -> Precision | None:
    """A precision of two bytes in which one of a device's plans can run, or could where it was not asked for."""
    runs = {option.plan.precision: not option.cannot_run for option in there if option.plan.precision in AUTOCAST}
    if runs:
        return next((name for name in runs if runs[name]), None)
    return evidence.halved.get(there[0].plan.device)


def _refused(evidence: Evidence) -> Iterable[Reason]:
    for option in evidence.ranking.options:
        if option.cannot_run:
            yield Reason("cannot-run", f"{option.plan.label} cannot run: {option.why_not}", {})


def _predicted_only(evidence: Evidence, best: Option | None) -> Reason | None:
    if best is None or best.basis != "predicted" or best.step_seconds is None or evidence.profile is None:
        return None
    seconds = best.step_seconds
    text = (
        f"This time was not measured: it is predicted from the profile {evidence.profile.name}, and lies between "
        f"{say_seconds(seconds.low)} and {say_seconds(seconds.high)} in four cases of five. {evidence.advice.predicted}"
    )
    evidence_numbers = {"profile": evidence.profile.name, "low": seconds.low, "high": seconds.high}
    return Reason("predicted", text.rstrip(), evidence_numbers)


def _noisy_profile(evidence: Evidence) -> Reason | None:
    """The machine was so busy during the calibration that predictions from it are wide, or slow on the whole: those
    that are told here."""
    profile = evidence.profile
    on_cpu = {option.plan.is_cpu for option in evidence.ranking.options if option.basis == "predicted"}
    if profile is None or not on_cpu:
        return None
    signs = signs_of_noise(profile, of_cpu=True in on_cpu, of_devices=False in on_cpu)
    if not signs:
        return None
    again = (
        "that machine again when it is quiet, import its profile" if evidence.elsewhere else "again when it is quiet"
    )
    text = (
        f"The machine was busy while the profile {profile.name} was measured: {say_list(list(signs.values()))}. "
        f"Calibrate {again}, and predictions will be closer."
    )
    return Reason(
        "noisy-profile", text, {"spread": profile.noise.get("spread"), **{name: profile.noise[name] for name in signs}}
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
