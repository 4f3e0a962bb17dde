"""The chains of AMD's, Intel's and Apple's cards."""

from dataclasses import replace

import pytest

from probes.diagnose import Facts, State
from probes.gpu.pci import NEURAL_PROCESSOR, NO_INTEL_GPU
from probes.hardware import Accelerator, DeviceFile, Driver, Software, System, Torch
from tests.probes.diagnose.situations import (
    CONTAINER,
    GIB,
    HEALTHY,
    assert_breaks,
    chain_of,
    codes,
    only,
    with_card,
    with_driver,
    with_torch,
)

AMD_FILES = (DeviceFile("/dev/kfd", True, True, None, "render"), DeviceFile("/dev/dri/renderD128", True, True))
AMD = replace(
    HEALTHY,
    accelerators=(
        Accelerator(
            "GPU-1a2b",
            vendor="AMD",
            name="AMD Radeon RX 7900 XTX",
            pci_address="0000:03:00.0",
            gfx_target="gfx1100",
            kernel_driver="amdgpu",
            memory_total_bytes=24 * GIB,
            memory_free_bytes=23 * GIB,
        ),
    ),
    software=Software(
        "3.12",
        Torch("2.13.0+rocm7.0", hip_version="7.0", cuda_available=True, architectures=("gfx1030", "gfx1100")),
        drivers=(Driver("AMD", ("amdgpu",), device_files=AMD_FILES),),
    ),
    limits=replace(HEALTHY.limits, locked_memory_unlimited=True),
)
INTEL = replace(
    AMD,
    accelerators=(
        Accelerator("pci-0000:03:00.0", "Intel", "Intel Arc A770", pci_address="0000:03:00.0", kernel_driver="xe"),
    ),
    software=Software(
        "3.12",
        Torch("2.13.0+xpu", cuda_available=False),
        drivers=(
            Driver(
                "Intel",
                ("xe",),
                library="libze_intel_gpu.so.1",
                device_files=(DeviceFile("/dev/dri/renderD128", True, True, None, "render"),),
            ),
        ),
    ),
)
APPLE = Facts(
    system=System(os="macOS 15.1", architecture="arm64"),
    accelerators=(
        Accelerator("apple-0", vendor="Apple", name="Apple M3 Max", segment="integrated", unified_memory=True),
    ),
    software=Software("3.12", Torch("2.13.0", cuda_available=False)),
)


@pytest.mark.parametrize("facts", [AMD, INTEL, APPLE], ids=["AMD", "Intel", "Apple"])
def test_healthy_machines_of_other_vendors_have_no_findings(facts: Facts) -> None:
    assert codes(facts) == []
    assert State.BROKEN not in {link.state for link in chain_of(facts).links}


def test_each_vendor_has_its_own_names_of_the_links() -> None:
    names = [[link.name for link in chain_of(facts).links][4] for facts in (AMD, INTEL, APPLE)]
    assert names == ["HIP initialises", "Level Zero initialises", "Metal initialises"]


@pytest.mark.parametrize("facts", [AMD, INTEL], ids=["AMD", "Intel"])
def test_the_lower_links_of_other_vendors_break_alike(facts: Facts) -> None:
    card = replace(facts.accelerators[0], kernel_driver="vfio-pci")
    reserved = replace(facts, accelerators=(card,))
    assert_breaks(reserved, "kernel module", "gpu-reserved-for-virtual-machine")
    bare = with_driver(replace(facts, accelerators=(replace(card, kernel_driver=None),)), kernel_modules=())
    assert_breaks(bare, "kernel module", "gpu-without-driver")
    assert_breaks(with_driver(facts, device_files=()), "device files and permissions", "device-files-missing")
    contained = replace(with_driver(facts, device_files=()), system=CONTAINER)
    assert_breaks(contained, "device files and permissions", "container-without-gpu")


@pytest.mark.parametrize("facts", [AMD, INTEL], ids=["AMD", "Intel"])
def test_a_module_that_is_loaded_for_another_card_does_not_drive_this_one(facts: Facts) -> None:
    """The processor's own graphics are driven; the card is newer than the kernel."""
    vendor, driver = facts.accelerators[0].vendor, facts.accelerators[0].kernel_driver
    graphics = Accelerator(
        "pci-0000:00:02.0", vendor, segment="integrated", pci_address="0000:00:02.0", kernel_driver=driver
    )
    unbound = replace(facts.accelerators[0], kernel_driver=None, usable=False)
    finding = assert_breaks(replace(facts, accelerators=(graphics, unbound)), "kernel module", "gpu-ignored-by-driver")
    assert f"{driver} is loaded" in finding.message
    assert "0000:03:00.0" in finding.message
    assert "dmesg" in (finding.fix or "")


