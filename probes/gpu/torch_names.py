"""Torch's name for each card before torch was asked: `cuda:N` is the Nth device that CUDA, or HIP, itself shows."""

from collections.abc import Sequence
from dataclasses import replace

from probes.gpu.cuda import CudaDevice, CudaReading
from probes.gpu.identity import is_same_card
from probes.hardware import Accelerator, Outcome, Torch


def with_cuda_facts(cards: Sequence[Accelerator], cuda: CudaReading, torch: Torch | None) -> tuple[Accelerator, ...]:
    """The cards with what CUDA tells of them, and those that it alone knows (a Jetson without NVML)."""
    named = tuple(_add_device(card, cuda, torch) for card in cards)
    unknown = [
        (index, device)
        for index, device in enumerate(cuda.devices)
        if not any(_is_same(card, device) for card in cards)
    ]
    return (*named, *(_describe(device, index, _is_cuda_build(torch)) for index, device in unknown))


def with_hip_facts(cards: Sequence[Accelerator], hip: CudaReading, torch: Torch | None) -> tuple[Accelerator, ...]:
    """AMD's cards with the names that a ROCm build of torch has for them."""
    if torch is None or torch.hip_version is None:
        return tuple(cards)
    return tuple(_name_for_rocm(card, hip) for card in cards)


def _name_for_rocm(card: Accelerator, hip: CudaReading) -> Accelerator:
    if card.vendor != "AMD":
        return card
    addresses = [device.pci_address for device in hip.devices]
    if card.pci_address is not None and card.pci_address in addresses:
        return replace(card, torch_device=f"cuda:{addresses.index(card.pci_address)}")
    if card.usable is not None:
        return card
    if hip.compute_error is not None:
        return replace(card, usable=False, why_not=f"HIP cannot use it: {hip.reason}")
    if hip.outcome is Outcome.OK and None not in addresses:
        why = "HIP does not show it to this process (HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES may hide it)"
        return replace(card, usable=False, why_not=why)
    return card


def _add_device(card: Accelerator, cuda: CudaReading, torch: Torch | None) -> Accelerator:
    if card.vendor != "NVIDIA":
        return card
    index = next((index for index, device in enumerate(cuda.devices) if _is_same(card, device)), None)
    if index is None:
        why = _explain_absence(card, cuda)
        return replace(card, usable=False, why_not=why) if why and card.usable is None else card
    return _fill(card, cuda.devices[index], index, _is_cuda_build(torch))


def _explain_absence(card: Accelerator, cuda: CudaReading) -> str | None:
    """None where CUDA said nothing that is certain."""
    if cuda.compute_error is not None:
        return f"CUDA cannot use it: {cuda.reason}"
    if cuda.outcome is not Outcome.OK:
        return None
    if card.id.startswith("MIG-"):
        return "CUDA shows one MIG instance at a time, and this is another; name it in CUDA_VISIBLE_DEVICES"
    return "CUDA does not show it to this process (CUDA_VISIBLE_DEVICES may hide it)"


def _fill(card: Accelerator, device: CudaDevice, index: int, is_cuda_build: bool) -> Accelerator:
    return replace(
        card,
        torch_device=f"cuda:{index}" if is_cuda_build else None,
        name=card.name or device.name,
        compute_capability=card.compute_capability or device.compute_capability,
        multiprocessors=card.multiprocessors or device.multiprocessors,
        unified_memory=device.integrated if card.unified_memory is None else card.unified_memory,
        memory_total_bytes=card.memory_total_bytes or device.memory_total_bytes,
        memory_bus_bits=card.memory_bus_bits or device.memory_bus_bits,
        memory_clock_maximum_hz=card.memory_clock_maximum_hz or device.memory_clock_hz,
    )


def _describe(device: CudaDevice, index: int, is_cuda_build: bool) -> Accelerator:
    identity = f"GPU-{device.uuid}" if device.uuid else f"cuda-{index}"
    card = Accelerator(identity, vendor="NVIDIA", pci_address=device.pci_address)
    return _fill(card, device, index, is_cuda_build)


def _is_same(card: Accelerator, device: CudaDevice) -> bool:
    return card.vendor == "NVIDIA" and is_same_card(card, device.uuid, device.pci_address)


def _is_cuda_build(torch: Torch | None) -> bool:
    return torch is not None and torch.cuda_version is not None
