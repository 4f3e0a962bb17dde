"""Real machines that others captured, where the folder with them is at hand."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from probes.cpu_portable import describe_identity, describe_mac
from probes.hardware import Cpu, Survey
from probes.names.cpuid import parse_cpuid
from probes.survey import take_survey

HOSTS = Path(__file__).resolve().parents[3] / "shared" / "hosts"
CPUINFO = sorted(HOSTS.glob("cpuinfo/*"))
# What the vendor's own numbers say of two files whose names say otherwise: model 0x8C, and model 0xC6.
MISNAMED = {"windows-cpuid-icelake": "tigerlake", "linux-ubuntu24.04-alderlake": "arrowlake"}
MACHINES = sorted(HOSTS.glob("machines/*.tar.gz"))
without_hosts = pytest.mark.skipif(not HOSTS.exists(), reason="the captured machines (../shared/hosts) are not here")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HOSTS / "machines/expected.json").read_text("utf-8"))
    return document


@pytest.fixture(scope="module", params=MACHINES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def captured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Survey]:
    """Its name, and what a survey reads there."""
    name = request.param.name.removesuffix(".tar.gz")
    folder = tmp_path_factory.mktemp(name)
    with tarfile.open(request.param) as archive:
        # As it stands, dangling links and all: readers must bear those. The archives are the project's own data.
        archive.extractall(folder, filter="fully_trusted")
    return name, take_survey(folder, deadline_seconds=60)


@without_hosts
def test_a_captured_machine_gives_what_is_true_of_it(captured: tuple[str, Survey], expected: dict[str, Any]) -> None:
    survey, truth = captured[1].to_json(), expected[captured[0]]
    assert {key: found for key, found in _found(survey).items() if truth.get(key) is not None} == _settled(truth)
    json.dumps(survey, allow_nan=False)


@without_hosts
def test_a_healthy_captured_machine_has_no_finding_without_cause(captured: tuple[str, Survey]) -> None:
    """None of them has a card that torch trains on, and none limits what a process may use by a quota."""
    assert {finding.code for finding in captured[1].findings} <= {"no-gpu"}
    assert not any(finding.blocking for finding in captured[1].findings)


def _found(survey: dict[str, Any]) -> dict[str, Any]:
    cpu = survey["cpu"]
    names = ("logical_cores", "physical_cores", "sockets", "numa_nodes", "usable_cores", "vendor_id")
    caches = {level: size for level, size in cpu["cache_bytes"].items() if size is not None}
    return {
        **{name: cpu[name] for name in names},
        "cache_bytes": caches,
        "memory_bytes": survey["memory"]["total_bytes"],
        "model_names": [cpu["name"]],
    }


def _settled(truth: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in truth.items() if value is not None and key not in ("source", "hypervisor_vendor")
    }


@without_hosts
@pytest.mark.parametrize("path", CPUINFO, ids=lambda path: path.name)
def test_a_cpus_own_description_is_enough_to_name_it(path: Path, tmp_path: Path) -> None:
    cpu = _describe(path, tmp_path)
    name = (cpu.microarchitecture or "").removeprefix("Apple ").lower()
    plain = "".join(letter for letter in name if letter.isalnum())
    assert plain == MISNAMED.get(path.name, path.name.split("-")[-1].replace("_", ""))
    assert cpu.name
    assert cpu.identified_by


def _describe(path: Path, sysroot: Path) -> Cpu:
    """Linux's as a captured machine that has nothing else; the others through what reads macOS and Windows."""
    text = path.read_text("utf-8")
    if path.name.startswith("darwin"):
        return describe_mac(text)
    if path.name.startswith("windows"):
        return describe_identity(parse_cpuid(text))
    (sysroot / "proc").mkdir()
    (sysroot / "proc/cpuinfo").write_text(text, "utf-8")
    survey = take_survey(sysroot, deadline_seconds=60)
    assert survey.probes["cpu"].outcome == "ok"
    assert survey.cpu.logical_cores
    return survey.cpu
