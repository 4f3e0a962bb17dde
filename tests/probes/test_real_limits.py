"""Limits that the kernel really sets: a child process is put below them and reads them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.cgroups import Cgroups
from probes.reading import Root

PROGRAM = """
import json, os, sys
for place in sys.argv[1:]:
    open(place + "/cgroup.procs", "w").write(str(os.getpid()))
from probes.reading import Root
from probes.cpuinfo import read_cpuinfo
from probes.limits import read_usable_cores
from probes.memory import read_memory
from probes.topology import read_online
root = Root()
cores = read_usable_cores(root, read_online(root, read_cpuinfo(root)))
print(json.dumps([cores.cores, cores.limit, read_memory(root).memory.limit_bytes]))
"""


def read_in_child(*groups: Path) -> tuple[float, str | None, int | None]:
    command = [sys.executable, "-c", PROGRAM, *map(str, groups)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    cores, limit, memory = json.loads(answer.stdout)
    return cores, limit, memory


@pytest.fixture
def make_group() -> Iterator[object]:
    """Makes a cgroup below this process's own; the test is skipped where that is not allowed."""
    made: list[Path] = []

    def make(controller: str, files: dict[str, str]) -> Path:
        levels = Cgroups(Root()).find(controller)
        if levels is None:
            pytest.skip(f"no {controller} cgroup is mounted")
        names = {name.partition("=")[0]: text for name, text in files.items() if name.endswith(f"=v{levels.version}")}
        folder = Path(levels.folders[0]) / f"crosspoint-test-{os.getpid()}"
        try:
            folder.mkdir()
            made.append(folder)
            for name, text in names.items():
                (folder / name).write_text(text)
        except OSError as error:
            pytest.skip(f"cgroups may not be made here: {error}")
        return folder

    yield make
    for folder in made:
        folder.rmdir()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_is_what_the_scheduler_keeps_to() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one CPU cannot be narrowed")
    os.sched_setaffinity(0, {min(before)})
    try:
        cores, limit, _ = read_in_child()
    finally:
        os.sched_setaffinity(0, before)
    assert (cores, limit) == (1.0, "affinity")


def test_half_a_cpus_quota_is_half_a_core(make_group) -> None:  # type: ignore[no-untyped-def]
    files = {"cpu.max=v2": "50000 100000", "cpu.cfs_period_us=v1": "100000", "cpu.cfs_quota_us=v1": "50000"}
    assert read_in_child(make_group("cpu", files))[:2] == (0.5, "cgroup")


def test_a_memory_limit_is_the_cgroups(make_group) -> None:  # type: ignore[no-untyped-def]
    size = 512 << 20
    group = make_group("memory", {"memory.max=v2": f"{size}", "memory.limit_in_bytes=v1": f"{size}"})
    assert read_in_child(group)[2] == size
