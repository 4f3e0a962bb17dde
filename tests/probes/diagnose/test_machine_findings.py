"""Processor, memory, limits, neighbours, Arm and Apple."""

from dataclasses import replace

import pytest

from probes.diagnose import Facts
from probes.hardware import Accelerator, CoreCluster, Cpu, Limits, Load, Memory, Software, System, Torch
from probes.instruction_sets import expected_instruction_sets
from tests.probes.diagnose.situations import GIB, HEALTHY, codes, only

MIB = 1 << 20


def with_limits(**changes: int | bool | None) -> Facts:
    return replace(HEALTHY, limits=replace(HEALTHY.limits, **changes))  # type: ignore[arg-type]


def test_a_quota_that_threads_were_set_to_already_is_no_finding() -> None:
    facts = replace(HEALTHY, cpu=Cpu(physical_cores=8, usable_cores=2.5, usable_cores_limit="cgroup"))
    assert only(facts).fix == "export OMP_NUM_THREADS=2"
    assert codes(replace(facts, environment={"OMP_NUM_THREADS": "2"})) == []


def test_a_thread_for_eight_cores_leaves_seven_idle() -> None:
    facts = replace(HEALTHY, environment={"OMP_NUM_THREADS": "1"})
    finding = only(facts)
    assert finding.code == "omp-num-threads-below-usable"
    assert "7 of them idle" in finding.message
    for enough in ("8", "5", "16", "0", "rubbish"):
        assert codes(replace(facts, environment={"OMP_NUM_THREADS": enough})) == []
    small = Cpu(physical_cores=2, logical_cores=2, usable_cores=2.0)
    assert codes(replace(facts, cpu=small)) == []


def test_a_thread_on_each_core_of_a_cpuset_leaves_none_idle() -> None:
    left = CoreCluster(physical_cores=48, logical_cores=96, allowed_physical_cores=6, allowed_logical_cores=12)
    cpu = Cpu(physical_cores=48, logical_cores=96, usable_cores=12.0, usable_cores_limit="affinity", clusters=(left,))
    pinned = replace(HEALTHY, cpu=cpu, environment={"OMP_NUM_THREADS": "6"})
    assert codes(pinned) == []
    assert "3 of them idle" in only(replace(pinned, environment={"OMP_NUM_THREADS": "3"})).message


@pytest.mark.parametrize(
    ("governor", "driver", "found"),
    [
        ("powersave", "acpi-cpufreq", True),
        ("powersave", "intel_pstate", False),  # goes up under load all the same
        ("powersave", "amd-pstate-epp", False),
        ("powersave", None, False),
        ("schedutil", "acpi-cpufreq", False),
        ("performance", "acpi-cpufreq", False),
    ],
)
def test_powersave_is_slow_only_with_drivers_that_mean_it(governor: str, driver: str | None, found: bool) -> None:
    cpu = replace(HEALTHY.cpu, governor=governor, frequency_driver=driver, max_frequency_hz=4_200_000_000)
    assert codes(replace(HEALTHY, cpu=cpu)) == (["slow-governor"] if found else [])


def test_instructions_that_a_hypervisor_hides_are_named() -> None:
    whole = tuple(sorted(expected_instruction_sets("Sapphire Rapids")))
    assert "amx_bf16" in whole
    masked = tuple(name for name in whole if not name.startswith(("amx", "avx512")))
    cpu = replace(HEALTHY.cpu, microarchitecture="Sapphire Rapids", instruction_sets=masked)
    guest = replace(HEALTHY, cpu=cpu, system=replace(HEALTHY.system, virtualization="kvm"))
    finding = only(guest)
    assert finding.code == "masked-instruction-sets"
    assert "avx512f" in finding.message
    assert "kernel is too old" in finding.message, "it may be nobody's doing"
    assert codes(replace(guest, cpu=replace(cpu, instruction_sets=whole))) == []
    assert codes(replace(guest, cpu=replace(cpu, microarchitecture=None))) == []
    assert codes(replace(guest, system=HEALTHY.system)) == [], "on bare metal nobody hides them"


def test_what_a_pentium_never_had_is_not_called_hidden() -> None:
    cpu = replace(HEALTHY.cpu, microarchitecture="Coffee Lake", instruction_sets=("sse4_2",))
    guest = replace(HEALTHY, cpu=cpu, system=replace(HEALTHY.system, virtualization="microsoft"))
    assert codes(guest) == ["masked-instruction-sets"]
    pentium = replace(cpu, name="Intel(R) Pentium(R) Gold G5400 CPU @ 3.70GHz")
    assert codes(replace(guest, cpu=pentium)) == []


@pytest.mark.parametrize(("stolen", "found"), [(0.2, True), (0.01, False), (None, False)])
def test_time_that_neighbours_take_is_told_in_percent(stolen: float | None, found: bool) -> None:
    facts = replace(HEALTHY, load=Load(steal_fraction=stolen, interval_seconds=0.5))
    assert codes(facts) == (["noisy-neighbours"] if found else [])
    assert not found or "20 %" in only(facts).message


