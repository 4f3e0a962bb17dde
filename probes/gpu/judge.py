"""Whether torch could use each accelerator, where that is certain without asking torch; and why not."""

from dataclasses import replace

from probes.gpu.merge import merge_accelerators
from probes.gpu.naming import with_name_facts
from probes.gpu.nvml_process import NvidiaReading
from probes.hardware import Accelerator, Memory, Outcome, ProbeReport, Software


def judge_accelerators(
    on_bus: tuple[Accelerator, ...],
    nvidia: NvidiaReading,
    report: ProbeReport,
    software: Software,
    memory: Memory,
) -> tuple[Accelerator, ...]:
    """One list of what the bus shows and what drivers tell, named and judged."""
    cards = [with_name_facts(card) for card in merge_accelerators(on_bus, nvidia.accelerators)]
    told = {card.id for card in nvidia.accelerators}
    return tuple(_judge(_share_memory(card, memory), card.id in told, report, software) for card in cards)


def _share_memory(card: Accelerator, memory: Memory) -> Accelerator:
    """Unified memory is the machine's: the shared pool is reported as such."""
    if not card.unified_memory or card.memory_total_bytes is not None:
        return card
    return replace(card, memory_total_bytes=memory.total_bytes, memory_free_bytes=memory.available_bytes)


def _judge(card: Accelerator, is_told: bool, report: ProbeReport, software: Software) -> Accelerator:
    """Whether torch could use a card, where that is certain without asking torch."""
    if card.usable is not None:
        return card
    why = _why_unusable(card, is_told, report, software)
    return replace(card, usable=False, why_not=why) if why else card


def _why_unusable(card: Accelerator, is_told: bool, report: ProbeReport, software: Software) -> str | None:
    if card.vendor == "NVIDIA" and not is_told and report.outcome is not Outcome.UNSUPPORTED:
        reason = report.reason or "it lists other cards only"
        return f"it is on the PCI bus, but NVIDIA's driver does not tell of it: {reason}"
    torch = software.torch
    if software.python is None:
        return None  # a captured machine: nothing is known of its software
    if torch is None:
        return "torch is not installed"
    if card.vendor == "NVIDIA" and torch.cuda_available is False and torch.cuda_version is None:
        return f"torch {torch.version} is built without CUDA"
    if card.vendor == "AMD" and torch.cuda_available is False:
        return f"torch {torch.version} is built without ROCm"
    if card.segment == "integrated":
        return "graphics built into the CPU; crosspoint does not train on it"
    return None if card.vendor in ("NVIDIA", "AMD", "Intel") else "torch has no backend of its own for it"
