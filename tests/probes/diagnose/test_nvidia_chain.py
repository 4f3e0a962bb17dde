"""NVIDIA's chain, broken at each of its links in every way that is told apart."""

from dataclasses import replace

import pytest

from probes.diagnose import State, build_chains, diagnose
from probes.hardware import Accelerator, DeviceFile, GpuProcess, Outcome, ProbeReport, Software
from tests.probes.diagnose.situations import (
    CARD,
    CONTAINER,
    GIB,
    HEALTHY,
    NVIDIA,
    ON_BUS,
    assert_breaks,
    chain_of,
    codes,
    only,
    untold,
    with_card,
    with_driver,
    with_torch,
)

REFUSED = DeviceFile("/dev/nvidiactl", False, False, "EACCES", "video")
TAKEN = DeviceFile("/dev/nvidiactl", False, False, "EPERM", None)


def test_on_a_healthy_machine_every_link_holds_and_nothing_is_found() -> None:
    assert codes(HEALTHY) == []
    assert {link.state for link in chain_of(HEALTHY).links} == {State.OK}
    assert [link.name for link in chain_of(HEALTHY).links] == [
        "device on the bus",
        "kernel module",
        "device files and permissions",
        "driver library",
        "CUDA initialises",
        "torch is built for it",
        "torch has kernels for this card",
        "not hidden by the environment",
        "free memory",
    ]


def test_a_card_of_a_virtual_machine_is_not_ours() -> None:
    card = replace(ON_BUS, kernel_driver="vfio-pci")
    finding = assert_breaks(replace(HEALTHY, accelerators=(card,)), "kernel module", "gpu-reserved-for-virtual-machine")
    assert "0000:01:00.0" in (finding.fix or "")


@pytest.mark.parametrize("kernel_driver", ["nouveau", None])
def test_nouveau_in_the_drivers_place_is_named(kernel_driver: str | None) -> None:
    facts = untold(kernel_modules=("nouveau",), kernel_module_version=None, library=None, device_files=())
    facts = replace(facts, software=replace(facts.software, nvidia_driver=None))
    assert_breaks(with_card(facts, kernel_driver=kernel_driver), "kernel module", "nouveau-instead-of-nvidia")


def test_a_card_without_any_driver_needs_one() -> None:
    facts = untold(kernel_modules=(), kernel_module_version=None, library=None, device_files=())
    facts = replace(facts, software=replace(facts.software, nvidia_driver=None))
    finding = assert_breaks(facts, "kernel module", "gpu-without-driver")
    assert finding.blocking
    assert "host" in (only(replace(facts, system=CONTAINER)).fix or "")


def test_a_container_that_was_not_given_its_gpu_is_told_how() -> None:
    facts = replace(untold(device_files=(), library=None), system=CONTAINER)
    finding = assert_breaks(facts, "device files and permissions", "container-without-gpu")
    assert "--gpus all" in (finding.fix or "")
    for kind, word in (
        ("podman", "--device nvidia.com/gpu"),
        ("kubernetes", "limits"),
        ("apptainer", "--nv"),
        ("lxc", "lxc"),
    ):
        inside = replace(facts, system=replace(CONTAINER, container=kind))
        assert word in (only(inside).fix or "")
    other = replace(facts, system=replace(CONTAINER, container="something new"))
    assert only(other).fix == finding.fix


def test_a_container_with_device_files_and_no_libraries_was_not_given_its_gpu_either() -> None:
    facts = replace(untold(library=None, library_version=None), system=CONTAINER)
    assert_breaks(facts, "driver library", "container-without-gpu")


def test_a_container_whose_driver_answers_and_shows_no_card_was_not_given_it() -> None:
    facts = replace(untold(outcome=Outcome.OK), system=CONTAINER)
    assert_breaks(facts, "driver library", "container-without-gpu")


def test_a_container_with_one_of_two_cards_is_no_broken_machine() -> None:
    facts = replace(untold(outcome=Outcome.OK), system=CONTAINER)
    facts = replace(facts, accelerators=(CARD, replace(ON_BUS, id="pci-2", pci_address="0000:02:00.0")))
    finding = only(facts)
    assert (finding.code, finding.blocking) == ("gpu-not-in-container", False)


def test_missing_device_files_outside_a_container_are_made() -> None:
    finding = assert_breaks(untold(device_files=()), "device files and permissions", "device-files-missing")
    assert "nvidia-modprobe" in (finding.fix or "")


