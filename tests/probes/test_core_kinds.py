from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.core_kinds import split_by_speed
from probes.cpu import read_cpu
from probes.hardware import CoreCluster, Cpu, Survey
from probes.reading import Root
from probes.survey import take_survey
from tests.probes.machines import CPU, Files, cpu_files, mask, write_machine

Group = tuple[int, ...]


def read(folder: Path, files: Files) -> Cpu:
    return read_cpu(Root(write_machine(folder, files))).cpu


def intel(cpus: int, model: int, name: str = "Intel(R) Core(TM) Ultra 7 155H") -> str:
    block = (
        "processor\t: {}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {}\nmodel name\t: {}\nstepping\t: 2\n"
    )
    return "".join(block.format(cpu, model, name) + "flags\t\t: fpu lm avx2 fma avx_vnni\n\n" for cpu in range(cpus))


def machine(cpus: int, threaded: int, clusters: tuple[Group, ...], without_l3: Group = ()) -> Files:
    """`threaded` CPUs are pairs of threads of one core; `clusters` are CPUs that share their L2."""
    files: Files = {f"{CPU}/online": f"0-{cpus - 1}\n", f"{CPU}/present": f"0-{cpus - 1}\n"}
    everything = tuple(range(cpus))
    for cpu in everything:
        core = (cpu // 2 * 2, cpu // 2 * 2 + 1) if cpu < threaded else (cpu,)
        own = cpu_files(cpu, core, everything)
        shared = next((group for group in clusters if cpu in group), core)
        own[f"{CPU}/cpu{cpu}/cache/index1/shared_cpu_map"] = mask(*shared)
        third = f"{CPU}/cpu{cpu}/cache/index2"
        own[f"{third}/shared_cpu_map"] = mask(*(other for other in everything if other not in without_l3))
        files |= {name: text for name, text in own.items() if cpu not in without_l3 or not name.startswith(third)}
    return files


def pmus(core: str, atom: str, low_power: str | None = None) -> Files:
    files = {"sys/devices/cpu_core/cpus": f"{core}\n", "sys/devices/cpu_atom/cpus": f"{atom}\n"}
    return files if low_power is None else files | {"sys/devices/cpu_lowpower/cpus": f"{low_power}\n"}


def counts(cpu: Cpu) -> tuple[int | None, int | None, int | None]:
    return cpu.performance_cores, cpu.efficiency_cores, cpu.low_power_cores


def test_intels_kernel_names_the_kinds_of_core(tmp_path: Path) -> None:
    files = machine(8, 4, ((4, 5, 6, 7),)) | pmus("0-3", "4-7") | {"proc/cpuinfo": intel(8, 0x97)}
    cpu = read(tmp_path, files)
    assert counts(cpu) == (2, 4, 0)
    assert cpu.threads_per_core == 2
    survey = take_survey(tmp_path, deadline_seconds=60)
    assert [(one.allowed_physical_cores, one.allowed_logical_cores) for one in survey.cpu.clusters] == [(2, 4), (4, 4)]
    assert cpu.clusters == (
        CoreCluster("performance", "Golden Cove", 2, 4),
        CoreCluster("efficiency", "Gracemont", 4, 4),
    )


@pytest.mark.parametrize(
    ("allowed", "left"), [("0-3", [(2, 4), (0, 0)]), ("4-7", [(0, 0), (4, 4)]), ("0,2,6-7", [(2, 2), (2, 2)])]
)
def test_which_kinds_of_core_a_pinned_process_may_use_is_told_and_makes_another_machine(
    tmp_path: Path, allowed: str, left: list[tuple[int, int]]
) -> None:
    survey, other = (pinned(tmp_path / cpus, cpus) for cpus in (allowed, "0-1,4-5"))
    assert [(one.allowed_physical_cores, one.allowed_logical_cores) for one in survey.cpu.clusters] == left
    assert survey.cpu.usable_cores == other.cpu.usable_cores == 4.0
    assert survey.fingerprint != other.fingerprint


def pinned(folder: Path, cpus: str) -> Survey:
    """A hybrid machine of 8 CPUs, of which a process may use these."""
    files = machine(8, 4, ((4, 5, 6, 7),)) | pmus("0-3", "4-7") | {"proc/cpuinfo": intel(8, 0x97)}
    status: Files = {"proc/self/status": f"Cpus_allowed_list:\t{cpus}\n"}
    return take_survey(write_machine(folder, files | status), deadline_seconds=60)


def test_meteor_lakes_low_power_cores_sit_apart_from_the_l3(tmp_path: Path) -> None:
    """Two performance cores, four efficiency cores, two on the other die, which the kernel calls atoms as well."""
    files = machine(10, 4, ((4, 5, 6, 7), (8, 9)), without_l3=(8, 9))
    cpu = read(tmp_path, files | pmus("0-3", "4-9") | {"proc/cpuinfo": intel(10, 0xAA)})
    assert counts(cpu) == (2, 4, 2)
    assert [cluster.microarchitecture for cluster in cpu.clusters] == ["Redwood Cove", "Crestmont", "Crestmont"]
    assert sum(cluster.logical_cores or 0 for cluster in cpu.clusters) == cpu.logical_cores


def test_a_pmu_of_their_own_names_low_power_cores(tmp_path: Path) -> None:
    files = machine(6, 0, ((2, 3), (4, 5))) | pmus("0-1", "2-3", "4-5") | {"proc/cpuinfo": intel(6, 0xC5)}
    cpu = read(tmp_path, files)
    assert counts(cpu) == (2, 2, 2)
    assert [cluster.microarchitecture for cluster in cpu.clusters] == ["Lion Cove", "Skymont", "Crestmont"]


@pytest.mark.parametrize(("core", "atom"), [("0-3", "4-6"), ("0-5", "4-7"), ("rubbish", "4-7"), ("", "")])
def test_lists_that_do_not_tell_of_every_cpu_tell_nothing(tmp_path: Path, core: str, atom: str) -> None:
    files = machine(8, 0, ()) | pmus(core, atom) | {"proc/cpuinfo": intel(8, 0x97)}
    assert counts(read(tmp_path, files)) == (None, None, None)


def test_kinds_that_split_a_core_are_not_believed(tmp_path: Path) -> None:
    """CPU 1 is a thread of CPU 0's core; a garbled list calls it an atom."""
    files = machine(6, 2, ((2, 3, 4, 5),)) | pmus("0", "1-5") | {"proc/cpuinfo": intel(6, 0x97)}
    assert counts(read(tmp_path, files)) == (None, None, None)


def test_a_model_without_efficiency_cores_is_not_taken_for_hybrid_by_its_caches(tmp_path: Path) -> None:
    """A Knights Landing of which one core is switched off: its neighbour has the shared L2 for itself."""
    files = machine(5, 0, ((0, 1), (2, 3))) | {"proc/cpuinfo": intel(5, 0x57, "Intel(R) Xeon Phi(TM) CPU 7250")}
    assert counts(read(tmp_path, files)) == (None, None, None)


def amd(cpus: int, family: int = 26, model: int = 36, name: str = "AMD Ryzen AI 9 HX 370 w/ Radeon 890M") -> str:
    block = (
        f"vendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\nstepping\t: 0\n"
        "flags\t\t: fpu lm avx2 fma\n\n"
    )
    return "".join(f"processor\t: {cpu}\n{block}" for cpu in range(cpus))


def clocks(*megahertz: int) -> Files:
    return {f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": f"{one}000\n" for cpu, one in enumerate(megahertz)}


def test_amds_dense_cores_betray_themselves_by_their_clock(tmp_path: Path) -> None:
    files = machine(4, 0, ()) | clocks(5100, 5157, 3300, 3300) | {"proc/cpuinfo": amd(4)}
    cpu = read(tmp_path, files)
    assert counts(cpu) == (2, 2, 0)
    assert [(one.microarchitecture, one.max_frequency_hz) for one in cpu.clusters] == [
        ("Zen 5", 5_157_000_000),
        ("Zen 5c", 3_300_000_000),
    ]
    assert cpu.max_frequency_hz == 5_157_000_000


def test_favoured_cores_are_of_the_same_kind_as_others(tmp_path: Path) -> None:
    files = machine(4, 0, ()) | clocks(5700, 5450, 5250, 5200) | {"proc/cpuinfo": amd(4)}
    cpu = read(tmp_path, files)
    assert counts(cpu) == (None, None, None)
    assert cpu.clusters == (CoreCluster(None, "Zen 5", 4, 4, 5_700_000_000),)


# A Threadripper PRO 7975WX under acpi-cpufreq (kernel 4.18), as open-mpi/hwloc#690 has it: ranks of equal cores.
RANKED = (5352, 5517, 5677, 5837, 6001, 6161, 6321, 6482)


@pytest.mark.parametrize("megahertz", [RANKED, (3500, 3500, 5700, 5700, 5700, 5700, 5700, 5700)])
def test_a_model_without_dense_cores_has_one_kind_whatever_clocks_are_told(
    tmp_path: Path, megahertz: tuple[int, ...]
) -> None:
    name = "AMD Ryzen Threadripper PRO 7975WX 32-Cores"
    cpu = read(tmp_path, machine(8, 0, ()) | clocks(*megahertz) | {"proc/cpuinfo": amd(8, 25, 0x18, name)})
    assert counts(cpu) == (None, None, None)
    assert [one.microarchitecture for one in cpu.clusters] == ["Zen 4"]


@pytest.mark.parametrize(("family", "model"), [(25, 0x78), (26, 0x60), (26, 0x68), (26, 0x30), (99, 1)])
def test_each_model_with_dense_cores_or_of_later_has_two_kinds(tmp_path: Path, family: int, model: int) -> None:
    files = machine(4, 0, ()) | clocks(4900, 4900, 3500, 3500)
    assert counts(read(tmp_path, files | {"proc/cpuinfo": amd(4, family, model)})) == (2, 2, 0)


def test_clocks_in_steps_without_a_gap_are_of_one_kind() -> None:
    speeds = {cpu: megahertz * 10**6 for cpu, megahertz in enumerate(RANKED)}
    assert split_by_speed(speeds, (1 << len(RANKED)) - 1) is None


def arm(*parts: str) -> str:
    block = "processor : {}\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : {}\n\n"
    return "".join(block.format(cpu, part) for cpu, part in enumerate(parts))


def test_the_lowest_capacity_is_the_efficient_kind_and_each_design_a_cluster(tmp_path: Path) -> None:
    capacities = {0: 280, 1: 280, 2: 850, 3: 1024}
    files = machine(4, 0, ()) | {f"{CPU}/cpu{n}/cpu_capacity": f"{c}\n" for n, c in capacities.items()}
    cpu = read(tmp_path, files | {"proc/cpuinfo": arm("0xd05", "0xd05", "0xd41", "0xd44")})
    assert counts(cpu) == (2, 2, 0)
    assert [(one.kind, one.microarchitecture, one.physical_cores) for one in cpu.clusters] == [
        ("performance", "Cortex-A78", 1),
        ("performance", "Cortex-X1", 1),
        ("efficiency", "Cortex-A55", 2),
    ]


def test_where_the_kernel_tells_no_capacity_arms_designs_are_little_or_not(tmp_path: Path) -> None:
    files = machine(3, 0, ()) | {"proc/cpuinfo": arm("0xd03", "0xd03", "0xd08")}
    cpu = read(tmp_path, files)
    assert counts(cpu) == (1, 2, 0)
    assert cpu.name == "Cortex-A72"


def test_an_unknown_design_among_known_ones_leaves_the_kinds_unknown(tmp_path: Path) -> None:
    cpu = read(tmp_path, machine(2, 0, ()) | {"proc/cpuinfo": arm("0xd03", "0xfff")})
    assert counts(cpu) == (None, None, None)
    assert [one.microarchitecture for one in cpu.clusters] == ["Cortex-A53", None]


def test_capacities_a_few_percent_apart_are_one_kind(tmp_path: Path) -> None:
    files = machine(2, 0, ()) | {f"{CPU}/cpu0/cpu_capacity": "1024\n", f"{CPU}/cpu1/cpu_capacity": "989\n"}
    assert counts(read(tmp_path, files | {"proc/cpuinfo": arm("0xd0c", "0xd0c")})) == (None, None, None)


def test_cpus_that_are_present_and_off_are_counted_apart(tmp_path: Path) -> None:
    files = machine(4, 4, ()) | {
        f"{CPU}/present": "0-7\n",
        "proc/cpuinfo": intel(4, 0x55, "Intel(R) Xeon(R) Gold 6132"),
    }
    cpu = read(tmp_path, files)
    assert (cpu.logical_cores, cpu.offline_logical_cores) == (4, 4)


def test_two_kinds_are_those_whose_clocks_lie_apart_and_each_has_cores() -> None:
    online = 0b11
    assert split_by_speed({0: 4_000_000_000, 1: 3_400_000_000}, online) is None  # 0.85 of it
    kinds = split_by_speed({0: 4_000_000_000, 1: 3_300_000_000}, online)
    assert kinds is not None
    assert (kinds.performance, kinds.efficiency) == (0b01, 0b10)


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 10**10), min_size=1))
def test_neither_of_two_kinds_is_empty(speeds: dict[int, int]) -> None:
    kinds = split_by_speed(speeds, sum(1 << cpu for cpu in speeds))
    assert kinds is None or (kinds.performance and kinds.efficiency)
