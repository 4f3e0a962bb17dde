"""What the NVML program reads of a card, played in this process by the fake library."""

import sys
from typing import Any

import pynvml as real_pynvml
import pytest

from probes.gpu.nvidia import parse_library_version
from probes.hardware import GpuProcess, Outcome
from probes.names.gpu_table import TABLES, load_table
from tests.probes.gpu.nvml_scenes import play, read, read_reading


def test_a_healthy_card_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert card.memory_bandwidth_bytes_per_second == pytest.approx(912e9, rel=1e-3)  # NVIDIA's data sheet
    assert (card.id, card.name, card.architecture) == ("GPU-00000000", "NVIDIA GeForce RTX 3080 Ti", "Ampere")
    assert (card.compute_capability, card.multiprocessors, card.pci_address) == ("8.6", 80, "0000:01:00.0")
    assert (card.memory_total_bytes, card.memory_free_bytes, card.unified_memory) == (12 << 30, 5 << 30, False)
    assert (card.utilization_percent, card.temperature_celsius, card.power_watts) == (7, 41, pytest.approx(30.1))
    assert (card.power_limit_watts, card.power_limit_default_watts, card.memory_bus_bits) == (350, 360, 384)
    assert (card.graphics_clock_hz, card.graphics_clock_maximum_hz) == (210_000_000, 2_100_000_000)
    assert (card.memory_clock_hz, card.memory_clock_maximum_hz) == (405_000_000, 9_501_000_000)
    assert (card.persistence_mode, card.virtualization, card.mig_mode) == (True, "passthrough", None)
    assert (card.pcie_generation, card.pcie_generation_maximum, card.pcie_lanes) == (1, 4, 16)
    assert card.usable is None  # torch has not been asked


@pytest.mark.parametrize(
    ("number", "mode", "usable"), [("0", "default", None), ("2", "prohibited", False), ("9", None, None)]
)
def test_a_card_tells_who_may_compute(
    monkeypatch: pytest.MonkeyPatch, number: str, mode: str | None, usable: bool | None
) -> None:
    monkeypatch.setenv("FAKE_NVML_COMPUTE_MODE", number)
    play(monkeypatch, "healthy")
    [card] = read()
    assert (card.compute_mode, card.usable) == (mode, usable)