def test_a_user_who_may_not_open_the_device_files_is_told_of_the_group() -> None:
    finding = assert_breaks(
        untold(device_files=(REFUSED,)), "device files and permissions", "no-permission-on-device-files"
    )
    assert "usermod -aG video" in (finding.fix or "")
    in_container = only(replace(untold(device_files=(REFUSED,)), system=CONTAINER))
    assert "--group-add video" in (in_container.fix or "")
    assert_breaks(untold(library_error="NVML_ERROR_NO_PERMISSION"), "driver library", "no-permission-on-device-files")


def test_access_that_a_container_lost_is_told_from_a_missing_permission() -> None:
    assert_breaks(untold(device_files=(TAKEN,)), "device files and permissions", "gpu-access-lost")
    unknown_error = replace(untold(library_error="NVML_ERROR_UNKNOWN"), system=CONTAINER)
    assert_breaks(unknown_error, "driver library", "gpu-access-lost")


def test_a_library_that_is_not_there_is_to_be_installed() -> None:
    assert_breaks(untold(library=None, library_version=None), "driver library", "driver-library-missing")
    facts = untold(library_error="NVML_ERROR_LIBRARY_NOT_FOUND")
    assert_breaks(facts, "driver library", "driver-library-missing")


def test_a_library_of_another_version_than_the_kernel_module_wants_a_restart() -> None:
    for facts in (
        untold(library_error="NVML_ERROR_LIB_RM_VERSION_MISMATCH", library_version="580.82.07"),
        untold(library_version="580.82.07"),
    ):
        finding = assert_breaks(facts, "driver library", "driver-versions-differ")
        assert "580.65.06" in finding.message
        assert "580.82.07" in finding.message
    broken = with_driver(compute_error="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", compute_devices=0)
    assert_breaks(broken, "CUDA initialises", "driver-versions-differ")


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.FAILED])
def test_a_driver_that_hangs_or_crashes_is_told_so(outcome: Outcome) -> None:
    assert_breaks(untold(outcome=outcome), "driver library", "driver-does-not-answer")


def test_any_other_error_of_the_library_is_named() -> None:
    finding = assert_breaks(untold(library_error="NVML_ERROR_MEMORY"), "driver library", "driver-library-fails")
    assert "NVML_ERROR_MEMORY" in finding.message


def test_a_library_that_reaches_no_kernel_module_means_no_driver() -> None:
    assert_breaks(untold(library_error="NVML_ERROR_DRIVER_NOT_LOADED"), "driver library", "gpu-without-driver")


def test_a_card_that_a_working_driver_passes_over_is_not_supported_by_it() -> None:
    assert_breaks(untold(outcome=Outcome.OK), "driver library", "gpu-ignored-by-driver")


@pytest.mark.parametrize("state", ["stopped", "absent", None])
def test_cards_behind_a_switch_need_the_fabric_manager(state: str | None) -> None:
    facts = with_driver(compute_error="CUDA_ERROR_SYSTEM_NOT_READY", compute_devices=0, fabric_manager=state)
    finding = assert_breaks(facts, "CUDA initialises", "fabric-manager-missing")
    assert "nvidia-fabricmanager" in (finding.fix or "")
    assert "(CUDA_ERROR_SYSTEM_NOT_READY)" in finding.message


def test_a_fabric_manager_that_runs_and_is_not_ready_is_not_to_be_started() -> None:
    facts = with_driver(compute_error="CUDA_ERROR_SYSTEM_NOT_READY", compute_devices=0, fabric_manager="running")
    finding = assert_breaks(facts, "CUDA initialises", "fabric-manager-missing")
    assert "runs and has not set them up" in finding.message
    assert "enable --now" not in (finding.fix or "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("CUDA_ERROR_UNKNOWN", "cuda-does-not-initialise"),
        ("CUDA_ERROR_OPERATING_SYSTEM", "cuda-does-not-initialise"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver-versions-differ"),
        ("CUDA_ERROR_OF_THE_FUTURE", "fabric-manager-missing"),
    ],
)
def test_a_cause_that_cuda_names_goes_before_a_service_that_does_not_run(error: str, code: str) -> None:
    facts = with_driver(compute_error=error, compute_devices=0, fabric_manager="absent")
    finding = assert_breaks(facts, "CUDA initialises", code)
    assert "CUDA_ERROR_SYSTEM_NOT_READY" not in finding.message


