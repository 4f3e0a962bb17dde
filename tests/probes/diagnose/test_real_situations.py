"""The doctor as users run it, in real processes under real limits; NVIDIA's library is a fake at its boundary."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FAKE_NVML = ROOT / "tests" / "probes" / "gpu" / "fake_nvml"
DOCTOR = "import sys; from app.cli.main import main; sys.exit(main(['doctor', '--json', '--no-torch']))"
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")


def run_doctor(setup: str = "", prefix: tuple[str, ...] = (), **environment: str) -> dict[str, Any]:
    """What the doctor says in a fresh process, after `setup` ran in it."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "PYTHONPATH")}
    inherited |= {"PYTHONPATH": str(ROOT), "CROSSPOINT_SURVEY_SECONDS": "30"}
    ended = subprocess.run(
        [*prefix, sys.executable, "-c", f"{setup}\n{DOCTOR}"],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode in (0, 1), ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    assert document["exit_code"] == ended.returncode
    return document


def with_fake(scene: str) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(FAKE_NVML), str(ROOT)]), "FAKE_NVML": scene}


def codes(document: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in document["findings"]}


@needs_linux
def test_few_open_files() -> None:
    limited = run_doctor("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))")
    assert "low-open-files" in codes(limited)


@needs_linux
def test_little_locked_memory_beside_a_card() -> None:
    limited = run_doctor(
        "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))", **with_fake("healthy")
    )
    assert "low-locked-memory" in codes(limited)


def test_more_threads_than_cores() -> None:
    assert "omp-num-threads-above-usable" in codes(run_doctor(OMP_NUM_THREADS="4096"))


@needs_linux
@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not here")
def test_threads_are_held_against_a_real_affinity() -> None:
    first = str(min(os.sched_getaffinity(0)))
    bound = run_doctor(prefix=("taskset", "-c", first), OMP_NUM_THREADS="2")
    assert "omp-num-threads-above-usable" in codes(bound)


@needs_linux
def test_a_small_shared_memory_of_a_namespace_of_its_own() -> None:
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m shm /dev/shm && exec "$0" "$@"')
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount in a namespace of their own")
    assert "small-shared-memory" in codes(run_doctor(prefix=mount))


@pytest.mark.parametrize(
    ("scene", "code", "link"),
    [
        ("lost", "gpu-lost", "device on the bus"),
        ("mismatch", "driver-versions-differ", "driver library"),
        ("crash", "driver-does-not-answer", "driver library"),
        ("empty-mig", "mig-without-instances", "CUDA initialises"),
    ],
)
def test_what_nvidias_library_says_is_the_finding(scene: str, code: str, link: str) -> None:
    document = run_doctor(**with_fake(scene))
    assert code in codes(document)
    assert document["exit_code"] == 1
    assert link in [chain["broken_at"] for chain in document["chain"]]


def test_a_driver_that_hangs_costs_the_deadline_and_is_the_finding() -> None:
    document = run_doctor(**with_fake("stubborn"), CROSSPOINT_SURVEY_SECONDS="4")
    assert "driver-does-not-answer" in codes(document)


def test_a_card_that_works_is_followed_up_to_torch() -> None:
    """With the torch that is installed here: a build without CUDA ends the chain there."""
    [chain] = run_doctor(**with_fake("healthy"))["chain"]
    states = {link["name"]: link["state"] for link in chain["links"]}
    assert [states[name] for name in ("device on the bus", "kernel module", "driver library")] == ["ok", "ok", "ok"]
    assert states["torch is built for it"] in ("ok", "broken")


def test_nothing_that_names_the_machine_or_a_card_is_printed() -> None:
    text = json.dumps(run_doctor(**with_fake("two"), CUDA_VISIBLE_DEVICES="GPU-00000000-1111-2222-3333-444444444444"))
    assert "GPU-0000000" not in text
    assert "444444444444" not in text
    assert str(Path.home()) not in text or Path.home().name in ("", "root")
