"""An answer for a machine that is not here: what its profile tells of it, and what cannot be known."""

from __future__ import annotations

from app.advisor.explanations.words import say_bytes
from app.advisor.recommendation import Reason
from probes.hardware import Accelerator, Cpu, Memory, Software, Survey, System
from probes.machine_facts import MachineFacts
from probes.profile import Profile


def idle_survey(facts: MachineFacts) -> Survey:
    """A survey of that machine as far as a profile knows it, with all of its memory free."""
    return Survey(
        surveyed_at="",
        fingerprint="",
        system=System(),
        cpu=Cpu(name=facts.cpu, physical_cores=facts.physical_cores, usable_cores=facts.usable_cores),
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


def say_where(profile: Profile) -> str:
    """`rig (AMD EPYC, 2 cores, 24 GiB)`."""
    return f"{profile.name} ({profile.machine})" if profile.machine else profile.name


def explain_elsewhere(profile: Profile) -> Reason:
    """What an answer for another machine rests on."""
    software = ", ".join(f"{name} {version}" for name, version in profile.software.items()) or "unknown software"
    facts = profile.hardware
    if facts is None or facts.memory_bytes is None:
        memory = (
            "How much memory it has does not stand in the profile, so whether the model fits there is not known; a "
            "calibration made there anew keeps it."
        )
    else:
        memory = f"Whether it fits is judged by the memory of that machine with nothing else on it: {_sizes(facts)}."
    text = (
        f"This is another machine's answer, reckoned from the profile {profile.name}, measured at "
        f"{profile.created_at} with {software}. Nothing of this model was measured there. {memory}"
    )
    return Reason("other-machine", text, {"profile": profile.name, "machine": profile.machine})


def _sizes(facts: MachineFacts) -> str:
    sizes = [say_bytes(facts.memory_bytes or 0)]
    sizes += [
        f"{say_bytes(card.memory_total_bytes)} on {card.device}"
        for card in facts.accelerators
        if card.memory_total_bytes
    ]
    return ", ".join(sizes)
