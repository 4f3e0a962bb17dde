"""Whether the driver is new enough for torch's CUDA, where more than its table is known."""

from dataclasses import replace

import pytest

from probes.diagnose import Facts, build_chains
from probes.hardware import Accelerator, DeviceFile, Driver
from tests.probes.diagnose.situations import HEALTHY, codes, only, with_card, with_driver, with_torch


def on_driver(driver: str, cuda: str | None, devices: int | None) -> Facts:
    """A torch for CUDA 13.0 that was not asked yet; cuda: what the CUDA library here says that it is."""
    facts = with_torch(with_driver(with_card(driver_version=driver), compute_devices=devices), cuda_available=None)
    return replace(facts, software=replace(facts.software, cuda_driver_version=cuda))


def test_a_cuda_that_has_started_here_outranks_the_table_of_drivers() -> None:
    """An older driver with NVIDIA's compatibility package."""
    assert codes(on_driver("535.183.01", "13.0", 1)) == []
    assert codes(on_driver("535.183.01", "13.1", 8)) == []


def test_a_cuda_that_is_older_or_has_not_started_outranks_nothing() -> None:
    for facts in (
        on_driver("535.183.01", "12.2", 1),
        on_driver("535.183.01", "13.0", None),
        on_driver("535.183.01", None, 1),
    ):
        assert codes(facts) == ["driver-too-old-for-torch"]


def test_a_jetson_among_torchs_kernels_for_cards_is_told_of_nvidias_own_build() -> None:
    facts = with_torch(with_card(compute_capability="8.7", name="Orin"), architectures=("sm_80", "sm_86", "sm_90"))
    finding = only(facts)
    assert finding.code == "torch-without-kernels"
    assert "Jetson" in (finding.fix or "")
    assert codes(replace(HEALTHY, accelerators=facts.accelerators)) == ["torch-without-kernels"]


RADEON = Accelerator(
    "pci-0000:03:00.0",
    vendor="AMD",
    name="AMD Radeon RX 6400",
    segment="consumer",
    pci_address="0000:03:00.0",
    kernel_driver="amdgpu",
)
ARC = replace(RADEON, vendor="Intel", name="Intel Arc A310 Graphics", kernel_driver="xe")


def beside(other: Accelerator, facts: Facts = HEALTHY) -> Facts:
    """A machine whose screens are on another vendor's card, which all but torch would use."""
    files = tuple(DeviceFile(f"/dev/{name}", True, True) for name in ("kfd", "dri/renderD128"))
    modules, library = (other.kernel_driver or "",), "libze_intel_gpu.so.1"
    driver = Driver(other.vendor or "", modules, library=library, device_files=files)
    software = replace(facts.software, drivers=(*facts.software.drivers, driver))
    return replace(facts, accelerators=(*facts.accelerators, other), software=software)


@pytest.mark.parametrize("other", [RADEON, ARC], ids=["AMD", "Intel"])
@pytest.mark.parametrize("environment", [{}, {"CUDA_VISIBLE_DEVICES": ""}], ids=["all shown", "its card hidden"])
def test_a_torch_that_drives_another_vendors_card_is_not_to_be_uninstalled(
    other: Accelerator, environment: dict[str, str]
) -> None:
    shown = with_card(usable=not environment, torch_device=None if environment else "cuda:0")
    facts = replace(beside(other, shown), environment=environment)
    chain = next(chain for chain in build_chains(facts) if chain.vendor == other.vendor)
    [finding] = chain.findings
    assert (finding.code, finding.blocking) == ("torch-for-another-vendor", False)
    assert chain.broken_at == "torch is built for it"
    assert "NVIDIA GeForce RTX 3080 Ti" in finding.message
    assert "uninstall" not in (finding.fix or "")
    assert codes(facts) == [*(["hidden-by-environment"] if environment else []), finding.code]


def test_a_torch_for_rocm_that_drives_the_card_beside_is_told_of_an_nvidia_card() -> None:
    used = replace(RADEON, usable=True, torch_device="cuda:0")
    facts = with_torch(
        beside(used, with_card(usable=False)),
        version="2.13.0+rocm7.0",
        cuda_version=None,
        hip_version="7.0",
        cuda_available=True,
        architectures=("gfx1034",),
    )
    chain = next(chain for chain in build_chains(facts) if chain.vendor == "NVIDIA")
    assert [(finding.code, finding.blocking) for finding in chain.findings] == [("torch-for-another-vendor", False)]
    assert "not looked at, as “torch is built for it” is not so" in {link.evidence for link in chain.links}


def test_a_torch_for_a_card_that_a_virtual_machine_has_is_the_wrong_one() -> None:
    facts = beside(RADEON, with_card(id="pci-0000:01:00.0", usable=False, kernel_driver="vfio-pci"))
    assert codes(facts) == ["gpu-reserved-for-virtual-machine", "torch-without-rocm"]
