from pathlib import Path

import pytest

from probes.cpu import CpuReading, infer_architecture, read_cpu
from probes.cpuinfo import parse_cpuinfo
from probes.hardware import Outcome
from probes.reading import Root, Unreadable
from tests.probes.machines import CPU, Files, cpu_files, mask, write_machine, x86_cpuinfo, x86_machine

ARM = "processor : {}\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : {}\n\n"


def read(folder: Path, files: Files) -> CpuReading:
    return read_cpu(Root(write_machine(folder, files)))


def test_a_server_is_read_in_full(tmp_path: Path) -> None:
    cpu = read(tmp_path, x86_machine()).cpu
    assert (cpu.name, cpu.vendor, cpu.vendor_id, cpu.architecture) == (
        "Some CPU @ 2.00GHz", "Intel", "GenuineIntel", "x86_64",
    )  # fmt: skip
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cores, cpu.numa_nodes) == (2, 4, 8, 2)
    assert cpu.instruction_sets == ("avx2",)
    assert (cpu.threads_per_core, cpu.offline_logical_cores) == (2, 0)


def test_the_name_keeps_its_inner_spaces(tmp_path: Path) -> None:
    cpu = read(tmp_path, {"proc/cpuinfo": x86_cpuinfo(1, name="   Intel(R) E7- 4870  @ 2.40GHz ")}).cpu
    assert cpu.name == "Intel(R) E7- 4870  @ 2.40GHz"


def test_arms_numbers_are_looked_up(tmp_path: Path) -> None:
    cpu = read(tmp_path, {"proc/cpuinfo": ARM.format(0, "0xd0c")}).cpu
    assert (cpu.vendor, cpu.vendor_id, cpu.name, cpu.architecture) == ("ARM", "ARM", "Neoverse-N1", "aarch64")


def test_an_arm_core_whose_design_is_known_has_a_name_as_well(tmp_path: Path) -> None:
    """Asahi Linux on an M3."""
    cpu = read(tmp_path, {"proc/cpuinfo": ARM.format(0, "0x043").replace("0x41", "0x61")}).cpu
    assert (cpu.name, cpu.vendor, cpu.microarchitecture) == ("Everest-M3", "Apple", "Apple M3")
    assert (cpu.generation, cpu.tier) == ("Apple M3", "M3")


def test_an_unknown_arm_part_has_no_name(tmp_path: Path) -> None:
    assert read(tmp_path, {"proc/cpuinfo": ARM.format(0, "0xfff")}).cpu.name is None


def test_the_kernels_word_for_no_name_is_no_name_and_that_is_said(tmp_path: Path) -> None:
    """Linux writes it where a hypervisor gives no name, gVisor always."""
    text = x86_cpuinfo(1, name="unknown")
    reading = read(tmp_path, {"proc/cpuinfo": text})
    assert (reading.cpu.name, reading.cpu.vendor, reading.cpu.architecture) == (None, "Intel", "x86_64")
    assert reading.reason
    nobody = read(tmp_path / "nobody", {"proc/cpuinfo": text.replace("GenuineIntel", "unknown")}).cpu
    assert (nobody.name, nobody.vendor, nobody.vendor_id, nobody.architecture) == (None, None, None, "x86_64")


def test_a_maker_that_is_a_number_only_is_not_known(tmp_path: Path) -> None:
    cpu = read(tmp_path, {"proc/cpuinfo": ARM.format(0, "0xd0c").replace("0x41", "0x99")}).cpu
    assert (cpu.vendor, cpu.vendor_id, cpu.name) == (None, "0x99", None)


def test_a_hybrid_part_is_named_by_its_fast_cores(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": ARM.format(0, "0xd03") + ARM.format(1, "0xd09"), f"{CPU}/online": "0-1\n"}
    for cpu, capacity in ((0, 400), (1, 1024)):
        files |= cpu_files(cpu, (cpu,), (0, 1)) | {f"{CPU}/cpu{cpu}/cpu_capacity": f"{capacity}\n"}
    cpu = read(tmp_path, files).cpu
    assert (cpu.name, cpu.performance_cores, cpu.efficiency_cores) == ("Cortex-A73", 1, 1)


def test_intels_efficiency_cores_betray_themselves_by_their_shared_l2(tmp_path: Path) -> None:
    """Captures without /sys/devices/cpu_core: one performance core with two threads, four efficiency cores."""
    files = {"proc/cpuinfo": x86_cpuinfo(6), f"{CPU}/online": "0-5\n"}
    everything = tuple(range(6))
    for cpu in everything:
        files |= cpu_files(cpu, (0, 1) if cpu < 2 else (cpu,), everything)
        if cpu >= 2:
            files[f"{CPU}/cpu{cpu}/cache/index1/shared_cpu_map"] = mask(2, 3, 4, 5)
    cpu_facts = read(tmp_path, files).cpu
    assert (cpu_facts.physical_cores, cpu_facts.performance_cores, cpu_facts.efficiency_cores) == (5, 1, 4)


def test_cores_that_all_share_their_l2_are_of_one_kind(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": x86_cpuinfo(2), f"{CPU}/online": "0-1\n"}
    for cpu in range(2):
        files |= cpu_files(cpu, (cpu,), (0, 1)) | {f"{CPU}/cpu{cpu}/cache/index1/shared_cpu_map": mask(0, 1)}
    assert read(tmp_path, files).cpu.efficiency_cores is None


def test_sysfs_alone_gives_cores_and_says_why_there_is_no_name(tmp_path: Path) -> None:
    files = {name: text for name, text in x86_machine().items() if name != "proc/cpuinfo"}
    reading = read(tmp_path, files)
    assert (reading.cpu.logical_cores, reading.cpu.name) == (8, None)
    assert "/proc/cpuinfo does not exist" in (reading.reason or "")


def test_an_empty_folder_has_no_cpu(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        read_cpu(Root(tmp_path))
    assert caught.value.outcome is Outcome.ABSENT


def test_a_cpuinfo_without_processors_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="names no processor") as caught:
        read(tmp_path, {"proc/cpuinfo": "garbage\n"})
    assert caught.value.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        (x86_cpuinfo(1), "x86_64"),
        (x86_cpuinfo(1, flags="fpu sse"), "i686"),
        (ARM.format(0, "0xd08"), "aarch64"),
        ("processor : 0\nCPU implementer : 0x41\nCPU architecture: 7\n", "armv7l"),
        ("processor : 0\nisa : rv64imafdc\n", "riscv64"),
        ("processor : 0\ncpu : POWER7 (architected)\n", "ppc64"),
        ("processor : 0\ncpu : POWER9, altivec supported\n", "ppc64le"),
        ("vendor_id : IBM/S390\nfeatures : esan3 zarch\nprocessor 0: version = FF\n", "s390x"),
        ("cpu : UltraSparc T1 (Niagara)\ntype : sun4v\n", "sparc64"),
        ("processor : 0\nvendor : GenuineIntel\narch : IA-64\n", "ia64"),
        ("processor : 0\nISA : loongarch32 loongarch64\n", "loongarch64"),
        ("processor : 0\n", None),
    ],
)
def test_the_architecture_shows_in_how_cpuinfo_is_written(text: str, architecture: str | None) -> None:
    assert infer_architecture(parse_cpuinfo(text)) == architecture


def test_this_host_is_read_from_its_files() -> None:
    cpu = read_cpu(Root()).cpu
    assert cpu.logical_cores is not None
    assert cpu.logical_cores >= 1
    assert cpu.architecture
