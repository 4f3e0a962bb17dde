"""Whether torch could use each accelerator, where that is certain without asking torch; and why not."""

from collections.abc import Sequence
from dataclasses import replace

from probes.gpu.apple import LINUX_DRIVER
from probes.gpu.cuda import CudaReading
from probes.gpu.driver import FREE_NVIDIA_DRIVERS, VIRTUAL_MACHINE_DRIVERS
from probes.gpu.merge import merge_accelerators
from probes.gpu.naming import with_name_facts
from probes.gpu.nvml_process import NvidiaReading
from probes.gpu.torch_names import with_cuda_facts, with_hip_facts
from probes.hardware import Accelerator, Memory, Outcome, ProbeReport, Software

# Drivers that show pictures and run no kernels of torch's, by vendor; and the one that does.
_DISPLAY_DRIVERS = {
    **{
        name: f"the free driver {name.removesuffix('_core')} drives it, which CUDA cannot use; install NVIDIA's driver"
        for name in FREE_NVIDIA_DRIVERS
    },
    "radeon": "the old driver radeon drives it, which ROCm cannot use; it needs amdgpu",
    "simpledrm": "only the firmware's picture is driven on it; install its driver",
}
_DRIVERS = {"AMD": "amdgpu", "Intel": "xe or i915"}


def judge_accelerators(
    on_bus: Sequence[Accelerator],
    nvidia: NvidiaReading,
    report: ProbeReport,
    software: Software,
    memory: Memory,
    *,
    others: Sequence[Accelerator] = (),
    cuda: CudaReading | None = None,
    hip: CudaReading | None = None,
) -> tuple[Accelerator, ...]:
    """One list of what the bus shows and what drivers tell, named and judged.

    others: what AMD's, Intel's and Apple's drivers tell; cuda, hip: None where it was not asked.
    """
    told = [*nvidia.accelerators, *others]
    cards = [with_name_facts(_add_xids(card, nvidia)) for card in merge_accelerators(on_bus, told)]
    known = {card.id for card in told}
    judged = (_judge(card, card.id in known, report, software) for card in cards)
    named = with_cuda_facts(tuple(judged), cuda or CudaReading(Outcome.UNSUPPORTED), software.torch)
    named = with_hip_facts(named, hip or CudaReading(Outcome.UNSUPPORTED), software.torch)
    last = (_judge_by_torch(with_name_facts(card), software) for card in named)
    return tuple(_share_memory(card, memory) for card in last)


def _add_xids(card: Accelerator, nvidia: NvidiaReading) -> Accelerator:
    """A card that NVML does not tell of is the one whose errors matter most."""
    if nvidia.xids is None or card.vendor != "NVIDIA" or card.xids is not None or card.pci_address is None:
        return card
    return replace(card, xids=tuple(nvidia.xids.get(card.pci_address, ())))


def _share_memory(card: Accelerator, memory: Memory) -> Accelerator:
    """Unified memory is the machine's: the shared pool is reported as such. Of NVIDIA's CUDA tells the size alone, and
    what is left of it is what a process may still take; AMD's driver may have set a part aside, and told of that."""
    if not card.unified_memory:
        return card
    if card.memory_total_bytes is None:
        return replace(card, memory_total_bytes=memory.total_bytes, memory_free_bytes=memory.available_bytes)
    if card.vendor != "NVIDIA" or card.memory_free_bytes is not None or memory.usable_bytes is None:
        return card
    return replace(card, memory_free_bytes=min(card.memory_total_bytes, memory.usable_bytes))


def _judge(card: Accelerator, is_told: bool, report: ProbeReport, software: Software) -> Accelerator:
    """What stands between a card and its driver; whatever stands above is asked later."""
    if card.usable is not None:
        return card
    why = _explain_driver(card, is_told, report, software)
    return replace(card, usable=False, why_not=why) if why else card


def _explain_driver(card: Accelerator, is_told: bool, report: ProbeReport, software: Software) -> str | None:
    if card.kernel_driver in VIRTUAL_MACHINE_DRIVERS:
        return f"it is set aside for a virtual machine (bound to {card.kernel_driver})"
    if card.kernel_driver in _DISPLAY_DRIVERS:
        return _DISPLAY_DRIVERS[card.kernel_driver]
    if card.vendor == "NVIDIA" and not is_told and report.outcome is not Outcome.UNSUPPORTED:
        reason = report.reason or "it lists other cards only"
        return f"it is on the PCI bus, but NVIDIA's driver does not tell of it: {reason}"
    is_known = software.python is not None  # a captured machine may lack the links that tell of drivers
    if is_known and card.vendor in _DRIVERS and card.pci_address and card.kernel_driver is None:
        return f"no driver is bound to it ({_DRIVERS[card.vendor]} is needed)"
    return None


def _judge_by_torch(card: Accelerator, software: Software) -> Accelerator:
    if card.usable is not None:
        return card
    why = _explain_torch(card, software)
    if why is not None:
        return replace(card, usable=False, why_not=why, torch_device=None)
    is_mps = card.vendor == "Apple" and software.torch is not None  # torch has one name for the one GPU there is
    return replace(card, torch_device="mps") if is_mps else card


def _explain_torch(card: Accelerator, software: Software) -> str | None:
    torch = software.torch
    if software.python is None:
        return None  # a captured machine: nothing is known of its software
    if torch is None:
        return "torch is not installed"
    built = {"NVIDIA": torch.cuda_version, "AMD": torch.hip_version, "Intel": torch.xpu_version}
    if card.vendor == "Apple" and card.kernel_driver != LINUX_DRIVER:
        return None
    if card.vendor not in built:
        return "torch has no backend of its own for it here"
    is_known = torch.cuda_available is False or any(built.values())
    if built[card.vendor] is not None or not is_known:
        return None
    if card.segment == "integrated":
        return "graphics built into the CPU; crosspoint does not train on it"
    names = {"NVIDIA": "CUDA", "AMD": "ROCm", "Intel": "XPU support"}
    return f"torch {torch.version} is built without {names[card.vendor]}"
