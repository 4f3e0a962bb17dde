"""A large server written out as /proc and /sys files, in the shape that Linux 6 gives a two-socket x86 machine."""

from __future__ import annotations

from pathlib import Path

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
CORES_A_COMPLEX = 4  # share a third level of cache, as in the first EPYCs
FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx "
    "mmxext fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good nopl nonstop_tsc cpuid extd_apicid amd_dcm aperfmperf "
    "pni pclmulqdq monitor ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt aes xsave avx f16c rdrand lahf_lm cmp_legacy svm "
    "extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw skinit wdt tce topoext perfctr_core perfctr_nb bpext "
    "perfctr_llc mwaitx cpb hw_pstate ssbd ibpb vmmcall fsgsbase bmi1 avx2 smep bmi2 rdseed adx smap clflushopt sha_ni "
    "xsaveopt xsavec xgetbv1 clzero irperf xsaveerptr arat npt lbrv svm_lock nrip_save tsc_scale vmcb_clean flushbyasid"
)


def write_large_machine(folder: Path, threads: int) -> Path:
    """threads: logical CPUs, two a core, the second thread of a core numbered after all first ones."""
    cores = threads // 2
    files = {
        "proc/cpuinfo": "".join(_block(cpu, cores) for cpu in range(threads)),
        "proc/meminfo": "MemTotal: 528280000 kB\nMemFree: 400000000 kB\nMemAvailable: 500000000 kB\nSwapTotal: 0 kB\n",
        f"{CPU}/online": f"0-{threads - 1}\n",
        f"{CPU}/present": f"0-{threads - 1}\n",
    }
    for cpu in range(threads):
        files |= _cpu_files(cpu, cores)
    for node in range(2):
        files[f"{NODE}/node{node}/cpulist"] = _list(_socket(node, cores))
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: 264140000 kB\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def _block(cpu: int, cores: int) -> str:
    core, socket = cpu % cores, cpu % cores // (cores // 2)
    fields = {
        "processor": cpu,
        "vendor_id": "AuthenticAMD",
        "cpu family": 23,
        "model": 1,
        "model name": "AMD EPYC 7451 24-Core Processor",
        "stepping": 2,
        "physical id": socket,
        "siblings": cores,
        "core id": core % (cores // 2),
        "cpu cores": cores // 2,
        "flags": FLAGS,
        "address sizes": "48 bits physical, 48 bits virtual",
    }
    return "".join(f"{name}\t: {value}\n" for name, value in fields.items()) + "\n"


def _cpu_files(cpu: int, cores: int) -> dict[str, str]:
    core, socket = cpu % cores, cpu % cores // (cores // 2)
    siblings = [core, core + cores]
    first = core - core % CORES_A_COMPLEX
    shared = [*range(first, first + CORES_A_COMPLEX), *range(first + cores, first + cores + CORES_A_COMPLEX)]
    topology, cache = f"{CPU}/cpu{cpu}/topology", f"{CPU}/cpu{cpu}/cache"
    files = {
        f"{topology}/core_id": f"{core % (cores // 2)}\n",
        f"{topology}/physical_package_id": f"{socket}\n",
        f"{topology}/core_cpus": _mask(siblings),
        f"{topology}/core_cpus_list": _list(siblings),
        f"{topology}/package_cpus": _mask(_socket(socket, cores)),
        f"{topology}/package_cpus_list": _list(_socket(socket, cores)),
        f"{CPU}/cpu{cpu}/online": "1\n",
        f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": "2300000\n",
        f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "performance\n",
    }
    kinds = ((1, "Data", "32K", siblings), (1, "Instruction", "64K", siblings), (2, "Unified", "512K", siblings))
    for index, (level, kind, size, cpus) in enumerate((*kinds, (3, "Unified", "8192K", shared))):
        files |= {f"{cache}/index{index}/level": f"{level}\n", f"{cache}/index{index}/type": f"{kind}\n"}
        files |= {f"{cache}/index{index}/size": f"{size}\n", f"{cache}/index{index}/shared_cpu_map": _mask(cpus)}
        files[f"{cache}/index{index}/shared_cpu_list"] = _list(cpus)
    return files


def _socket(socket: int, cores: int) -> list[int]:
    half = cores // 2
    return [first + core for first in (0, cores) for core in range(socket * half, (socket + 1) * half)]


def _list(cpus: list[int]) -> str:
    return ",".join(map(str, sorted(cpus))) + "\n"


def _mask(cpus: list[int]) -> str:
    """As the kernel writes it: words of 32 bits, the highest first."""
    number = sum(1 << cpu for cpu in cpus)
    words = [f"{number >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(number.bit_length(), 1), 32)]
    return ",".join(reversed(words)) + "\n"
