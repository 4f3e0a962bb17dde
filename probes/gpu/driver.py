"""A vendor's driver as files show it: its kernel modules, device files and libraries, whether or not they work.

Nothing is opened or loaded here: opening a card's device file may wake the card.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from probes.gpu.child_process import LIBRARY_FOLDERS
from probes.gpu.cuda import CudaReading
from probes.gpu.nvml_process import NvidiaReading
from probes.gpu.pid_namespace import is_first_namespace
from probes.hardware import Accelerator, DeviceFile, Driver
from probes.reading import Root, clean
from probes.software import read_nvidia_driver
from probes.system import read_container

_MAX_PROCESSES = 32_768  # looked at for the fabric manager, and only beside an NVSwitch
_FABRIC_MANAGER = "nv-fabricmanage"  # the kernel keeps 15 letters of a process's name
_NVSWITCH_SIGN = "/proc/driver/nvidia-nvswitch"


@dataclass(frozen=True, slots=True)
class Family:
    """Where a vendor's driver shows itself. libraries: the first that is found counts; all are stems of versions."""

    vendor: str
    modules: tuple[str, ...]
    version_files: tuple[str, ...]
    device_files: re.Pattern[str]
    pci_vendor: str | None  # of the render nodes that are this vendor's; None: it has none
    libraries: tuple[str, ...]
    folders: tuple[str, ...] = ()


# What gives a card to a virtual machine, and the free drivers of NVIDIA's cards, which CUDA cannot use.
VIRTUAL_MACHINE_DRIVERS = ("vfio-pci", "pci-stub", "xen-pciback", "pciback")
FREE_NVIDIA_DRIVERS = ("nouveau", "nova_core", "nova")

# Module and device names: NVIDIA's driver README ("Device files", chapter 8), the kernel's Documentation/gpu
# (amdgpu, i915, xe, nouveau), ROCm's installation guide (/dev/kfd), Level Zero's loader.
FAMILIES = (
    Family(
        "NVIDIA",
        ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nouveau", "nova_core", "nvgpu"),
        (),
        re.compile(r"nvidia(ctl|-uvm|\d+)|dxg"),
        None,
        ("libnvidia-ml.so.1",),
    ),
    Family(
        "AMD",
        ("amdgpu", "radeon"),
        ("/sys/module/amdgpu/version",),
        re.compile(r"kfd"),
        "0x1002",
        ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"),
        ("/opt/rocm/lib", "/opt/rocm/lib64"),
    ),
    Family(
        "Intel",
        ("xe", "i915"),
        ("/sys/module/xe/version", "/sys/module/i915/version"),
        re.compile(r"(?!)"),
        "0x8086",
        ("libze_intel_gpu.so.1", "libze_loader.so.1"),
    ),
)


def read_drivers(root: Root) -> tuple[Driver, ...]:
    """One row a vendor of whose driver anything is there."""
    modules, entries = read_modules(root), read_device_names(root)
    return tuple(read_driver(root, family, modules, entries) for family in FAMILIES)


def read_driver(root: Root, family: Family, modules: set[str] | None, entries: list[str] | None) -> Driver:
    library, version = find_library(root, family)
    versions = [clean(root.read(path)) for path in family.version_files]
    versions += [read_nvidia_driver(root)] if family.vendor == "NVIDIA" else []
    return Driver(
        vendor=family.vendor,
        kernel_modules=None if modules is None else tuple(name for name in family.modules if name in modules),
        kernel_module_version=next((found for found in versions if found), None),
        library=library,
        library_version=version,
        device_files=None if entries is None else _read_device_files(root, family, entries),
        fabric_manager=read_fabric_manager(root) if family.vendor == "NVIDIA" else None,
    )


def read_modules(root: Root) -> set[str] | None:
    """The names of what is loaded; None where neither /proc/modules nor /sys/module is there.

    /sys/module lists what is built in, too, and a container without /proc/modules still has it.
    """
    text = root.read("/proc/modules", 1 << 20)
    built_in = set(root.list("/sys/module"))
    if text is None and not built_in:
        return None
    return built_in | {line.split()[0] for line in (text or "").splitlines() if line.strip()}


def read_device_names(root: Root) -> list[str] | None:
    """Names in /dev, render nodes as `dri/renderD128`; None for a capture without /dev."""
    if not root.exists("/dev"):
        return None
    nodes = (f"dri/{name}" for name in root.list("/dev/dri") if name.startswith("renderD"))
    return [*root.list("/dev"), *nodes]


def _read_device_files(root: Root, family: Family, entries: list[str]) -> tuple[DeviceFile, ...]:
    names = [name for name in entries if family.device_files.fullmatch(name)]
    names += [name for name in entries if name.startswith("dri/") and _is_of(root, name, family)]
    return tuple(read_device_file(root, f"/dev/{name}") for name in names)


def _is_of(root: Root, node: str, family: Family) -> bool:
    if family.pci_vendor is None:
        return False
    told = clean(root.read(f"/sys/class/drm/{node.removeprefix('dri/')}/device/vendor"))
    return told == family.pci_vendor