def test_a_card_of_a_captured_machine_that_tells_no_drivers_is_not_called_ignored() -> None:
    unbound = replace(AMD.accelerators[0], kernel_driver=None)
    captured = replace(AMD, accelerators=(unbound,), software=replace(AMD.software, python=None))
    assert "gpu-ignored-by-driver" not in codes(captured)


def test_a_card_that_the_old_driver_runs_is_not_fine_because_the_new_one_is_loaded_too() -> None:
    """Both know cards of GCN's first years, and both are loaded for one."""
    facts = with_driver(with_card(AMD, kernel_driver="radeon"), kernel_modules=("amdgpu", "radeon"))
    finding = assert_breaks(facts, "kernel module", "gpu-without-driver")
    assert "radeon" in finding.message


def test_a_user_outside_the_render_group_is_told_of_it() -> None:
    refused = DeviceFile("/dev/kfd", False, False, "EACCES", "render")
    finding = assert_breaks(
        with_driver(AMD, device_files=(refused,)), "device files and permissions", "no-permission-on-device-files"
    )
    assert "usermod -aG render" in (finding.fix or "")
    lost = replace(refused, error="EPERM")
    assert_breaks(with_driver(AMD, device_files=(lost,)), "device files and permissions", "gpu-access-lost")


def test_a_job_that_has_some_of_amds_cards_is_on_no_broken_machine() -> None:
    """HIP shows those that it has; whose the refused file is nothing tells."""
    own = replace(AMD.accelerators[0], torch_device="cuda:0")
    other = replace(own, id="GPU-2b3c", pci_address="0000:04:00.0", torch_device=None, usable=False)
    files = (*AMD_FILES, DeviceFile("/dev/dri/renderD129", False, False, "EPERM"))
    finding = only(with_driver(replace(AMD, accelerators=(own, other)), device_files=files))
    assert (finding.code, finding.blocking) == ("gpu-not-in-container", False)


def test_a_card_that_a_job_has_is_not_told_as_somebody_elses_where_torch_has_no_kernels_for_it() -> None:
    why = "this build of torch has no kernels for gfx1032; install one that has"
    own = replace(AMD.accelerators[0], torch_device="cuda:0", gfx_target="gfx1032", usable=False, why_not=why)
    files = (*AMD_FILES, DeviceFile("/dev/dri/renderD129", False, False, "EPERM"))
    facts = with_driver(replace(AMD, accelerators=(own,)), device_files=files)
    assert_breaks(facts, "torch has kernels for this card", "torch-without-kernels")


def test_a_torch_for_another_vendor_is_the_wrong_one() -> None:
    wrong = Torch("2.13.0+cu130", cuda_version="13.0", cuda_available=False)
    amd = replace(AMD, software=replace(AMD.software, torch=wrong))
    intel = replace(INTEL, software=replace(INTEL.software, torch=wrong))
    assert_breaks(amd, "torch is built for it", "torch-without-rocm")
    assert_breaks(intel, "torch is built for it", "torch-without-xpu")


def test_intels_library_is_needed_beside_torch() -> None:
    facts = with_driver(INTEL, library=None)
    assert_breaks(facts, "driver library", "driver-library-missing")
    used = replace(facts.accelerators[0], torch_device="xpu:0", usable=True)
    assert codes(replace(facts, accelerators=(used,))) == [], "a library that torch found needs no finding by us"


def test_an_error_of_amds_runtime_is_named() -> None:
    facts = with_driver(AMD, compute_error="hipErrorNoDevice")
    assert "hipErrorNoDevice" in assert_breaks(facts, "HIP initialises", "cuda-does-not-initialise").message


def test_a_torch_for_rocm_that_finds_no_card_is_told_so() -> None:
    facts = with_torch(AMD, cuda_available=False)
    assert_breaks(facts, "torch is built for it", "cuda-does-not-initialise")
    hidden = replace(facts, environment={"HIP_VISIBLE_DEVICES": "-1"})
    assert_breaks(hidden, "not hidden by the environment", "hidden-by-environment")


def test_what_holds_the_memory_of_amds_card_is_shown_by_amds_tool() -> None:
    finding = assert_breaks(with_card(AMD, memory_free_bytes=0), "free memory", "gpu-memory-full")
    assert "rocm-smi" in (finding.fix or "")


