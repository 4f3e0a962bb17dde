"""The NVML process as it really runs: a real child, a fake library on its path, real signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from probes.gpu.child_process import parse_documents as parse_lines
from probes.gpu.nvml_process import NvidiaReading, is_driver_present, parse_documents, read_nvidia
from probes.hardware import Outcome, Xid
from probes.survey import take_survey

FAKE = str(Path(__file__).parent / "fake_nvml")
PLENTY = 30.0
# Again with more time where the machine is so slow that the process was ended before it came to hang.
HANGING = (1.5, 6.0, PLENTY)


def read(scene: str, deadline_seconds: float = PLENTY, **environment: str) -> NvidiaReading:
    return read_nvidia(deadline_seconds, {**os.environ, "PYTHONPATH": FAKE, "FAKE_NVML": scene, **environment})


def is_running(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text().split()[-1]), 0)
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
    for seconds in HANGING:
        reading = read(scene, seconds, FAKE_NVML_PID=str(pid_file))
        if pid_file.exists() and (reading.accelerators or scene == "stubborn"):
            break
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


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetComputeRunningProcesses",
    ],
)
def test_a_crash_about_one_card_leaves_the_other_whole(call: str) -> None:
    """Whichever is read first: the other is asked again in a process of its own."""
    reading = read("two", FAKE_NVML_FAULT=f"crash {call} 0")
    assert reading.outcome is Outcome.FAILED
    assert "SIGSEGV" in (reading.reason or "")
    assert reading.driver_version == "580.65.06"
    *crashing, whole = reading.accelerators
    assert all(card.id == "GPU-00000000" for card in crashing), "known by name, or from the bus alone"
    assert (whole.id, whole.processes is not None, whole.nvlinks) == ("GPU-00000001", True, 3)


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlSystemGetDriverVersion"])
def test_a_crash_about_no_card_is_a_failure(call: str) -> None:
    reading = read("two", FAKE_NVML_FAULT=f"crash {call}")
    assert reading.outcome is Outcome.FAILED
    assert reading.accelerators == ()


def test_a_card_that_crashes_every_process_keeps_what_it_told_first() -> None:
    [card] = read("healthy", FAKE_NVML_FAULT="crash nvmlDeviceGetEccMode 0").accelerators
    assert (card.name, card.memory_total_bytes, card.ecc_enabled) == ("NVIDIA GeForce RTX 3080 Ti", 12 << 30, None)


@pytest.mark.parametrize(
    "fault", ["hang nvmlDeviceGetMemoryInfo 1", "crash nvmlDeviceGetMemoryInfo 1", "hang nvmlInit"]
)
def test_the_rest_of_the_survey_stands_within_its_deadline(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    for name, value in {"PYTHONPATH": FAKE, "FAKE_NVML": "two", "FAKE_NVML_FAULT": fault}.items():
        monkeypatch.setenv(name, value)
    for seconds in (4.0, PLENTY) if fault.startswith("hang") else (PLENTY,):
        survey = take_survey(deadline_seconds=seconds)
        report = survey.probes["nvidia"]
        if (report.reason or "").startswith("NVML"):
            break  # else the machine may have stood still, and more time tells
    assert report.outcome in (Outcome.TIMEOUT, Outcome.FAILED)
    assert (report.reason or "").startswith("NVML"), "the child was ended in time; the probe itself was not given up"
    assert survey.probes["memory"].outcome is Outcome.OK
    assert survey.memory.total_bytes


def test_lines_that_are_no_documents_are_passed_over() -> None:
    text = 'garbage\n[1]\n{"key": 1}\n{"key": "0", "facts": 1}\n{"key": "0", "facts": {"x": 1}}\n{"done": true}\n'
    assert parse_documents(parse_lines(text), None) == NvidiaReading(Outcome.OK)


def test_cards_come_in_the_drivers_order_with_their_instances() -> None:
    keys = ["10", "2", "2.10", "0", "2.9"]
    documents = [{"key": key, "facts": {"id": key}} for key in keys]
    reading = parse_documents([*documents, {"done": True}], None)
    assert [card.id for card in reading.accelerators] == ["0", "2", "2.9", "2.10", "10"]


def test_errors_in_the_log_find_their_card() -> None:
    documents = [
        {"xids": {"0000:02:00.0": [{"code": 79, "meaning": None, "age_seconds": 5.0}]}},
        {"key": "0", "facts": {"id": "a", "pci_address": "0000:01:00.0"}},
        {"key": "1", "facts": {"id": "b", "pci_address": "0000:02:00.0"}},
        {"done": True},
    ]
    clean, faulty = parse_documents(documents, None).accelerators
    assert (clean.xids, faulty.xids) == ((), (Xid(79, None, 5.0),))
    unknown, _ = parse_documents([{"xids": None}, *documents[1:]], None).accelerators
    assert unknown.xids is None


def test_a_silent_child_is_a_failure() -> None:
    assert parse_documents((), None).outcome is Outcome.FAILED
