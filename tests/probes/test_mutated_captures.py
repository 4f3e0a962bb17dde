"""Machines whose files were garbled, cut short, swapped or blown up: a fact is the truth, or it is unknown."""

import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.hardware import Outcome, Survey
from probes.survey import PROBES, take_survey
from tests.probes.machines import (
    CPU,
    GIB,
    NODE,
    Files,
    mask,
    with_cgroup_v1,
    with_cgroup_v2,
    write_machine,
    x86_machine,
)

HOSTS = Path(__file__).resolve().parents[3] / "shared" / "hosts" / "machines"
# Small ones, of different kinds: old and offline CPUs, cgroups of version 1, POWER, RISC-V, ARM.
CAPTURES = ("16em64t-4s2c2t-offlines", "32intel64-2p8co2t_8ve", "ppc64-POWER7", "rv64-visionfive2", "armv7")
DEADLINE_SECONDS = 60.0
MAX_CACHE_BYTES = 1 << 40  # of all caches of a kind together; 2304 MB are the most that one machine has had

STATUS = "Name:\tpython\nCpus_allowed_list:\t0-5\nMems_allowed_list:\t0-1\n"
CGROUP_FILES = {"cpu.max": "350000 100000\n", "cpuset.cpus.effective": "0-4\n"}
MEMORY_V2 = {"memory.max": f"{4 * GIB}\n", "memory.current": f"{GIB}\n", "memory.stat": "anon 1\ninactive_file 4096\n"}
MEMORY_V1 = {"memory.limit_in_bytes": f"{4 * GIB}\n", "memory.usage_in_bytes": f"{GIB}\n"}
QUOTA_V1 = {"cpu.cfs_quota_us": "350000\n", "cpu.cfs_period_us": "100000\n"}
GPU = {
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.0/device": "0x2204\n",
}


def machine_in_v2() -> Files:
    return with_cgroup_v2(x86_machine(), "/job", {"job": CGROUP_FILES | MEMORY_V2}) | GPU | {"proc/self/status": STATUS}


def machine_in_v1() -> Files:
    levels = {"cpu/job": QUOTA_V1, "cpuset/job": {"cpuset.cpus": "0-4\n"}, "memory/job": MEMORY_V1}
    return with_cgroup_v1(x86_machine(), "/job", levels) | {"proc/self/status": STATUS}