@pytest.mark.parametrize(
    "word", ["KEPLER", "MAXWELL", "PASCAL", "VOLTA", "TURING", "AMPERE", "ADA", "HOPPER", "BLACKWELL"]
)
def test_a_cards_architecture_has_one_name_with_nvml_and_without(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    fake, name = play(monkeypatch, "healthy"), f"NVML_DEVICE_ARCH_{word}"
    number = getattr(real_pynvml, name)
    monkeypatch.setattr(fake, name, number, raising=False)
    monkeypatch.setattr(fake, "nvmlDeviceGetArchitecture", lambda _: number)
    assert read()[0].architecture in {card.architecture for table in TABLES for card in load_table(table)}


def test_a_chip_that_nvml_counts_among_the_architectures_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Jetson Orin's: the table of names settles it."""
    fake = play(monkeypatch, "healthy")
    monkeypatch.setattr(fake, "NVML_DEVICE_ARCH_T23X", 11, raising=False)
    monkeypatch.setattr(fake, "nvmlDeviceGetArchitecture", lambda _: 11)
    assert (read()[0].architecture or "").upper() != "T23X"


def test_its_memorys_health_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert (card.ecc_enabled, card.ecc_corrected_errors, card.ecc_uncorrected_errors) == (True, 3, 1)
    assert (card.ecc_corrected_errors_lifetime, card.ecc_uncorrected_errors_lifetime) == (40, 2)
    assert (card.ecc_needs_reset, card.ecc_repair_failed) == (True, False)


def test_a_card_that_retires_pages_tells_whether_some_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetRemappedRows")
    monkeypatch.setattr(fake, "nvmlDeviceGetRetiredPagesPendingStatus", lambda _: 0, raising=False)
    [card] = read()
    assert (card.ecc_needs_reset, card.ecc_repair_failed) == (False, None)


def test_links_between_cards_are_counted_with_their_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four third-generation links of a GeForce, one of them down: 14.0625 GB/s each and direction."""
    play(monkeypatch, "healthy")
    [card] = read()
    assert (card.nvlinks, card.nvlinks_maximum) == (3, 4)
    assert card.nvlink_bytes_per_second == pytest.approx(3 * 14.062e9)


def test_a_card_without_links_has_no_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetNvLinkState")
    assert read()[0].nvlinks is None


def test_an_idle_card_under_a_power_limit_is_held_down_by_the_limit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert card.throttle_reasons == ("held down by its power limit",)
    assert card.throttle_codes == ("gpu_idle", "sw_power_cap")


@pytest.mark.parametrize("mask", [0, 1])
def test_a_card_at_full_clocks_or_idle_is_not_held_down(monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.setattr(fake, "nvmlDeviceGetCurrentClocksEventReasons", lambda _: mask)
    assert read()[0].throttle_reasons == ()


def test_an_older_driver_tells_of_throttling_by_the_older_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetCurrentClocksEventReasons")
    monkeypatch.setattr(fake, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: 0x40, raising=False)
    assert read()[0].throttle_codes == ("hw_thermal_slowdown",)


def test_the_fabrics_state_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    assert read_reading().fabric_state == "in-progress"
    monkeypatch.setattr(fake, "nvmlDeviceGetGpuFabricInfo", _complete_with_error)
    assert read_reading().fabric_state == "failed"


def _complete_with_error(_: Any, pointer: Any) -> int:
    pointer._obj.state, pointer._obj.status = 3, 999
    return 0


def test_a_laptop_that_answers_no_watts_has_not_measured_any(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.setattr(fake, "nvmlDeviceGetPowerUsage", lambda _: 0)
    assert read()[0].power_watts is None


def test_the_constants_written_out_are_the_librarys() -> None:
    assert (real_pynvml.NVML_CLOCK_GRAPHICS, real_pynvml.NVML_CLOCK_MEM, real_pynvml.NVML_TEMPERATURE_GPU) == (0, 2, 0)
    assert real_pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON == 90
    assert (real_pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, real_pynvml.NVML_VOLATILE_ECC) == (0, 0)
    assert real_pynvml.NVML_GPU_FABRIC_STATE_COMPLETED == 3
    assert real_pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU == 2
    assert real_pynvml.NVML_NVLINK_MAX_LINKS <= 36


def test_memory_that_is_not_supported_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "unified")
    [card] = read()
    assert (card.unified_memory, card.memory_total_bytes, card.memory_bandwidth_bytes_per_second) == (True, None, None)
    assert card.name == "NVIDIA GB10"


def test_a_split_card_gives_way_to_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "mig")
    card, *instances = read()
    assert (card.usable, card.mig_mode) == (False, True)
    assert [instance.id for instance in instances] == [f"MIG-00000000-0000-0000-0000-00000000000{n}" for n in (0, 1)]
    assert {instance.parent_id for instance in instances} == {card.id}
    assert {instance.multiprocessors for instance in instances} == {28}
    assert {instance.memory_total_bytes for instance in instances} == {6 << 30}
    assert {instance.power_watts for instance in instances} == {None}, "the whole card's, and counted once"
    assert {instance.utilization_percent for instance in instances} == {None}


def test_a_split_card_without_instances_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "empty-mig")
    [card] = read()
    assert card.usable is False
    assert "nvidia-smi -mig 0" in (card.why_not or "")


def test_without_the_library_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", real_pynvml)
    monkeypatch.setattr(real_pynvml, "nvmlInit", _raise_library_not_found)
    reading = read_reading()
    assert (reading.outcome, reading.library) == (Outcome.ABSENT, None)
    assert reading.library_error == "NVML_ERROR_LIBRARY_NOT_FOUND"


def _raise_library_not_found() -> None:
    raise real_pynvml.NVMLError(real_pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_a_library_that_does_not_fit_the_kernel_module_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "mismatch")
    reading = read_reading()
    assert reading.outcome is Outcome.FAILED
    assert (reading.library, reading.library_version) == ("libnvidia-ml.so.1", "580.65.06")
    assert reading.library_error == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


@pytest.mark.parametrize(
    ("told", "version"),
    [("13.580.65.06", "580.65.06"), ("11.470.57.02", "470.57.02"), ("580.65.06", "580.65.06"), (None, None)],
)
def test_the_librarys_version_is_the_drivers(told: str | None, version: str | None) -> None:
    assert parse_library_version(told) == version


def test_a_process_is_told_once_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert card.processes is not None
    mine, hidden = card.processes
    assert mine.memory_bytes == 1 << 30
    assert hidden == GpuProcess(None, None, None), "there is no such process here"
