"""Folders that no machine has (pipes, rings, thousands of CPUs, probes that hang): the survey ends and is sound."""

import json
import os
import threading
from pathlib import Path

import pytest

from probes.hardware import Outcome
from probes.survey import PROBES, take_survey
from tests.probes.machines import CPU, write_machine, x86_machine
from tests.probes.test_mutated_captures import DEADLINE_SECONDS, check, machine_in_v2


def test_a_machine_of_pipes_holds_nobody_up(tmp_path: Path) -> None:
    for name in machine_in_v2():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(tmp_path / name)
    survey = take_survey(tmp_path, deadline_seconds=DEADLINE_SECONDS)
    check(survey)
    assert Outcome.TIMEOUT not in {report.outcome for report in survey.probes.values()}


@pytest.mark.parametrize("name", ["class", "vendor", "device"])
def test_a_card_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, name: str) -> None:
    files = machine_in_v2() | {f"sys/bus/pci/devices/0000:01:00.0/{name}": "garbage"}
    survey = take_survey(write_machine(tmp_path, files), deadline_seconds=DEADLINE_SECONDS)
    check(survey)
    assert survey.probes["pci"].outcome is Outcome.FAILED
    assert "0000:01:00.0" in (survey.probes["pci"].reason or "")
    assert "no-gpu" not in {finding.code for finding in survey.findings}


@pytest.mark.parametrize(
    "place", ["sys", "sys/devices/system/cpu", "sys/fs/cgroup/job", "proc/self", "sys/bus/pci/devices"]
)
def test_folders_that_lead_round_in_a_ring_are_left(tmp_path: Path, place: str) -> None:
    root = write_machine(tmp_path, machine_in_v2())
    for name in ("cpu99", "node7", "pci0000:00", "self", "0000:02:00.0", "block"):
        (root / place / name).symlink_to(".", target_is_directory=True)
    check(take_survey(root, deadline_seconds=DEADLINE_SECONDS))


def test_more_cpus_than_any_machine_has_take_no_longer_than_the_deadline(tmp_path: Path) -> None:
    root = write_machine(tmp_path, x86_machine())
    for number in range(20_000):
        (root / CPU / f"cpu{number}").mkdir(exist_ok=True)
    (root / CPU / "online").write_text("0-16383\n")
    check(take_survey(root, deadline_seconds=1.0))


@pytest.mark.parametrize("hanging", [{name for name, _ in PROBES[first::2]} for first in (0, 1)])
def test_probes_that_hang_cost_their_own_facts_alone(
    hanging: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    probes = tuple((name, (lambda _: gate.wait()) if name in hanging else probe) for name, probe in PROBES)
    monkeypatch.setattr("probes.survey.PROBES", probes)
    root = write_machine(tmp_path, machine_in_v2())
    for seconds in (2.0, 8.0, DEADLINE_SECONDS):  # again where the machine is too slow for the others
        survey = take_survey(root, deadline_seconds=seconds)
        late = {name for name, report in survey.probes.items() if report.outcome is Outcome.TIMEOUT}
        if late == hanging:
            break
    gate.set()
    assert late == hanging
    json.dumps(survey.to_json(), allow_nan=False)
