"""An answer for a machine that is not here: what its profile tells of it, and what cannot be known."""

from __future__ import annotations

import math
from collections.abc import Collection

from app.advisor.explanations.words import say_bytes, say_list
from app.advisor.recommendation import Reason
from probes.hardware import Accelerator, Cpu, Memory, Software, Survey, System
from probes.machine_facts import MachineFacts
from probes.profile import Profile

# Which kernel runs is the processor's and torch's choice, and the C library's how freed memory is kept.
BY_OUR_LIBRARIES = (
    " What its kernels take inside, and its process beyond its tensors, is told as by this machine's processor, torch "
    "and C library."
)


def idle_survey(facts: MachineFacts) -> Survey:
    """A survey of that machine as far as a profile knows it, with all of its memory free."""
    return Survey(
        surveyed_at="",
        fingerprint="",
        system=System(),
        cpu=Cpu(
            name=facts.cpu,
            physical_cores=facts.physical_cores,
            logical_cores=_logical_cores(facts),
            usable_cores=facts.usable_cores,
        ),
        memory=Memory(
            total_bytes=facts.memory_bytes, available_bytes=facts.memory_bytes, usable_bytes=facts.memory_bytes
        ),
        accelerators=tuple(
            Accelerator(
                id=card.device,
                vendor="",
                name=card.name,
                memory_total_bytes=card.memory_total_bytes,
                memory_free_bytes=None if card.unified_memory else card.memory_total_bytes,
                unified_memory=card.unified_memory,
                compute_capability=card.compute_capability,
                torch_device=card.device,
                usable=True,
            )
            for card in facts.accelerators
        ),
        storage=(),
        software=Software(),
        findings=(),
        probes={},
    )


def _logical_cores(facts: MachineFacts) -> int | None:
    """At least: which are usable tells of a second thread on each core."""
    return None if facts.physical_cores is None else max(facts.physical_cores, math.ceil(facts.usable_cores or 0))


def say_where(profile: Profile) -> str:
    """`rig (AMD EPYC, 2 cores, 24 GiB)`."""
    return f"{profile.name} ({profile.machine})" if profile.machine else profile.name


def explain_elsewhere(profile: Profile, devices: Collection[str], *, is_measured: bool, is_traced: bool) -> Reason:
    """What an answer for another machine, or for this one as it was before it changed, rests on. devices: that there
    are plans for. is_measured: steps of this very model ran there, and are kept here. is_traced: what kernels take
    inside and what the heap holds stands in a trace, which was made here."""
    software = ", ".join(f"{name} {version}" for name, version in profile.software.items()) or "unknown software"
    known = (
        "What steps of this model took there counts"
        if is_measured
        else "No step of this model that these plans took there is known"
    )
    text = (
        f"This answer is not for this machine as it is now: it is reckoned from the profile {profile.name}, measured "
        f"at {profile.created_at} with {software}. {known}. "
        f"{_say_memory(profile.hardware or MachineFacts(), devices)}"
        f"{BY_OUR_LIBRARIES if is_traced and 'cpu' in devices else ''}"
    )
    return Reason("other-machine", text, {"profile": profile.name, "machine": profile.machine})


def _say_memory(facts: MachineFacts, devices: Collection[str]) -> str:
    """By which it is told whether the model fits: of a card it may be known where it is not of the host, or the other
    way round."""
    own = {
        card.device: card.memory_total_bytes
        for card in facts.accelerators
        if card.memory_total_bytes and not card.unified_memory  # which is the host's
    }
    of_host = {card.device for card in facts.accelerators if card.unified_memory}
    sizes = [] if facts.memory_bytes is None else [say_bytes(facts.memory_bytes)]
    sizes += [f"{say_bytes(size)} on {device}" for device, size in own.items()]
    if not sizes:
        return _say_unknown("it has", "there")
    judged = f"Whether it fits is judged by the memory of that machine with nothing else on it: {', '.join(sizes)}."
    unknown = [] if facts.memory_bytes is not None else [_say_unknown("its host has", "on its CPU")]
    cards = sorted({*devices} - {"cpu"} - own.keys() - of_host)
    unknown += [_say_unknown(f"{say_list(cards)} {'has' if len(cards) == 1 else 'have'}", "there")] if cards else []
    return " ".join((judged, *unknown))


def _say_unknown(who_has: str, where: str) -> str:
    return (
        f"How much memory {who_has} does not stand in the profile, so whether the model fits {where} is not known; a "
        "calibration made there anew keeps it."
    )
