"""Who holds a card's memory, as far as this PID namespace can tell."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes.gpu.nvml.asking import Card
from probes.gpu.nvml.processes import count_processes, explain_mode, is_closed_by_mode, read_processes
from probes.hardware import Accelerator
from probes.reading import Root

HOST = "pid:[4026531836]"
CONTAINER = "pid:[4026532999]"


def library(**calls: Any) -> Card:
    return Card(
        SimpleNamespace(**{f"nvmlDeviceGet{name}": lambda *_, told=told: told for name, told in calls.items()}), 0
    )


def process(pid: int, size: int | None = 1 << 20) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


def machine(folder: Path, namespace: str, pid: int, name: str, *files: str) -> Root:
    (folder / "proc/self/ns").mkdir(parents=True)
    (folder / "proc/self/ns/pid").symlink_to(namespace)
    (folder / f"proc/{pid}/fd").mkdir(parents=True)
    (folder / f"proc/{pid}/comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (folder / f"proc/{pid}/fd/{number}").symlink_to(file)
    return Root(folder)


def test_on_the_host_every_process_has_its_name(tmp_path: Path) -> None:
    root = machine(tmp_path, HOST, 42, "python3")
    found = read_processes(library(ComputeRunningProcesses=[process(42)]), root)["processes"]
    assert found == [{"pid": 42, "name": "python3", "memory_bytes": 1 << 20}]


def test_in_a_container_the_hosts_number_is_not_given_to_a_stranger(tmp_path: Path) -> None:
    """NVML says 42, the host's number; the container's own 42 is a shell that holds no card."""
    root = machine(tmp_path, CONTAINER, 42, "bash", "/dev/null")
    found = read_processes(library(ComputeRunningProcesses=[process(42)]), root)["processes"]
    assert found == [{"pid": None, "name": None, "memory_bytes": 1 << 20}]


def test_in_a_container_who_holds_the_device_files_is_named(tmp_path: Path) -> None:
    root = machine(tmp_path, CONTAINER, 42, "python3", "/dev/null", "/dev/nvidia0")
    found = read_processes(library(ComputeRunningProcesses=[process(42)]), root)["processes"]
    assert found == [{"pid": 42, "name": "python3", "memory_bytes": 1 << 20}]


def test_one_that_computes_and_draws_counts_once(tmp_path: Path) -> None:
    card = library(ComputeRunningProcesses=[process(42)], GraphicsRunningProcesses=[process(42, 5), process(43, None)])
    assert count_processes(card) == 2
    root = machine(tmp_path, HOST, 42, "python3")
    assert [item["memory_bytes"] for item in read_processes(card, root)["processes"]] == [1 << 20, None]


def test_the_older_call_stands_in_for_the_newer(tmp_path: Path) -> None:
    assert count_processes(library(ComputeRunningProcesses_v2=[process(42)])) == 1


def test_memory_that_is_not_available_is_unknown(tmp_path: Path) -> None:
    card = library(ComputeRunningProcesses=[process(42, 2**64 - 1)])
    assert read_processes(card, Root(tmp_path))["processes"] == [{"pid": None, "name": None, "memory_bytes": None}]


def test_nobody_is_an_answer_and_silence_is_none() -> None:
    assert count_processes(library(ComputeRunningProcesses=[])) == 0
    assert count_processes(library()) is None


def test_the_largest_of_very_many_are_kept(tmp_path: Path) -> None:
    card = library(ComputeRunningProcesses=[process(pid, pid) for pid in range(1, 1000)])
    found = read_processes(card, Root(tmp_path))["processes"]
    assert len(found) == 64
    assert found[0]["memory_bytes"] == 999


STRANGER = 4_999_999  # above the highest PID that the kernel gives (2**22)


@pytest.mark.parametrize(
    ("mode", "pid", "word"),
    [
        ("prohibited", None, "nobody may compute"),
        ("exclusive-process", STRANGER, f"python3 (process {STRANGER})"),
        ("exclusive-process", None, None),
        ("default", STRANGER, None),
        (None, STRANGER, None),
    ],
)
def test_whether_one_may_begin_to_compute_is_the_modes_and_the_holders(
    tmp_path: Path, mode: str | None, pid: int | None, word: str | None
) -> None:
    root = machine(tmp_path, HOST, STRANGER, "python3")
    told = explain_mode(library(ComputeRunningProcesses=[] if pid is None else [process(pid)]), mode, root)
    assert told is None if word is None else word in (told or "")
    judged = Accelerator("GPU-1", usable=told is None, why_not=told)
    assert is_closed_by_mode(judged) is (word is not None)


def test_one_that_draws_holds_no_card_exclusively(tmp_path: Path) -> None:
    card = library(ComputeRunningProcesses=[], GraphicsRunningProcesses=[process(STRANGER)])
    assert explain_mode(card, "exclusive-process", machine(tmp_path, HOST, STRANGER, "Xorg")) is None


def test_a_card_that_mps_shares_is_held_by_nobody(tmp_path: Path) -> None:
    """On an exclusive card its server computes for all, and its clients stand in the list beside it."""
    root = machine(tmp_path, HOST, STRANGER, "nvidia-cuda-mps-server"[:15])
    (tmp_path / f"proc/{STRANGER - 1}").mkdir()
    (tmp_path / f"proc/{STRANGER - 1}/comm").write_text("python3\n")
    card = library(ComputeRunningProcesses=[process(STRANGER - 1), process(STRANGER)])
    assert explain_mode(card, "exclusive-process", root) is None


def test_our_own_measurements_hold_no_card_against_us(tmp_path: Path) -> None:
    """Who asks NVML is the child of who measures: this process's parent stands for that one here."""
    for pid in (os.getppid(), os.getpid()):
        root = machine(tmp_path / str(pid), HOST, pid, "python3")
        assert explain_mode(library(ComputeRunningProcesses=[process(pid)]), "exclusive-process", root) is None


def test_a_holder_that_is_not_known_here_may_be_ours(tmp_path: Path) -> None:
    root = machine(tmp_path, CONTAINER, STRANGER, "bash", "/dev/null")
    assert explain_mode(library(ComputeRunningProcesses=[process(STRANGER)]), "exclusive-process", root) is None