def test_amds_kernels_are_for_one_architecture_each() -> None:
    card = replace(AMD.accelerators[0], gfx_target="gfx1032")
    facts = replace(AMD, accelerators=(card,))
    assert_breaks(facts, "torch has kernels for this card", "torch-without-kernels")
    assert codes(replace(facts, environment={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})) == []


@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_amds_variables_hide_cards_too(variable: str) -> None:
    facts = replace(AMD, environment={variable: "9"})
    finding = assert_breaks(facts, "not hidden by the environment", "visible-devices-match-nothing")
    assert variable in (finding.fix or "")


def test_intels_mask_hides_cards_too() -> None:
    facts = replace(INTEL, environment={"ZE_AFFINITY_MASK": "3"})
    assert_breaks(facts, "not hidden by the environment", "visible-devices-match-nothing")


def test_a_mask_that_may_leave_a_card_out_is_no_obstacle_and_none_to_a_card_that_torch_uses() -> None:
    graphics = Accelerator("pci-0000:00:02.0", vendor="Intel", segment="integrated", pci_address="0000:00:02.0")
    card = INTEL.accelerators[0]
    facts = replace(INTEL, accelerators=(graphics, card), environment={"ZE_AFFINITY_MASK": "1"})
    assert codes(facts) == []
    assert chain_of(facts).links[-2].state is State.UNKNOWN
    used = replace(card, usable=True, torch_device="xpu:0")
    masked = replace(INTEL, accelerators=(used,), environment={"ZE_AFFINITY_MASK": "3"})
    assert codes(masked) == []


@pytest.mark.parametrize(
    ("environment", "told"),
    [({"ZE_AFFINITY_MASK": "1"}, "tiles"), ({"ONEAPI_DEVICE_SELECTOR": "level_zero:1"}, "SYCL alone tells")],
)
def test_a_mask_of_tiles_and_sycls_selector_are_no_obstacle_that_is_known(
    environment: dict[str, str], told: str
) -> None:
    card = replace(INTEL.accelerators[0], name="Intel(R) Data Center GPU Max 1550", architecture="Xe-HPC")
    facts = replace(INTEL, accelerators=(card,), environment=environment)
    assert codes(facts) == []
    link = chain_of(facts).links[-2]
    assert (link.state, told in link.evidence) == (State.UNKNOWN, True)


def test_a_python_for_intels_processors_keeps_apples_gpu_from_torch() -> None:
    facts = replace(APPLE, system=replace(APPLE.system, architecture="x86_64"))
    assert_breaks(facts, "torch is built for it", "torch-without-mps")


@pytest.mark.parametrize(
    "card",
    [
        Accelerator("pci-0000:00:02.0", vendor="Intel", segment="integrated", pci_address="0000:00:02.0"),
        Accelerator(
            "pci-0000:00:0b.0", vendor="Intel", pci_address="0000:00:0b.0", usable=False, why_not=NEURAL_PROCESSOR
        ),
        Accelerator("pci-0000:83:00.0", vendor="Intel", pci_address="0000:83:00.0", kernel_driver="mic"),
        Accelerator("pci-0000:1b:00.0", vendor="NEC", pci_address="0000:1b:00.0"),
        Accelerator("pci-0000:5e:00.0", vendor="Intel", usable=False, why_not=NO_INTEL_GPU, kernel_driver="vfio-pci"),
        Accelerator("pci-0000:5e:00.0", vendor="Intel", usable=False, why_not=NO_INTEL_GPU),
    ],
    ids=["graphics in the processor", "neural processor", "Xeon Phi", "vector engine", "FPGA", "FPGA without driver"],
)
def test_what_torch_has_no_backend_for_is_not_called_broken(card: Accelerator) -> None:
    facts = replace(INTEL, accelerators=(card,), software=replace(INTEL.software, drivers=(Driver("Intel", ()),)))
    assert codes(facts) == ["no-gpu"]


def test_graphics_in_a_processor_count_where_torch_uses_them() -> None:
    """Strix Halo with ROCm: what trains is not told to be missing, and has its chain."""
    graphics = replace(AMD.accelerators[0], name="AMD Radeon 8060S", segment="integrated", unified_memory=True)
    assert codes(replace(AMD, accelerators=(graphics,))) == ["no-gpu"]
    used = replace(AMD, accelerators=(replace(graphics, usable=True, torch_device="cuda:0"),))
    assert codes(used) == []
    assert {link.state for link in chain_of(used).links} == {State.OK}


def test_the_package_of_a_fix_goes_with_the_vendor() -> None:
    bare = with_driver(with_card(INTEL, kernel_driver=None), kernel_modules=())
    assert "modprobe xe" in (only(bare).fix or "")
