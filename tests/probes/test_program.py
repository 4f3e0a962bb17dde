"""`python -m probes` as a program of its own: how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probes.running import run_probes
from tests.probes.machines import write_machine, x86_machine

PROBES = (sys.executable, "-m", "probes")


def run(*words: str, redirections: str = "") -> subprocess.CompletedProcess[str]:
    shell = ("sh", "-c", f'exec "$@" {redirections}', "sh")
    return subprocess.run((*shell, *PROBES, *words), capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def machine(tmp_path: Path) -> str:
    return str(write_machine(tmp_path / "machine", x86_machine()))


def test_a_captured_machine_is_printed_as_json(machine: str) -> None:
    finished = run("--sysroot", machine, "--deadline", "60")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert json.loads(finished.stdout)["cpu"]["logical_cores"] == 8


def test_a_sysroot_that_is_no_folder_is_wrong_usage_and_each_probe_says_so() -> None:
    finished = run("--sysroot", "/no/such/folder")
    assert finished.returncode == 2
    assert {report["outcome"] for report in json.loads(finished.stdout)["probes"].values()} == {"failed"}
    assert finished.stderr.startswith("Error: --sysroot: the sysroot does not exist")
    assert finished.stderr.count("\n") == 1


def test_an_empty_sysroot_is_not_the_current_folder() -> None:
    finished = run("--sysroot", "")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "it is empty" in finished.stderr


@pytest.mark.parametrize("deadline", ["inf", "nan", "-1", "0", "61", "soon"])
def test_a_deadline_that_makes_no_sense_is_wrong_usage(deadline: str, machine: str) -> None:
    finished = run("--sysroot", machine, f"--deadline={deadline}")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "seconds" in finished.stderr.splitlines()[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_is_said_and_not_a_traceback(machine: str) -> None:
    finished = run("--sysroot", machine, redirections=">/dev/full")
    assert finished.returncode == 1
    assert finished.stderr == "Error: The survey could not be written: No space left on device.\n"


def test_a_closed_standard_output_is_no_traceback(machine: str) -> None:
    finished = run("--sysroot", machine, redirections=">&-")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_probes_may_be_waited_for_without_end() -> None:
    assert run_probes({"quick": lambda: 1}, deadline_seconds=float("inf"), subject="test-for-ever")["quick"].value == 1
