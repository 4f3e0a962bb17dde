"""NVML through the real nvidia-ml-py: a library compiled here stands in for the driver's, data laid out as NVML's."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from probes.gpu.nvml_process import NvidiaReading, read_nvidia
from probes.hardware import Outcome

COMPILER = shutil.which("cc") or shutil.which("gcc")
PLENTY = 60.0
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_libnvidia_ml.c")
    subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


def read(library: Path, **environment: str) -> NvidiaReading:
    return read_nvidia(PLENTY, {**os.environ, "LD_LIBRARY_PATH": str(library), **environment})


def test_a_server_is_read_through_the_real_bindings(library: Path) -> None:
    reading = read(library)
    assert reading.outcome is Outcome.OK
    assert (reading.driver_version, reading.cuda_driver_version) == ("580.65.06", "13.0")
    assert (reading.library, reading.library_version, reading.library_error) == ("libnvidia-ml.so.1", "580.65.06", None)
    assert reading.fabric_state == "completed"
    card, lost = reading.accelerators
    assert (card.id, card.name, card.pci_address) == ("GPU-a", "NVIDIA H100 80GB HBM3", "0000:1b:00.0")
    assert (card.architecture, card.compute_capability, card.multiprocessors) == ("Hopper", "9.0", 132)
    assert card.memory_bandwidth_bytes_per_second == pytest.approx(3.35e12, rel=2e-3)  # NVIDIA's data sheet
    assert (card.memory_total_bytes, card.utilization_percent) == (85520809984, 99)
    assert (lost.id, lost.pci_address, lost.usable, lost.memory_total_bytes) == ("GPU-b", "0000:e4:00.0", False, None)


def test_its_links_errors_and_modes_come_through_the_real_bindings(library: Path) -> None:
    card = read(library).accelerators[0]
    assert (card.nvlinks, card.nvlinks_maximum) == (18, 18)
    assert card.nvlink_bytes_per_second == pytest.approx(18 * 26.562e9)
    assert (card.ecc_corrected_errors, card.ecc_uncorrected_errors) == (0, 1)
    assert (card.ecc_corrected_errors_lifetime, card.ecc_uncorrected_errors_lifetime) == (10, 11)
    assert (card.ecc_needs_reset, card.ecc_repair_failed, card.persistence_mode) == (False, True, False)
    assert card.throttle_codes == ("sw_power_cap", "sw_thermal_slowdown")
    assert (card.temperature_celsius, card.power_watts, card.mig_mode) == (None, None, None), "calls that it lacks"


def test_memory_of_a_process_that_nvml_does_not_know_is_unknown(library: Path) -> None:
    processes = read(library).accelerators[0].processes
    assert processes is not None
    assert [process.memory_bytes for process in processes] == [None]


@pytest.mark.parametrize(
    ("code", "name", "outcome"),
    [
        ("4", "NVML_ERROR_NO_PERMISSION", Outcome.DENIED),
        ("9", "NVML_ERROR_DRIVER_NOT_LOADED", Outcome.ABSENT),
        ("15", "NVML_ERROR_GPU_IS_LOST", Outcome.FAILED),
        ("18", "NVML_ERROR_LIB_RM_VERSION_MISMATCH", Outcome.FAILED),
        ("999", "NVML_ERROR_UNKNOWN", Outcome.FAILED),
        ("12345", "NVML_ERROR_12345", Outcome.FAILED),
    ],
)
def test_a_library_that_does_not_start_has_its_errors_name(
    library: Path, code: str, name: str, outcome: Outcome
) -> None:
    reading = read(library, FAKE_NVML_INIT=code)
    assert (reading.outcome, reading.library_error, reading.library_version) == (outcome, name, "580.65.06")
    assert reading.reason
