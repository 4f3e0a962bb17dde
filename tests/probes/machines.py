"""Small machines written out as /proc and /sys files, for tests to read, bend and break."""

from pathlib import Path

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GIB = 1 << 30

Files = dict[str, str]


def write_machine(folder: Path, files: Files) -> Path:
    """A sysroot with these files; names are relative to it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def mask(*cpus: int) -> str:
    return f"{sum(1 << cpu for cpu in cpus):08x}\n"


def cpu_files(cpu: int, siblings: tuple[int, ...], package: tuple[int, ...], package_id: int = 0) -> Files:
    """One CPU's folder: its topology, a 32 kB L1d and a 1 MB L2 of its core, an 8 MB L3 of its package."""
    folder = f"{CPU}/cpu{cpu}"
    files = {
        f"{folder}/topology/core_id": f"{min(siblings)}\n",
        f"{folder}/topology/physical_package_id": f"{package_id}\n",
        f"{folder}/topology/core_cpus": mask(*siblings),
        f"{folder}/topology/package_cpus": mask(*package),
    }
    caches = ((1, "Data", "32K", siblings), (2, "Unified", "1024K", siblings), (3, "Unified", "8M", package))
    for index, (level, kind, size, shared) in enumerate(caches):
        cache = f"{folder}/cache/index{index}"
        files |= {f"{cache}/level": f"{level}\n", f"{cache}/type": f"{kind}\n", f"{cache}/size": f"{size}\n"}
        files[f"{cache}/shared_cpu_map"] = mask(*shared)
    return files


def x86_cpuinfo(cpus: int, flags: str = "fpu lm sse2 avx2", name: str = "Some CPU @ 2.00GHz") -> str:
    block = "processor\t: {}\nvendor_id\t: GenuineIntel\nmodel name\t: {}\nflags\t\t: {}\n\n"
    return "".join(block.format(cpu, name, flags) for cpu in range(cpus))


def x86_machine() -> Files:
    """Two sockets, two cores each, two threads a core, two NUMA nodes, 16 GiB, a bus with a bridge and no card."""
    files = {
        "proc/cpuinfo": x86_cpuinfo(8),
        "proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 12582912 kB\nSwapTotal: 0 kB\n",
        "proc/sys/kernel/hostname": "somewhere\n",
        "proc/sys/kernel/osrelease": "6.1.0\n",
        f"{CPU}/online": "0-7\n",
        "sys/bus/pci/devices/0000:00:00.0/class": "0x060000\n",
    }
    for cpu in range(8):
        core, package = cpu % 4, cpu % 4 // 2
        files |= cpu_files(cpu, (core, core + 4), tuple(range(2 * package, 2 * package + 2)), package)
        first = 2 * package
        files[f"{CPU}/cpu{cpu}/topology/package_cpus"] = mask(first, first + 1, first + 4, first + 5)
        files[f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map"] = mask(first, first + 1, first + 4, first + 5)
    for node in range(2):
        first = 2 * node
        files[f"{NODE}/node{node}/cpumap"] = mask(first, first + 1, first + 4, first + 5)
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: 8388608 kB\n"
    return files


def with_cgroup_v2(files: Files, path: str, levels: dict[str, Files]) -> Files:
    """A process in `path` of a cgroup2 mount; `levels` maps folders below the mount to their files."""
    more = {
        "proc/self/cgroup": f"0::{path}\n",
        "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory\n",
    }
    for folder, contents in levels.items():
        for name, text in contents.items():
            more[f"sys/fs/cgroup/{folder.strip('/')}/{name}".replace("//", "/")] = text
    return files | more


def with_cgroup_v1(files: Files, path: str, levels: dict[str, Files]) -> Files:
    """A process in `path` of the version 1 trees cpu, cpuset and memory; `levels` maps `controller/folder` to files."""
    mounts = "".join(f"cgroup /sys/fs/cgroup/{name} cgroup rw,{name} 0 0\n" for name in ("cpu", "cpuset", "memory"))
    more = {"proc/self/cgroup": f"3:cpuset:{path}\n2:memory:{path}\n1:cpu:{path}\n", "proc/mounts": mounts}
    for folder, contents in levels.items():
        for name, text in contents.items():
            more[f"sys/fs/cgroup/{folder}/{name}"] = text
    return files | more
