"""What keeps torch from the processor's cores and instructions."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.diagnose.wording import listed
from probes.hardware import Finding
from probes.instruction_sets import expected_instruction_sets
from probes.reading import parse_int

# Drivers with which `powersave` still goes up to the highest frequency under load (the kernel's
# Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst, active mode).
_SCALING_POWERSAVE = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
# Instructions that torch's kernels or oneDNN's choose by: their loss is a loss of speed.
_SPEED_SETS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "sve",
    "sve2",
    "bf16",
    "i8mm",
)


def _threads(facts: Facts) -> int | None:
    """OMP_NUM_THREADS may be a list, one number a nesting level (OpenMP 5.2, section 21.1.2)."""
    return parse_int(facts.environment.get("OMP_NUM_THREADS", "").split(",")[0])


def find_quota_below_cores(facts: Facts) -> Iterator[Finding]:
    usable, cores = facts.cpu.usable_cores, facts.cpu.physical_cores
    if usable is None or cores is None or facts.cpu.usable_cores_limit != "cgroup" or usable >= cores:
        return
    if facts.cpu.allowed_logical_cores is not None and usable >= facts.cpu.allowed_logical_cores:
        return  # affinity and cpusets are seen by every library that counts; a quota by hardly any
    threads = _threads(facts)
    if threads is not None and 0 < threads <= max(1.0, usable):
        return  # told already
    yield make_finding(
        "quota-below-cores",
        "cpu",
        f"This process may use {usable:g} of {cores} cores (its cgroup's limit); libraries that "
        "count cores start too many threads.",
        f"export OMP_NUM_THREADS={max(1, int(usable))}",
    )


def find_omp_num_threads_above_usable(facts: Facts) -> Iterator[Finding]:
    threads, usable = _threads(facts), facts.cpu.usable_cores
    if threads is None or usable is None or threads <= max(1.0, usable):
        return
    yield make_finding(
        "omp-num-threads-above-usable",
        "cpu",
        f"OMP_NUM_THREADS is {threads}, and this process may use {usable:g} cores: threads wait for one another.",
        f"export OMP_NUM_THREADS={max(1, int(usable))}",
    )


def find_omp_num_threads_below_usable(facts: Facts) -> Iterator[Finding]:
    """Half of the cores or fewer; launchers such as torchrun set 1 for every process."""
    threads = _threads(facts)
    usable = min(facts.cpu.usable_cores or 0, facts.cpu.allowed_physical_cores or 1 << 20)
    if threads is None or threads < 1 or usable < 4 or threads > usable / 2:
        return
    yield make_finding(
        "omp-num-threads-below-usable",
        "cpu",
        f"OMP_NUM_THREADS is {threads}, and this process may use {usable:g} cores: training on the CPU leaves "
        f"{usable - threads:g} of them idle.",
        "unset OMP_NUM_THREADS, or measure which number is best: crosspoint recommend MODEL",
    )


def find_slow_governor(facts: Facts) -> Iterator[Finding]:
    """`powersave` stays at the lowest frequency, but not with drivers that give the name another meaning."""
    cpu = facts.cpu
    if cpu.governor != "powersave" or cpu.frequency_driver is None or cpu.frequency_driver in _SCALING_POWERSAVE:
        return
    most = f" of up to {cpu.max_frequency_hz / 1e9:.1f} GHz" if cpu.max_frequency_hz else ""
    yield make_finding(
        "slow-governor",
        "cpu",
        f"The CPU's frequency governor is powersave (driver {cpu.frequency_driver}): it stays at its "
        f"lowest frequency{most}.",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    )


def find_masked_instruction_sets(facts: Facts) -> Iterator[Finding]:
    """What the microarchitecture has and the virtual machine does not show, be it for its kernel's age."""
    if not facts.has_virtual_cpus or not facts.cpu.instruction_sets:
        return
    expected = expected_instruction_sets(facts.cpu.microarchitecture or "", facts.cpu.name)
    missing = [name for name in _SPEED_SETS if name in expected and name not in facts.cpu.instruction_sets]
    if not missing:
        return
    yield make_finding(
        "masked-instruction-sets",
        "cpu",
        f"This virtual machine ({facts.system.virtualization}) does not show {listed(missing, 8)} of its "
        f"{facts.cpu.microarchitecture} processor: the hypervisor or the firmware hides them, so that torch takes "
        "slower kernels, or the kernel is too old to know them.",
        "Where a newer kernel does not show them either, give the virtual machine the host's CPU: "
        "<cpu mode='host-passthrough'/> in libvirt, -cpu host in QEMU; in a cloud, choose a newer instance type.",
    )
