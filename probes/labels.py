"""A survey as node labels: what a scheduler may choose a machine by.

Lines `key=value`, as Node Feature Discovery reads them from files in features.d (its customization guide, "Local
feature source"). Keys carry their namespace in full: newer releases ask for it, and this one needs no leave from any.
Nothing in a label leads back to the host: no name, address, serial or UUID.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from probes.diagnose.candidates import is_candidate
from probes.fingerprint import SPEED_FLAGS, silent_parts
from probes.hardware import Accelerator, Cpu, Survey
from probes.machine_facts import may_lack_cards

NAMESPACE = "feature.node.kubernetes.io"
_PREFIX = "crosspoint"
# Kubernetes' bound on a label's name and on its value (its documentation, "Labels and Selectors").
MAX_CHARACTERS = 63
_MIB = 1 << 20


def make_labels(survey: Survey) -> dict[str, str]:
    """Key -> value, sorted; what is not known has no label."""
    facts = [*_describe_cpu(survey.cpu), *_describe_memory(survey)]
    # A driver that hangs is not a machine without cards, nor is one whose torch may show them and was not asked.
    is_silent = not survey.accelerators and may_lack_cards(survey.software.torch, ())
    if "accelerators" not in silent_parts(survey.probes) and not is_silent:
        facts += _describe_cards(survey.accelerators)
    labels = {make_key(name): make_value(value) for name, value in facts if value is not None}
    return {key: value for key, value in sorted(labels.items()) if value}


def write_labels(labels: dict[str, str]) -> str:
    """A feature file's content."""
    return "".join(f"{key}={value}\n" for key, value in labels.items())


def make_key(name: str) -> str:
    """`gpu.count` -> `feature.node.kubernetes.io/crosspoint.gpu.count`."""
    return f"{NAMESPACE}/{make_value(f'{_PREFIX}.{name}')}"


def make_value(value: Any) -> str:
    """Letters, digits, `-`, `_`, `.`, at most 63, with a letter or digit at each end; empty when nothing is left."""
    text = "true" if value is True else "false" if value is False else str(value)
    words = re.sub(r"\((R|TM|C)\)", " ", text, flags=re.IGNORECASE)
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", words)
    return re.sub(r"-{2,}", "-", kept).strip("-_.")[:MAX_CHARACTERS].rstrip("-_.")


def _describe_cpu(cpu: Cpu) -> Iterator[tuple[str, Any]]:
    yield "cpu.vendor", cpu.vendor
    yield "cpu.architecture", cpu.architecture
    yield "cpu.microarchitecture", cpu.microarchitecture
    yield "cpu.generation", cpu.generation
    yield "cpu.tier", cpu.tier
    yield "cpu.sockets", cpu.sockets
    yield "cpu.physical-cores", cpu.physical_cores
    yield "cpu.logical-cores", cpu.logical_cores
    yield "cpu.torch-instruction-set", cpu.torch_instruction_set
    for flag in cpu.instruction_sets:  # the other flags of a CPU are Node Feature Discovery's own labels
        if flag.startswith(SPEED_FLAGS):
            yield f"cpu.instruction-set.{flag}", True


def _describe_memory(survey: Survey) -> Iterator[tuple[str, Any]]:
    total = survey.memory.total_bytes
    yield "memory.total-mib", None if total is None else total // _MIB


def _describe_cards(accelerators: Sequence[Accelerator]) -> Iterator[tuple[str, Any]]:
    """Graphics inside the CPU, and what torch has no backend for, are no GPU to schedule for; a MIG instance is part of
    its card."""
    cards = [card for card in accelerators if is_candidate(card) and card.segment != "integrated"]
    instances = [card for card in accelerators if card.parent_id is not None]
    yield "gpu.count", len(cards)
    if not cards:
        return
    yield "gpu.mig-instances", len(instances) or None
    models = Counter(make_value(card.name or "") for card in cards)
    yield from ((f"gpu.model.{model}", count) for model, count in models.items() if model)
    for name in ("vendor", "architecture", "generation", "tier", "suffix", "segment", "driver_version"):
        yield f"gpu.{name.replace('_version', '')}", _common([getattr(card, name) for card in cards])
    yield "gpu.memory-mib", _least([card.memory_total_bytes and card.memory_total_bytes // _MIB for card in cards])
    capability = _least([_parse_capability(card.compute_capability) for card in cards])
    if capability is not None:
        yield "gpu.compute-capability.major", capability[0]
        yield "gpu.compute-capability.minor", capability[1]


def _common(values: Sequence[Any]) -> Any:
    """What all have in common, or None."""
    return values[0] if len(set(values)) == 1 else None


def _least(values: Sequence[Any]) -> Any:
    """What every card has at least; None where one does not tell."""
    return None if None in values else min(values)


def _parse_capability(text: str | None) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text or "")
    return (int(found[1]), int(found[2])) if found else None