def hybrid_machine() -> Files:
    """Two performance cores with two threads each, four efficiency cores that share a second level."""
    files = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n", f"{CPU}/online": "0-7\n"}
    files |= {"sys/devices/cpu_core/cpus": "0-3\n", "sys/devices/cpu_atom/cpus": "4-7\n"}
    block = "processor\t: {}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 151\n"
    block += "model name\t: 12th Gen Intel(R) Core(TM) i5-12400\nstepping\t: 2\nflags\t\t: fpu lm sse2 avx2 fma\n\n"
    files["proc/cpuinfo"] = "".join(block.format(cpu) for cpu in range(8))
    for cpu in range(8):
        core = (cpu // 2 * 2, cpu // 2 * 2 + 1) if cpu < 4 else (cpu,)
        second = core if cpu < 4 else (4, 5, 6, 7)
        folder = f"{CPU}/cpu{cpu}"
        files |= {f"{folder}/topology/core_cpus": mask(*core), f"{folder}/topology/package_cpus": mask(*range(8))}
        files |= {f"{folder}/topology/core_id": f"{core[0]}\n", f"{folder}/topology/physical_package_id": "0\n"}
        files[f"{folder}/cpufreq/cpuinfo_max_freq"] = "4900000\n" if cpu < 4 else "3700000\n"
        for index, (level, kind, size, shared) in enumerate(
            ((1, "Data", "48K", core), (2, "Unified", "1280K", second), (3, "Unified", "18432K", tuple(range(8))))
        ):
            cache = f"{folder}/cache/index{index}"
            files |= {f"{cache}/level": f"{level}\n", f"{cache}/type": f"{kind}\n", f"{cache}/size": f"{size}\n"}
            files[f"{cache}/shared_cpu_map"] = mask(*shared)
    return files


BUILT: dict[str, Callable[[], Files]] = {
    "cgroup v2": machine_in_v2,
    "cgroup v1": machine_in_v1,
    "hybrid": hybrid_machine,
}

# ---- what may happen to a file

Mutation = Callable[[Path, bytes], None]


def replace(path: Path, make: Callable[[], object]) -> None:
    path.unlink()
    make()


def write_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def flip(path: Path, rubbish: bytes) -> None:
    content = bytearray(path.read_bytes())
    for byte in rubbish if content else b"":
        content[byte * 7919 % len(content)] ^= byte | 0x80
    path.write_bytes(bytes(content))


# Nothing of the file's meaning is left: whoever reads it can tell.
DESTROYING: dict[str, Mutation] = {
    "empty": lambda path, _: path.write_bytes(b"") and None,
    "garbage": lambda path, _: path.write_bytes(b"\xff\xfe garbage \x00\x1b[31m") and None,
    "words": lambda path, _: path.write_bytes(b"not a number at all\n") and None,
    "long number": lambda path, _: path.write_bytes(b"9" * 5000 + b"\n") and None,
    "endless range": lambda path, _: path.write_bytes(b"0-18446744073709551615\n") and None,
    "enormous": lambda path, _: write_sparse(path),
    "folder": lambda path, _: replace(path, path.mkdir),
    "pipe": lambda path, _: replace(path, lambda: os.mkfifo(path)),
    "loop": lambda path, _: replace(path, lambda: path.symlink_to(path.name)),
    "out of the machine": lambda path, _: replace(path, lambda: path.symlink_to("/etc/passwd")),
}
# Something else may be read out of it, and nobody can tell: only bounds and agreement hold.
BENDING: dict[str, Mutation] = {
    "missing": lambda path, _: path.unlink(),
    "nowhere": lambda path, _: replace(path, lambda: path.symlink_to("missing")),
    "negative": lambda path, _: path.write_bytes(b"-5\n") and None,
    "zero": lambda path, _: path.write_bytes(b"0\n") and None,
    "one": lambda path, _: path.write_bytes(b"1\n") and None,
    "all ones": lambda path, _: path.write_bytes(b"ffffffff,ffffffff\n") and None,
    "huge": lambda path, _: path.write_bytes(b"18446744073709551615\n") and None,
    "huge size": lambda path, _: path.write_bytes(b"99999999K\n") and None,
    "rubbish": lambda path, rubbish: path.write_bytes(rubbish) and None,
    "truncated": lambda path, rubbish: path.write_bytes(path.read_bytes()[: len(rubbish)]) and None,
    "appended": lambda path, rubbish: path.write_bytes(path.read_bytes() + rubbish) and None,
    "doubled": lambda path, _: path.write_bytes(path.read_bytes() * 2) and None,
    "flipped": flip,
}
ALL = DESTROYING | BENDING


class Machine:
    """A folder that can be bent and is whole again afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        self.truth = facts_of(take_survey(folder, deadline_seconds=DEADLINE_SECONDS))

    def mutate(self, changes: list[tuple[Path, str, bytes]]) -> Survey:
        """The survey of this machine with its files changed."""
        kept = {path: path.read_bytes() for path, _, _ in changes}
        try:
            for path, mutation, rubbish in changes:
                ALL[mutation](path, rubbish)
            return take_survey(self.folder, deadline_seconds=DEADLINE_SECONDS)
        finally:
            for path, content in kept.items():
                restore(path, content)


def restore(path: Path, content: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif path.is_symlink() or not path.is_file():
        path.unlink(missing_ok=True)
    path.write_bytes(content)


def facts_of(survey: Survey) -> dict[str, Any]:
    """What must be the truth or unknown."""
    cpu, memory = survey.cpu, survey.memory
    names = ("name", "vendor_id", "sockets", "physical_cores", "logical_cores", "performance_cores", "efficiency_cores",
             "usable_cores", "numa_nodes", "max_frequency_hz", "microarchitecture")  # fmt: skip
    return {
        **{name: getattr(cpu, name) for name in names},
        **{f"cache {level}": size for level, size in asdict(cpu.cache_bytes).items()},
        **{name: getattr(memory, name) for name in ("total_bytes", "available_bytes", "limit_bytes", "usable_bytes")},
    }


# ---- what always holds


def check(survey: Survey) -> None:
    document = survey.to_json()
    json.dumps(document, allow_nan=False).encode()
    assert set(document["probes"]) == {name for name, _ in PROBES}
    for name, report in document["probes"].items():
        assert report["outcome"] == "ok" or report["reason"], name
        assert "the probe failed" not in (report["reason"] or ""), report["reason"]
    check_cpu(document["cpu"], document["probes"])
    check_memory(document["memory"])


def check_cpu(cpu: dict[str, Any], probes: dict[str, Any]) -> None:
    logical, physical = cpu["logical_cores"], cpu["physical_cores"]
    if probes["cpu"]["outcome"] == "ok":
        assert logical >= 1
    if physical is not None:
        assert 1 <= physical <= logical
        assert cpu["sockets"] is None or 1 <= cpu["sockets"] <= logical
    kinds = [cpu[f"{kind}_cores"] for kind in ("performance", "efficiency", "low_power")]
    if any(kind is not None for kind in kinds):
        assert sum(kind or 0 for kind in kinds) == physical
    if cpu["usable_cores"] is not None:
        assert cpu["usable_cores"] > 0
        assert logical is None or cpu["usable_cores"] <= logical
    for size in cpu["cache_bytes"].values():
        assert size is None or 0 < size < MAX_CACHE_BYTES
    for name in ("base_frequency_hz", "max_frequency_hz"):
        assert cpu[name] is None or 10**7 <= cpu[name] <= 10**11
    assert cpu["numa_nodes"] is None or cpu["numa_nodes"] >= 1


def check_memory(memory: dict[str, Any]) -> None:
    assert all(size is None or size >= 0 for size in memory.values())
    total, available, usable = (memory[f"{name}_bytes"] for name in ("total", "available", "usable"))
    if usable is not None:
        assert available is not None
        assert usable <= available
    assert total is None or available is None or available <= total


def check_truth(found: dict[str, Any], truth: dict[str, Any]) -> None:
    wrong = {name: (value, truth[name]) for name, value in found.items() if value not in (None, truth[name])}
    assert wrong == {}


# ---- machines that the tests bring


@pytest.fixture(scope="module", params=sorted(BUILT))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(write_machine(tmp_path_factory.mktemp("machine"), BUILT[request.param]()))


def test_a_machine_that_is_whole_is_told_in_full(built: Machine) -> None:
    check(take_survey(built.folder, deadline_seconds=DEADLINE_SECONDS))
    assert {"logical_cores", "physical_cores", "sockets", "usable_cores", "cache l2", "total_bytes"} <= {
        name for name, value in built.truth.items() if value is not None
    }


def test_a_file_that_is_destroyed_makes_no_fact_wrong(built: Machine) -> None:
    """Every file of the machine, one after another, in a way drawn for it."""
    draw = random.Random(4)
    for path in built.files:
        mutation = draw.choice(sorted(DESTROYING))
        survey = built.mutate([(path, mutation, b"")])
        try:
            check(survey)
            check_truth(facts_of(survey), built.truth)
        except AssertionError as error:
            raise AssertionError(f"{mutation}: {path.relative_to(built.folder)}: {error}") from error


RUBBISH = st.binary(max_size=80) | st.sampled_from(
    [b"1e999", b"NaN", b"max", b"0x", b"1_0", b"-0", b"\xd9\xa3", b"0-3,"]
)
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(ALL)), RUBBISH), min_size=1, max_size=10)


def choose(machine: Machine, changes: list[tuple[int, str, bytes]]) -> list[tuple[Path, str, bytes]]:
    """Each file once."""
    chosen = {machine.files[number % len(machine.files)]: (name, rubbish) for number, name, rubbish in changes}
    return [(path, name, rubbish) for path, (name, rubbish) in chosen.items()]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=CHANGES)
def test_files_that_are_bent_break_nothing(built: Machine, changes: list[tuple[int, str, bytes]]) -> None:
    check(built.mutate(choose(built, changes)))


@pytest.mark.parametrize("gone", ["topology", "cache", "cpufreq"])
def test_what_some_cpus_lack_is_not_counted_without_them(tmp_path: Path, gone: str) -> None:
    machine = Machine(write_machine(tmp_path, machine_in_v2()))
    for cpu in (1, 5, 6):
        shutil.rmtree(machine.folder / CPU / f"cpu{cpu}" / gone, ignore_errors=True)
    survey = take_survey(machine.folder, deadline_seconds=DEADLINE_SECONDS)
    check(survey)
    check_truth(facts_of(survey), machine.truth)


def test_a_cpuinfo_that_is_cut_off_anywhere_makes_no_fact_wrong(tmp_path: Path) -> None:
    machine = Machine(write_machine(tmp_path, hybrid_machine()))
    path = machine.folder / "proc/cpuinfo"
    whole = path.read_bytes()
    for length in range(0, len(whole), 17):
        path.write_bytes(whole[:length])
        survey = take_survey(machine.folder, deadline_seconds=DEADLINE_SECONDS)
        check(survey)
        check_truth(facts_of(survey), machine.truth)


@pytest.mark.parametrize("mutation", sorted(DESTROYING))
def test_a_cpuinfo_that_tells_nothing_fails_its_probe_and_leaves_what_sysfs_tells(
    tmp_path: Path, mutation: str
) -> None:
    machine = Machine(write_machine(tmp_path, machine_in_v2()))
    survey = machine.mutate([(machine.folder / "proc/cpuinfo", mutation, b"")])
    check(survey)
    assert survey.probes["cpu"].outcome is Outcome.FAILED
    assert survey.probes["cpu"].reason
    assert survey.cpu.name is None
    assert (survey.cpu.logical_cores, survey.cpu.physical_cores, survey.cpu.usable_cores) == (8, 4, 3.5)


def test_nodes_beyond_number_are_nodes_of_no_machine(tmp_path: Path) -> None:
    files = x86_machine() | {f"{NODE}/node{number}/meminfo": "x" for number in (99999999, 16384, "9" * 200)}
    survey = take_survey(write_machine(tmp_path, files), deadline_seconds=DEADLINE_SECONDS)
    check(survey)
    assert survey.cpu.numa_nodes == 2


# ---- machines that others captured


@pytest.fixture(scope="module", params=CAPTURES)
def captured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    archive = HOSTS / f"{request.param}.tar.gz"
    if not archive.exists():
        pytest.skip("the captured machines (../shared/hosts) are not here")
    folder = tmp_path_factory.mktemp("captured")
    with tarfile.open(archive) as machine:
        machine.extractall(folder, filter="fully_trusted")
    yield Machine(folder)
    shutil.rmtree(folder)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=CHANGES)
def test_captures_that_are_bent_break_nothing(captured: Machine, changes: list[tuple[int, str, bytes]]) -> None:
    check(captured.mutate(choose(captured, changes)))


def test_a_captures_file_that_is_destroyed_makes_no_fact_wrong(captured: Machine) -> None:
    draw = random.Random(7)
    told = [path for path in captured.files if "/cpu/" in str(path) or "/node/" in str(path) or "/proc/" in str(path)]
    for path in draw.sample(told, min(40, len(told))):
        mutation = draw.choice(sorted(DESTROYING))
        survey = captured.mutate([(path, mutation, b"")])
        try:
            check(survey)
            check_truth(facts_of(survey), captured.truth)
        except AssertionError as error:
            raise AssertionError(f"{mutation}: {path.relative_to(captured.folder)}: {error}") from error