def read_device_file(root: Root, path: str) -> DeviceFile:
    """Whether this process may use it; of a captured machine only that it was there."""
    if not root.is_host:
        return DeviceFile(path)
    effective = os.access in os.supports_effective_ids
    readable = os.access(path, os.R_OK, effective_ids=effective)
    writable = os.access(path, os.W_OK, effective_ids=effective)
    error = None if readable and writable else _explain_refusal(path)
    return DeviceFile(path, readable, writable, error, _read_group(path))


def _explain_refusal(path: str) -> str | None:
    """EACCES where the file's own permissions refuse, EPERM where they do not: then a device cgroup does.

    access(2) asks the device cgroup as open(2) does (inode_permission in the kernel's fs/namei.c).
    """
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    user, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    shift = 6 if user == status.st_uid else 3 if status.st_gid in groups else 0
    allowed = user == 0 or (status.st_mode >> shift) & 0o6 == 0o6
    return "EPERM" if allowed else "EACCES"


def _read_group(path: str) -> str | None:
    """The group that may open the file, by name, or its number where it has none here (as in containers)."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    if not status.st_mode & stat.S_IWGRP:
        return None
    try:
        import grp

        return grp.getgrgid(status.st_gid).gr_name
    except (ImportError, KeyError):
        return str(status.st_gid)


def find_library(root: Root, family: Family) -> tuple[str | None, str | None]:
    """Name and version of the driver's library; the version is in the name of the file that it links to. A loader in
    an earlier folder does not stand for the library that it loads from a later one."""
    folders = (*_loader_folders(root), *LIBRARY_FOLDERS, *family.folders)
    for name in family.libraries:
        for folder in folders:
            if root.exists(f"{folder}/{name}"):
                return name, _read_library_version(root, folder, name)
    return None, None


def _loader_folders(root: Root) -> list[str]:
    if not root.is_host:
        return []
    return [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]


def _read_library_version(root: Root, folder: str, name: str) -> str | None:
    """From `libnvidia-ml.so.1 -> libnvidia-ml.so.580.65.06`; None where the link says nothing of it."""
    target = root.link_target(f"{folder}/{name}") or ""
    found = re.search(r"\.so\.(\d+(?:\.\d+)+)$", target)
    return found.group(1) if found else None


def read_fabric_manager(root: Root) -> str | None:
    """Whether the service runs that NVSwitch machines need; None without an NVSwitch, or where it may be hidden."""
    if not root.exists(_NVSWITCH_SIGN):
        return None
    if any(name == _FABRIC_MANAGER for name in _list_processes(root)):
        return "running"
    if not _sees_all_processes(root):
        return None
    places = ("/usr/bin/nv-fabricmanager", "/usr/lib/systemd/system/nvidia-fabricmanager.service")
    return "stopped" if any(root.exists(place) for place in places) else "absent"


def _sees_all_processes(root: Root) -> bool:
    """Not in a container, which has processes and programs of its own, nor where /proc is mounted with `hidepid`
    (proc(5)): then another user's process cannot be looked at, and the first one is root's."""
    is_outside = read_container(root) is None and is_first_namespace(root) is not False
    return is_outside and root.read("/proc/1/comm") is not None


def _list_processes(root: Root) -> Iterator[str]:
    for name in root.list("/proc")[:_MAX_PROCESSES]:
        if name.isdigit():
            yield clean(root.read(f"/proc/{name}/comm")) or ""


def join_answers(
    drivers: tuple[Driver, ...],
    nvidia: NvidiaReading,
    cuda: CudaReading | None,
    cards: Sequence[Accelerator],
    hip: CudaReading | None = None,
) -> tuple[Driver, ...]:
    """What files show with what the libraries said, one row a vendor that has a card or a driver here."""
    vendors = {card.vendor for card in cards}
    joined = (_add_hip(_add_answers(driver, nvidia, cuda), hip) for driver in drivers)
    return tuple(driver for driver in joined if driver.vendor in vendors or _is_there(driver))


def _add_answers(driver: Driver, nvidia: NvidiaReading, cuda: CudaReading | None) -> Driver:
    """NVML's own word on its version goes before a file's name; a fabric that is set up needs no look at processes."""
    if driver.vendor != "NVIDIA":
        return driver
    return replace(
        driver,
        library=nvidia.library or driver.library,
        library_version=nvidia.library_version or driver.library_version,
        library_error=nvidia.library_error,
        compute_error=cuda.compute_error if cuda else None,
        compute_devices=cuda.compute_devices if cuda else None,
        fabric_manager="running" if nvidia.fabric_state == "completed" else driver.fabric_manager,
    )


def _add_hip(driver: Driver, hip: CudaReading | None) -> Driver:
    if driver.vendor != "AMD" or hip is None:
        return driver
    return replace(driver, compute_error=hip.compute_error, compute_devices=hip.compute_devices)


def _is_there(driver: Driver) -> bool:
    """A library alone is none: images bring libraries of cards that are not there."""
    return bool(driver.kernel_modules or driver.kernel_module_version or driver.device_files or driver.library_error)
