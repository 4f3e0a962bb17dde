"""Real machines that others captured, where the folder with them is at hand."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from probes.survey import take_survey

HOSTS = Path(__file__).resolve().parents[3] / "shared" / "hosts"
MACHINES = sorted(HOSTS.glob("machines/*.tar.gz"))
without_hosts = pytest.mark.skipif(not HOSTS.exists(), reason="the captured machines (../shared/hosts) are not here")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HOSTS / "machines/expected.json").read_text("utf-8"))
    return document


@without_hosts
@pytest.mark.parametrize("archive", MACHINES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_captured_machine_gives_what_is_true_of_it(archive: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    with tarfile.open(archive) as captured:
        # As it stands, dangling links and all: readers must bear those. The archives are the project's own data.
        captured.extractall(tmp_path, filter="fully_trusted")
    survey = take_survey(tmp_path, deadline_seconds=60).to_json()
    truth = expected[archive.name.removesuffix(".tar.gz")]
    assert {key: found for key, found in _found(survey).items() if truth.get(key) is not None} == _settled(truth)
    json.dumps(survey, allow_nan=False)


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
