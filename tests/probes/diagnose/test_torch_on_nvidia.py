"""Of a card whose driver works: what torch and CUDA lack to use it."""

from dataclasses import replace

import pytest

from probes.hardware import Severity, System
from tests.probes.diagnose.situations import (
    HEALTHY,
    assert_breaks,
    codes,
    only,
    with_card,
    with_driver,
    with_torch,
)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "compat"),
        ("CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        ("CUDA_ERROR_STUB_LIBRARY", "stubs"),
        ("CUDA_ERROR_NO_DEVICE", "dmesg"),
        ("CUDA_ERROR_OF_THE_FUTURE", "dmesg"),
    ],
)
def test_an_error_of_cuda_is_named_with_what_to_do(error: str, word: str) -> None:
    finding = assert_breaks(
        with_driver(compute_error=error, compute_devices=0), "CUDA initialises", "cuda-does-not-initialise"
    )
    assert error in finding.message
    assert word in (finding.fix or "")


def test_a_torch_without_cuda_is_the_finding_and_its_missing_kernels_are_not() -> None:
    facts = with_torch(version="2.13.0+cpu", cuda_version=None, cuda_available=False, architectures=())
    finding = assert_breaks(facts, "torch is built for it", "torch-without-cuda")
    assert (finding.severity, finding.blocking) == (Severity.WARNING, True)
    arm = replace(facts, system=System(architecture="aarch64"))
    assert "Arm" in only(arm).message


def test_without_torch_nothing_can_be_trained() -> None:
    facts = replace(HEALTHY, software=replace(HEALTHY.software, torch=None))
    finding = assert_breaks(facts, "torch is built for it", "torch-not-installed")
    assert finding.blocking
    assert "torch-not-installed" in codes(replace(facts, accelerators=())), "nor without a card"


def test_a_torch_that_does_not_start_says_why() -> None:
    facts = replace(HEALTHY, torch_error="libcudart.so.13: cannot open shared object file")
    assert "libcudart" in assert_breaks(facts, "torch is built for it", "torch-does-not-start").message


@pytest.mark.parametrize(
    ("driver", "cuda", "too_old"),
    [
        ("570.86.15", "13.0", True),
        ("580.65.06", "13.1", False),
        ("525.60.13", "12.8", False),  # minor versions are compatible
        ("520.61.05", "12.1", True),
        ("450.80.02", "11.8", False),
        ("440.33.01", "10.2", False),
        ("418.67", "10.2", True),
        ("garbled", "13.0", False),
    ],
)
def test_a_driver_is_too_old_for_torchs_cuda_by_nvidias_table(driver: str, cuda: str, too_old: bool) -> None:
    facts = with_torch(with_card(driver_version=driver), cuda_version=cuda, cuda_available=None)
    facts = replace(facts, software=replace(facts.software, cuda_driver_version=None))
    assert codes(facts) == (["driver-too-old-for-torch"] if too_old else [])


@pytest.mark.parametrize(
    ("capability", "driver", "cuda", "code", "told"),
    [
        ("6.1", "550.54.15", "13.0", "torch-without-kernels", "CUDA 12.6"),  # GTX 1080 Ti, pip's torch
        ("7.0", "535.183.01", "13.0", "torch-without-kernels", "CUDA 12.6"),  # V100
        ("3.7", "470.256.02", "12.6", "torch-without-kernels", "470 is the last branch"),  # Tesla K80
        ("6.1", "470.256.02", "12.6", "driver-too-old-for-torch", "580 is the last branch"),
        ("6.1", "470.256.02", "13.0", "torch-without-kernels", "update the driver to 525.60.13"),
        ("3.7", "390.157", "12.6", "torch-without-kernels", "update the driver to 450.80.02"),
        ("2.1", "375.26", "12.6", "torch-without-kernels", "keep the driver (390 is the last branch"),
        ("7.5", "550.54.15", "13.0", "driver-too-old-for-torch", "580 or newer, or"),  # Turing
    ],
)
def test_no_driver_is_advised_that_would_not_help_the_card(
    capability: str, driver: str, cuda: str, code: str, told: str
) -> None:
    facts = with_card(driver_version=driver, compute_capability=capability)
    facts = with_torch(facts, cuda_version=cuda, cuda_available=None, architectures=())
    finding = only(replace(facts, software=replace(facts.software, cuda_driver_version=None)))
    assert finding.code == code
    assert told in (finding.fix or "")


def test_a_card_older_than_torchs_cuda_can_compile_for_is_told_without_starting_torch() -> None:
    facts = with_torch(with_card(compute_capability="6.1"), architectures=())
    assert_breaks(facts, "torch has kernels for this card", "torch-without-kernels")


def test_a_cuda_that_the_table_does_not_know_is_judged_by_the_drivers_own() -> None:
    facts = with_torch(cuda_version="14.0", cuda_available=None)
    assert codes(facts) == ["driver-too-old-for-torch"]
    assert codes(replace(facts, software=replace(facts.software, cuda_driver_version="14.2"))) == []


def test_a_driver_with_which_torch_works_is_never_too_old() -> None:
    """Data-centre cards run newer CUDA on older drivers with NVIDIA's compatibility package."""
    facts = with_torch(with_card(driver_version="535.1", torch_device="cuda:0", usable=True))
    assert codes(facts) == []


def test_a_card_that_torch_has_no_kernels_for_is_told_its_capability() -> None:
    finding = assert_breaks(
        with_card(compute_capability="6.1"), "torch has kernels for this card", "torch-without-kernels"
    )
    assert "6.1" in finding.message