@pytest.mark.parametrize(("waiting", "found"), [(80.0, True), (5.0, False), (None, False)])
def test_programs_that_wait_for_a_cpu_are_told(waiting: float | None, found: bool) -> None:
    facts = replace(HEALTHY, load=Load(load_average=31.0, cpu_pressure_percent=waiting))
    assert codes(facts) == (["crowded-cpu"] if found else [])


@pytest.mark.parametrize(
    ("used", "left", "found"),
    [(8, 4, True), (8, 40, False), (20, 40, True), (1, 4, False), (0, 4, False), (None, 4, False), (8, None, False)],
)
def test_swap_matters_where_memory_is_scarce(used: int | None, left: int | None, found: bool) -> None:
    memory = Memory(
        64 * GIB, None if left is None else left * GIB, swap_used_bytes=None if used is None else used * GIB
    )
    assert codes(replace(HEALTHY, memory=memory)) == (["swap-in-use"] if found else [])


def test_dockers_shared_memory_is_too_small_for_workers() -> None:
    facts = with_limits(shared_memory_total_bytes=64 * MIB, shared_memory_free_bytes=64 * MIB)
    assert "remount,size=8G" in (only(facts).fix or "")
    for container, word in (("docker", "--shm-size"), ("podman", "--shm-size"), ("kubernetes", "emptyDir")):
        inside = replace(facts, system=replace(HEALTHY.system, container=container))
        assert only(inside).code == "small-shared-memory"
        assert word in (only(inside).fix or "")


def test_shared_memory_that_is_full_is_told_from_a_small_one() -> None:
    full = only(with_limits(shared_memory_free_bytes=10 * MIB))
    assert "ls -la /dev/shm" in (full.fix or "")
    unknown = with_limits(shared_memory_total_bytes=None, shared_memory_free_bytes=None)
    assert codes(unknown) == []


def test_a_limit_on_locked_memory_matters_beside_a_card_that_other_machines_may_reach() -> None:
    old_default = with_limits(locked_memory_bytes=64 * 1024)
    assert only(old_default).code == "low-locked-memory"
    assert codes(with_limits(locked_memory_bytes=64 * 1024, locked_memory_unlimited=True)) == []
    assert codes(replace(old_default, accelerators=())) == ["no-gpu"], "nothing is pinned for a CPU"
    assert codes(HEALTHY) == [], "drivers do not count what they pin themselves"


@pytest.mark.parametrize(("limit", "found"), [(256, True), (1024, False), (None, False)])
def test_few_open_files_stop_workers(limit: int | None, found: bool) -> None:
    facts = with_limits(open_files=limit, open_files_maximum=4096)
    assert codes(facts) == (["low-open-files"] if found else [])
    assert not found or only(facts).fix == "ulimit -n 4096"


def test_a_hard_limit_needs_the_administrator() -> None:
    assert "limits.d" in (only(with_limits(open_files=256, open_files_maximum=512)).fix or "")


APPLE = Facts(
    system=System(os="macOS 15.1", architecture="arm64"),
    cpu=Cpu(name="Apple M3 Max"),
    accelerators=(Accelerator("apple-0", vendor="Apple", segment="integrated", unified_memory=True),),
    software=Software("3.12", Torch("2.13.0", cuda_available=False)),
    limits=Limits(open_files=256),
)


def test_a_healthy_mac_has_no_findings() -> None:
    assert codes(APPLE) == []


def test_a_python_under_rosetta_is_found_by_its_architecture() -> None:
    assert "python-under-rosetta" in codes(replace(APPLE, system=replace(APPLE.system, architecture="x86_64")))


def test_the_silent_way_back_to_the_cpu_is_told_on_a_mac_only() -> None:
    environment = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}
    assert only(replace(APPLE, environment=environment)).code == "mps-fallback-on"
    assert codes(replace(HEALTHY, environment=environment)) == []


@pytest.mark.parametrize(
    ("page", "preload", "found"),
    [
        (65536, "/usr/lib/libjemalloc.so.2", True),
        (4096, "/usr/lib/libjemalloc.so.2", False),
        (65536, "/usr/lib/libtcmalloc.so.4", False),
        (None, "/usr/lib/libjemalloc.so.2", False),
    ],
)
def test_an_allocator_for_small_pages_fails_on_large_ones(page: int | None, preload: str, found: bool) -> None:
    facts = replace(
        HEALTHY,
        system=replace(HEALTHY.system, architecture="aarch64", page_bytes=page),
        environment={"LD_PRELOAD": preload},
    )
    assert codes(facts) == (["allocator-for-other-pages"] if found else [])


def test_a_driver_without_a_card_is_mentioned() -> None:
    facts = replace(HEALTHY, accelerators=())
    assert "NVIDIA" in only(facts).message
