import sys
from pathlib import Path

import pytest

from probes.hardware import Outcome
from probes.reading import Root, Unreadable
from probes.software import explain_software, parse_torch_version, read_nvidia_driver, read_software
from tests.probes.machines import write_machine

CPU_BUILD = "__version__ = '2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
CUDA_BUILD = "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
ROCM_BUILD = "__version__ = '2.13.0+rocm7'\ncuda: Optional[str] = None\nhip: Optional[str] = '7.0'\n"


def test_torch_is_read_and_not_imported() -> None:
    before = "torch" in sys.modules
    software = read_software(Root())
    assert software.torch is not None
    assert software.torch.version
    assert ("torch" in sys.modules) is before


def test_a_build_without_cuda_certainly_has_no_cuda() -> None:
    torch = parse_torch_version(CPU_BUILD, lambda _: None, lambda: "9.1")
    assert (torch.version, torch.cuda_version, torch.cudnn_version) == ("2.13.0+cpu", None, None)
    assert (torch.cuda_available, torch.device_count, torch.architectures) == (False, 0, ())


@pytest.mark.parametrize("text", [CUDA_BUILD, ROCM_BUILD])
def test_whether_a_device_works_is_not_known_before_torch_has_run(text: str) -> None:
    torch = parse_torch_version(text, lambda _: None, lambda: None)
    assert torch.cuda_available is None
    assert torch.device_count is None


def test_a_cuda_builds_versions_are_read() -> None:
    torch = parse_torch_version(CUDA_BUILD, lambda _: None, lambda: "9.15.1.9")
    assert (torch.cuda_version, torch.cudnn_version) == ("13.0", "9.15.1.9")


def test_builds_for_amd_and_intel_are_told_by_their_own_versions() -> None:
    rocm = parse_torch_version(ROCM_BUILD, lambda _: None, lambda: None)
    assert (rocm.cuda_version, rocm.hip_version, rocm.xpu_version) == (None, "7.0", None)
    xpu = parse_torch_version(CPU_BUILD + "xpu: Optional[str] = '20250301'\n", lambda _: None, lambda: None)
    assert (xpu.xpu_version, xpu.cuda_available) == ("20250301", False)


def test_a_file_that_breaks_off_does_not_prove_a_build_without_cuda() -> None:
    torch = parse_torch_version("__version__ = '2.13.0+cuda'\n", lambda _: None, lambda: None)
    assert (torch.version, torch.cuda_available) == ("2.13.0+cuda", None)


def test_an_unreadable_version_file_leaves_the_packages_word() -> None:
    torch = parse_torch_version("garbage", lambda name: f"{name} 2", lambda: None)
    assert (torch.version, torch.cuda_available) == ("torch 2", None)


def test_a_captured_machine_tells_its_driver_and_nothing_of_this_hosts_software(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        read_software(Root(tmp_path))
    assert caught.value.outcome is Outcome.UNSUPPORTED
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
    software = read_software(Root(write_machine(tmp_path, {"proc/driver/nvidia/version": line})))
    assert (software.nvidia_driver, software.python, software.torch) == ("535.104.05", None, None)
    assert explain_software(software) is None


def test_the_open_kernel_module_writes_its_version_otherwise(tmp_path: Path) -> None:
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    root = Root(write_machine(tmp_path, {"proc/driver/nvidia/version": line}))
    assert read_nvidia_driver(root) == "580.65.06"
