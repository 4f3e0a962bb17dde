"""The NVML process as it really runs: a real child, a fake library on its path, real signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from probes.gpu.nvml_process import NvidiaReading, is_driver_present, parse_output, read_nvidia
from probes.hardware import Outcome

FAKE = str(Path(__file__).parent / "fake_nvml")
PLENTY = 30.0


def read(scene: str, deadline_seconds: float = PLENTY, **environment: str) -> NvidiaReading:
    return read_nvidia(deadline_seconds, {**os.environ, "PYTHONPATH": FAKE, "FAKE_NVML": scene, **environment})


def is_running(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_cards_come_back_from_the_child() -> None:
    reading = read("two")
    assert (reading.outcome, reading.driver_version, reading.cuda_driver_version) == (Outcome.OK, "580.65.06", "13.0")
    assert [card.pci_address for card in reading.accelerators] == ["0000:01:00.0", "0000:02:00.0"]


def test_a_crash_is_a_failure_that_names_the_signal() -> None:
    reading = read("crash")
    assert reading.outcome is Outcome.FAILED
    assert "SIGABRT" in (reading.reason or "")


@pytest.mark.parametrize("scene", ["hang", "stubborn"])
def test_a_hanging_driver_costs_the_deadline_and_its_process_ends(tmp_path: Path, scene: str) -> None:
    """`hang` stops at its second card and ends on TERM; `stubborn` ignores TERM and is killed."""
    pid_file = tmp_path / "pid"
    reading = read(scene, 2.0, FAKE_NVML_PID=str(pid_file))
    assert reading.outcome is Outcome.TIMEOUT
    assert not is_running(pid_file)
    if scene == "hang":
        assert [card.id for card in reading.accelerators] == ["GPU-00000000"], "cards read before the hang are kept"


def test_a_hanging_process_ends_itself_when_nobody_is_left_to_end_it() -> None:
    environment = {**os.environ, "PYTHONPATH": FAKE, "FAKE_NVML": "hang"}
    child = subprocess.run(
        [sys.executable, "-m", "probes.gpu.nvidia", "0.3"], env=environment, check=False, timeout=PLENTY
    )
    assert child.returncode == -signal.SIGALRM


def test_what_a_library_prints_does_not_disturb() -> None:
    reading = read("noisy")
    assert reading.outcome is Outcome.OK
    assert len(reading.accelerators) == 1


def test_a_broken_package_is_a_failure() -> None:
    assert "cannot be imported" in (read("unimportable").reason or "")


def test_without_a_driver_no_process_is_started(tmp_path: Path) -> None:
    if is_driver_present({}):
        pytest.skip("this machine has an NVIDIA driver")
    reading = read_nvidia(PLENTY, {"PYTHONPATH": str(tmp_path)})
    assert reading.outcome is Outcome.ABSENT
    assert reading.reason


def test_a_library_on_the_loaders_path_is_a_driver(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()
    assert is_driver_present({"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"})


def test_lines_that_are_no_documents_are_passed_over() -> None:
    text = 'garbage\n[1]\n{"card": {"id": 1}}\n{"card": {"id": "a", "unknown": 1}}\n{"done": true}\n'
    assert parse_output(text, None) == NvidiaReading(Outcome.OK)


def test_a_silent_child_is_a_failure() -> None:
    assert parse_output("", None).outcome is Outcome.FAILED
    assert signal.SIGABRT.name in (read("crash").reason or "")
