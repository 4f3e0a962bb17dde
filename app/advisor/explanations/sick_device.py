"""A card of which the survey found something grave: what that means for the answer."""

from __future__ import annotations

from collections.abc import Mapping

from app.advisor.recommendation import Reason
from probes.accelerator import subject_of
from probes.hardware import Accelerator, Finding, Survey
from probes.workload.description import Plan

# What makes a card's results doubtful, or its steps longer than those of a card that is alike; the gravest first.
_GRAVE = (
    *("gpu-lost", "gpu-memory-errors", "gpu-driver-errors"),
    *("gpu-throttled-by-heat", "gpu-throttled-by-power"),
)


def sick_devices(survey: Survey) -> Mapping[str, Finding]:
    """By torch's name of a card, the gravest finding about it; without the cards that have none."""
    grave = [finding for finding in survey.findings if finding.code in _GRAVE]
    if not grave:
        return {}
    found: dict[str, Finding] = {}
    for finding in sorted(grave, key=lambda finding: _GRAVE.index(finding.code)):
        subjects = finding.subject.split(", ")
        for card in survey.accelerators:
            if card.torch_device is not None and not _subjects(card, survey).isdisjoint(subjects):
                found.setdefault(card.torch_device, finding)
    return found


def _subjects(card: Accelerator, survey: Survey) -> set[str]:
    """What findings call it, where they mean no other card by that: a MIG instance's health is told of its card."""
    if card.parent_id is None:
        return {str(card.torch_device)}
    names = {whole.id: subject_of(whole) for whole in survey.accelerators if whole.parent_id is None}
    name = names.get(card.parent_id)
    return {name} if name is not None and list(names.values()).count(name) == 1 else set()


def explain_sick_device(survey: Survey, best: Plan | None) -> Reason | None:
    """None where nothing grave is found of the recommended plan's card."""
    finding = sick_devices(survey).get(best.device) if best is not None else None
    if best is None or finding is None:
        return None
    name = next((card.name for card in survey.accelerators if card.torch_device == best.device), None)
    card = f"{best.device} ({name})" if name else best.device
    text = f"Of {card} this is found: {finding.message} `crosspoint doctor` says what to do."
    return Reason("sick-device", text, {"device": best.device, "finding": finding.code})