def test_a_card_that_somebody_holds_for_himself_is_not_free() -> None:
    why = "its compute mode is exclusive-process, and python (process 7) computes on it"
    held = with_card(usable=False, compute_mode="exclusive-process", why_not=why)
    finding = assert_breaks(held, "CUDA initialises", "cuda-does-not-initialise")
    assert "process 7" in finding.message
    assert "-c DEFAULT" in (finding.fix or "")


@pytest.mark.parametrize("why", ["torch does not list it (CUDA_VISIBLE_DEVICES may hide it)", "torch is not installed"])
def test_what_else_makes_an_exclusive_card_unusable_is_not_its_modes(why: str) -> None:
    card = with_card(usable=False, compute_mode="exclusive-process", why_not=why, torch_device=None)
    links = {link.name: link.state for link in chain_of(card).links}
    assert links["CUDA initialises"] is State.OK


def test_mig_without_an_instance_shows_nothing_to_cuda() -> None:
    assert_breaks(with_card(mig_mode=True), "CUDA initialises", "mig-without-instances")
    instance = Accelerator("MIG-1", vendor="NVIDIA", parent_id=CARD.id)
    split = replace(HEALTHY, accelerators=(replace(CARD, mig_mode=True), instance))
    assert codes(split) == []


@pytest.mark.parametrize("value", ["", "-1"])
def test_cards_that_are_hidden_on_purpose_are_found_by_the_variable(value: str) -> None:
    facts = replace(
        with_driver(compute_error="CUDA_ERROR_NO_DEVICE", compute_devices=0),
        environment={"CUDA_VISIBLE_DEVICES": value},
    )
    finding = assert_breaks(facts, "not hidden by the environment", "hidden-by-environment")
    assert finding.fix == "unset CUDA_VISIBLE_DEVICES"


def test_a_variable_that_leaves_the_card_visible_explains_no_missing_device() -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "0"}
    silent = with_driver(replace(HEALTHY, environment=visible), compute_error="CUDA_ERROR_NO_DEVICE", compute_devices=0)
    assert_breaks(silent, "CUDA initialises", "cuda-does-not-initialise")
    without = with_torch(replace(HEALTHY, environment=visible), cuda_available=False)
    assert_breaks(without, "torch is built for it", "cuda-does-not-initialise")


@pytest.mark.parametrize("value", ["7", "GPU-00000000", "all", "rubbish", "0,0"])
def test_a_value_that_matches_no_card_is_told_apart(value: str) -> None:
    facts = replace(HEALTHY, environment={"CUDA_VISIBLE_DEVICES": value})
    assert_breaks(facts, "not hidden by the environment", "visible-devices-match-nothing")


def test_a_card_that_is_left_out_is_no_obstacle() -> None:
    other = replace(CARD, id="GPU-00000000-0000", pci_address="0000:02:00.0")
    facts = replace(HEALTHY, accelerators=(CARD, other), environment={"CUDA_VISIBLE_DEVICES": "0"})
    finding = only(facts)
    assert (finding.code, finding.blocking) == ("left-out-by-environment", False)


def test_memory_that_others_took_is_told_with_their_names() -> None:
    by = (GpuProcess(41, "python", 2 * GIB), GpuProcess(7, "/usr/bin/ollama serve", 8 * GIB))
    finding = only(with_card(memory_free_bytes=2 * GIB, processes=by))
    assert finding.code == "gpu-memory-taken"
    assert not finding.blocking
    assert "ollama (PID 7) 8.6 GB, python (PID 41) 2.1 GB" in finding.message
    assert finding.fix == "If you no longer need it: kill 7"


