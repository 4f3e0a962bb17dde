from dataclasses import replace

import pytest

from probes.gpu.cuda import CudaDevice, CudaReading
from probes.gpu.judge import judge_accelerators
from probes.gpu.nvml_process import NvidiaReading
from probes.hardware import Accelerator, Memory, Outcome, ProbeReport, Software, Torch

CPU_BUILD = Torch("2.13.0+cpu", cuda_available=False)
CUDA_BUILD = Torch("2.13.0+cu130", "13.0")
ROCM_BUILD = Torch("2.13.0+rocm6.4", hip_version="6.4")
XPU_BUILD = Torch("2.13.0+xpu", xpu_version="20250301", cuda_available=False)
NO_NVML = ProbeReport(Outcome.ABSENT, reason="no NVIDIA driver")
MEMORY = Memory(total_bytes=64, available_bytes=40)


def judge(card: Accelerator, torch: Torch | None = CUDA_BUILD, python: str | None = "3.12") -> Accelerator:
    software = Software(python, torch)
    [judged] = judge_accelerators([card], NvidiaReading(Outcome.ABSENT), NO_NVML, software, MEMORY)
    return judged


def card(vendor: str | None, driver: str | None, segment: str | None = None) -> Accelerator:
    unified = True if segment == "integrated" else None
    return Accelerator(
        "pci-0000:01:00.0", vendor, kernel_driver=driver, segment=segment, unified_memory=unified,
        pci_address="0000:01:00.0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("vendor", "driver", "segment", "torch", "words"),
    [
        ("NVIDIA", "vfio-pci", None, CUDA_BUILD, "set aside for a virtual machine (bound to vfio-pci)"),
        ("AMD", "vfio-pci", None, CUDA_BUILD, "set aside for a virtual machine"),
        ("NVIDIA", "nouveau", None, CUDA_BUILD, "nouveau drives it, which CUDA cannot use"),
        ("NVIDIA", "nova", None, CUDA_BUILD, "nova drives it, which CUDA cannot use"),
        ("NVIDIA", "nova_core", None, CUDA_BUILD, "the free driver nova drives it"),
        ("NVIDIA", None, None, CUDA_BUILD, "NVIDIA's driver does not tell of it: no NVIDIA driver"),
        ("AMD", "radeon", None, ROCM_BUILD, "ROCm cannot use"),
        ("AMD", None, None, ROCM_BUILD, "no driver is bound to it (amdgpu is needed)"),
        ("AMD", "amdgpu", None, CUDA_BUILD, "torch 2.13.0+cu130 is built without ROCm"),
        ("AMD", "amdgpu", None, CPU_BUILD, "is built without ROCm"),
        ("AMD", "amdgpu", None, None, "torch is not installed"),
        ("AMD", "amdgpu", "integrated", CPU_BUILD, "built into the CPU"),
        ("Intel", None, None, XPU_BUILD, "no driver is bound to it (xe or i915 is needed)"),
        ("Intel", "i915", None, CUDA_BUILD, "is built without XPU support"),
        ("Intel", "i915", "integrated", CPU_BUILD, "built into the CPU"),
        ("Moore Threads", "mtgpu", None, CUDA_BUILD, "no backend of its own"),
        (None, None, None, CUDA_BUILD, "no backend of its own"),
        ("Apple", "asahi", "integrated", CPU_BUILD, "no backend of its own"),
    ],
)
def test_what_stands_in_a_cards_way_is_said(
    vendor: str | None, driver: str | None, segment: str | None, torch: Torch | None, words: str
) -> None:
    judged = judge(card(vendor, driver, segment), torch)
    assert judged.usable is False
    assert words in (judged.why_not or "")


@pytest.mark.parametrize(
    ("vendor", "driver", "segment", "torch"),
    [
        ("AMD", "amdgpu", None, ROCM_BUILD),
        ("AMD", "amdgpu", "integrated", ROCM_BUILD),
        ("Intel", "xe", None, XPU_BUILD),
        ("Intel", "xe", "integrated", XPU_BUILD),
        ("Apple", None, "integrated", CPU_BUILD),
        ("AMD", "amdgpu", None, Torch("2.13.0")),  # torch/version.py could not be read
    ],
)
def test_what_only_torch_can_tell_is_left_open(
    vendor: str, driver: str | None, segment: str | None, torch: Torch
) -> None:
    assert judge(card(vendor, driver, segment), torch).usable is None


@pytest.mark.parametrize("vendor", ["AMD", "Intel", "Apple"])
def test_a_captured_machine_tells_nothing_of_software(vendor: str) -> None:
    assert judge(card(vendor, None), None, python=None).usable is None


def test_shared_memory_is_the_machines_unless_a_driver_told_of_the_pool() -> None:
    shared = judge(card("Intel", "xe", "integrated"))
    assert (shared.memory_total_bytes, shared.memory_free_bytes) == (64, 40)
    told = judge(replace(card("AMD", "amdgpu", "integrated"), memory_total_bytes=32, memory_free_bytes=8))
    assert (told.memory_total_bytes, told.memory_free_bytes) == (32, 8)


@pytest.mark.parametrize(("usable", "free"), [(30, 30), (90, 60), (None, None)])
def test_what_is_left_of_a_pool_that_only_cuda_sizes_is_what_a_process_may_take(
    usable: int | None, free: int | None
) -> None:
    """A Jetson, a GB10: NVML tells nothing of their memory, and CUDA its size."""
    told = NvidiaReading(
        Outcome.OK, accelerators=(Accelerator("GPU-aa", "NVIDIA", "NVIDIA GB10", unified_memory=True),)
    )
    cuda = CudaReading(Outcome.OK, devices=(CudaDevice("aa", memory_total_bytes=60, integrated=True),))
    memory = Memory(total_bytes=64, available_bytes=40, usable_bytes=usable)
    [card] = judge_accelerators((), told, ProbeReport(Outcome.OK), Software("3.12", CUDA_BUILD), memory, cuda=cuda)
    assert (card.memory_total_bytes, card.memory_free_bytes, card.torch_device) == (60, free, "cuda:0")


def test_of_a_part_that_a_driver_set_aside_nothing_is_told_that_it_did_not() -> None:
    carved = judge(replace(card("AMD", "amdgpu", "integrated"), memory_total_bytes=32))
    assert (carved.memory_total_bytes, carved.memory_free_bytes) == (32, None)


def test_drivers_of_several_vendors_and_the_bus_make_one_list() -> None:
    nvidia = NvidiaReading(
        Outcome.OK, accelerators=(Accelerator("GPU-aa", "NVIDIA", "NVIDIA A100", pci_address="0000:02:00.0"),)
    )
    radeon = Accelerator("GPU-bb", "AMD", "AMD Instinct MI210", pci_address="0000:01:00.0", kernel_driver="amdgpu")
    on_bus = [card("AMD", "amdgpu"), replace(card("NVIDIA", "nvidia"), id="x", pci_address="0000:02:00.0")]
    cards = judge_accelerators(
        on_bus, nvidia, ProbeReport(Outcome.OK), Software("3.12", CUDA_BUILD), MEMORY,
        others=[radeon], cuda=CudaReading(Outcome.OK, devices=(CudaDevice("aa"),)),
    )  # fmt: skip
    found = {card.id: (card.torch_device, card.usable, card.segment) for card in cards}
    assert found == {"GPU-aa": ("cuda:0", None, "data-center"), "GPU-bb": (None, False, "data-center")}
