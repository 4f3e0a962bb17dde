"""CUDA's own word, from a real child that loads a library with CUDA's names, compiled here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from probes.gpu import cuda
from probes.gpu.cuda import CudaReading, find_cuda_library, make_key, parse_answer, read_cuda, to_reading
from probes.hardware import Outcome

PLENTY = 30.0
COMPILER = shutil.which("cc")
with_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler here to build a stand-in for libcuda")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("fake_libcuda.c")
    subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


def ask(library: Path, deadline_seconds: float = PLENTY, **environment: str) -> CudaReading:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    return parse_answer(deadline_seconds, {**clean, "LD_LIBRARY_PATH": str(library), **environment})


@with_compiler
def test_devices_come_in_the_order_that_cuda_gives_them(library: Path) -> None:
    reading = ask(library, CUDA_VISIBLE_DEVICES="2,0")
    assert (reading.outcome, reading.driver_version, reading.compute_devices) == (Outcome.OK, "12.8", 2)
    assert [device.pci_address for device in reading.devices] == ["0000:a2:00.0", "0000:a0:00.0"]


@with_compiler
def test_a_device_tells_what_needs_no_context(library: Path) -> None:
    device = ask(library).devices[1]
    assert device.uuid == "11111111-1111-1111-1111-111111111111"
    assert (device.name, device.compute_capability, device.multiprocessors) == ("Card 1", "8.9", 46)
    assert (device.memory_total_bytes, device.integrated, device.memory_clock_hz) == (1 << 34, False, 9_001_000_000)
    assert device.memory_bus_bits is None, "one question that is not answered is one null"


@with_compiler
def test_a_device_without_a_uuid_keeps_its_place(library: Path) -> None:
    device = ask(library).devices[2]
    assert (device.uuid, device.name) == (None, "Card 2")


@with_compiler
@pytest.mark.parametrize(
    ("code", "name"),
    [
        (34, "CUDA_ERROR_STUB_LIBRARY"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        (999, "CUDA_ERROR_UNKNOWN"),
        (12345, "CUresult 12345"),
    ],
)
def test_an_error_is_told_by_its_name(library: Path, code: int, name: str) -> None:
    reading = ask(library, FAKE_CUDA=str(code))
    assert (reading.outcome, reading.compute_error, reading.compute_devices) == (Outcome.FAILED, name, 0)
    assert name in (reading.reason or "")
    assert reading.driver_version == "12.8", "the version is told without initialising"


@with_compiler
def test_hiding_every_card_is_no_failure(library: Path) -> None:
    reading = ask(library, CUDA_VISIBLE_DEVICES="")
    assert (reading.outcome, reading.compute_error) == (Outcome.ABSENT, "CUDA_ERROR_NO_DEVICE")
    assert reading.compute_devices == 0


@with_compiler
def test_a_hang_costs_the_deadline_and_a_crash_names_its_signal(library: Path) -> None:
    hung = ask(library, 2.0, FAKE_CUDA="hang")
    assert (hung.outcome, hung.compute_devices) == (Outcome.TIMEOUT, None)
    crashed = ask(library, FAKE_CUDA="crash")
    assert crashed.outcome is Outcome.FAILED
    assert "SIGABRT" in (crashed.reason or "")


def test_a_library_that_cannot_be_loaded_is_a_failure_with_the_loaders_words(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library at all")
    reading = ask(tmp_path)
    assert reading.outcome is Outcome.FAILED
    assert "cannot load it" in (reading.reason or "")


def test_without_the_library_no_process_is_started() -> None:
    if find_cuda_library({}):
        pytest.skip("this machine has CUDA's driver library")
    assert read_cuda(PLENTY, {}).outcome is Outcome.ABSENT


@with_compiler
def test_a_good_answer_is_kept_while_driver_and_environment_stay(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"LD_LIBRARY_PATH": str(library), "CUDA_VISIBLE_DEVICES": "1"}
    first = read_cuda(PLENTY, environment)
    monkeypatch.setattr(cuda, "parse_answer", lambda *_: CudaReading(Outcome.FAILED))
    assert read_cuda(PLENTY, environment) is first
    assert read_cuda(PLENTY, {**environment, "CUDA_VISIBLE_DEVICES": "0"}).outcome is Outcome.FAILED


def test_a_new_driver_is_asked_again(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    new.touch()
    link = tmp_path / "libcuda.so.1"
    link.symlink_to(old)
    before = make_key(str(link), {})
    link.unlink()
    link.symlink_to(new)
    assert make_key(str(link), {}) != before


def test_rubbish_from_the_child_gives_nulls() -> None:
    row = {"uuid": 3, "name": None, "pci_address": "x", "multiprocessors": -1, "memory_total_bytes": "y"}
    reading = to_reading(({"device": row}, {"driver_version": 3, "outcome": "nonsense"}), None)
    assert (reading.outcome, reading.driver_version, reading.devices) == (Outcome.FAILED, None, (cuda.CudaDevice(),))