def test_a_full_card_stands_in_the_way() -> None:
    assert_breaks(with_card(memory_free_bytes=GIB // 4), "free memory", "gpu-memory-full")
    large = with_card(memory_total_bytes=141 * GIB, memory_free_bytes=5 * GIB // 2)
    assert codes(large) == ["gpu-memory-taken"]  # there is room to start torch
    assert codes(with_card(memory_free_bytes=None)) == []
    assert codes(with_card(memory_free_bytes=1, unified_memory=True)) == []


def test_two_cards_may_break_at_different_links() -> None:
    old = replace(
        CARD, id="GPU-2", name="NVIDIA GeForce GTX 1080", compute_capability="6.1", pci_address="0000:02:00.0"
    )
    gone = replace(ON_BUS, id="pci-3", pci_address="0000:03:00.0", kernel_driver="vfio-pci")
    facts = replace(HEALTHY, accelerators=(CARD, old, gone))
    assert [chain.broken_at for chain in build_chains(facts)] == [
        None,
        "torch has kernels for this card",
        "kernel module",
    ]
    assert codes(facts) == ["torch-without-kernels", "gpu-reserved-for-virtual-machine"]


def test_eight_cards_that_miss_the_same_thing_are_one_finding() -> None:
    cards = tuple(replace(CARD, id=f"GPU-{n}", torch_device=f"cuda:{n}") for n in range(8))
    facts = with_torch(cuda_version=None, cuda_available=False)
    [finding] = diagnose(replace(facts, accelerators=cards))
    assert finding.subject.startswith("cuda:0, cuda:1")


def test_of_a_captured_machine_what_nobody_captured_is_unknown() -> None:
    facts = replace(HEALTHY, accelerators=(ON_BUS,), software=Software(), probes={})
    assert codes(facts) == []
    states = {link.name: link.state for link in chain_of(facts).links}
    assert states["kernel module"] is State.UNKNOWN
    assert states["torch is built for it"] is State.UNKNOWN


def test_windows_driver_below_linux_needs_no_device_files_of_nvidias() -> None:
    files = (DeviceFile("/dev/dxg", True, True),)
    facts = with_driver(kernel_modules=(), kernel_module_version=None, device_files=files)
    assert codes(replace(facts, system=replace(HEALTHY.system, container="wsl"))) == []


def test_every_driver_row_is_found_by_its_vendor() -> None:
    assert HEALTHY.driver_of("NVIDIA") is NVIDIA
    assert HEALTHY.driver_of("AMD") is None


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.FAILED])
def test_a_cuda_that_does_not_answer_is_told_so(outcome: Outcome) -> None:
    facts = with_driver(compute_devices=None)
    facts = replace(
        facts, probes={**facts.probes, "cuda": ProbeReport(outcome, 1.0, "CUDA did not initialise in time")}
    )
    finding = assert_breaks(facts, "CUDA initialises", "cuda-does-not-initialise")
    assert "did not initialise in time" in finding.message


def test_a_container_that_may_look_at_the_card_and_not_compute_on_it() -> None:
    facts = with_driver(compute_devices=None)
    facts = replace(facts, probes={**facts.probes, "cuda": ProbeReport(Outcome.ABSENT, 0.0, "no libcuda")})
    assert "libnvidia-compute" in (assert_breaks(facts, "CUDA initialises", "driver-library-missing").fix or "")
    inside = replace(facts, system=CONTAINER)
    assert "NVIDIA_DRIVER_CAPABILITIES=compute" in (only(inside).fix or "")


def test_a_torch_that_finds_no_device_for_no_other_reason_is_told_so() -> None:
    assert_breaks(with_torch(cuda_available=False), "torch is built for it", "cuda-does-not-initialise")
    why = "CUDA could not be started on this device: out of memory"
    assert_breaks(with_card(usable=False, why_not=why), "CUDA initialises", "cuda-does-not-initialise")


def test_a_driver_that_fails_is_a_card_though_no_bus_shows_one() -> None:
    """As under WSL, where cards are on no bus."""
    facts = replace(untold(outcome=Outcome.TIMEOUT, kernel_modules=(), device_files=()), accelerators=())
    facts = replace(facts, software=replace(facts.software, nvidia_driver=None))
    facts = with_driver(facts, kernel_module_version=None, library_version=None)
    assert_breaks(facts, "driver library", "driver-does-not-answer")
    other = with_driver(facts, library_error="NVML_ERROR_LIB_RM_VERSION_MISMATCH")
    assert codes(other) == ["driver-versions-differ"]
    absent = replace(facts, probes={"nvidia": ProbeReport(Outcome.ABSENT, 0.0, "none")})
    assert codes(absent) == ["no-gpu"]


def test_linux_below_windows_is_no_container() -> None:
    facts = replace(untold(library_error="NVML_ERROR_UNKNOWN"), system=replace(CONTAINER, container="wsl"))
    assert codes(facts) == ["driver-library-fails"]
