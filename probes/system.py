"""The operating system, and what it runs in: a virtual machine, a container, or neither."""

import os
import platform

from probes.cpuinfo import CpuInfo, read_cpuinfo
from probes.hardware import System
from probes.reading import Root, clean, parse_fields

# systemd's src/basic/virt.c, dmi_vendor_table: what a DMI string begins with -> its name for the hypervisor.
_DMI_PREFIXES = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Oracle Corporation", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
)
# Makers whose own machines bear the same strings as the virtual ones on them: clouds that let bare metal, and Oracle's
# servers. On x86 the hypervisor's flag tells them apart; a VirtualBox without it names itself before its maker.
_MAKERS_OF_BOTH = ("Amazon EC2", "Oracle Corporation", "Google Compute Engine")
_DMI_FILES = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
# A paravirtual clock gives the hypervisor away without a CPUID instruction.
_CLOCKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "microsoft"), ("xen", "xen"))
_DEVICE_TREES = (("linux,kvm", "kvm"), ("xen,xen", "xen"), ("vmware", "vmware"), ("qemu,pseries", "kvm"))
_PCI_IDS = (("58530001", "xen"), ("15ad0710", "vmware"), ("80eebeef", "oracle"), ("14145353", "microsoft"))
_CGROUP_MARKS = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("/lxc/", "lxc"),
    ("lxc.payload", "lxc"),
    ("machine.slice/machine-", "systemd-nspawn"),
)


def read_system(root: Root) -> System:
    cpuinfo = read_cpuinfo(root)
    return System(
        hostname=read_hostname(root),
        os=_read_os(root),
        kernel=_read_kernel(root),
        architecture=_read_architecture(root, cpuinfo),
        virtualization=read_virtualization(root, cpuinfo),
        container=read_container(root),
        page_bytes=_read_page_size(root, cpuinfo),
    )


def read_hostname(root: Root) -> str | None:
    return clean(root.read("/proc/sys/kernel/hostname") or (platform.node() if root.is_host else None))


def _read_os(root: Root) -> str | None:
    release = root.read("/etc/os-release") or root.read("/usr/lib/os-release") or ""
    name = parse_fields(release, "=").get("PRETTY_NAME", "").strip("\"'")
    if not name and root.is_host:
        name = platform.system()
    return clean(name)


def _read_kernel(root: Root) -> str | None:
    kernel = root.read("/proc/sys/kernel/osrelease")
    if kernel is None:
        words = (root.read("/proc/version") or "").split()
        kernel = words[2] if words[:2] == ["Linux", "version"] and len(words) > 2 else None
    return clean(kernel or (platform.release() if root.is_host else None))


def _read_architecture(root: Root, cpuinfo: CpuInfo) -> str | None:
    from probes.cpu import infer_architecture

    return platform.machine() or None if root.is_host else infer_architecture(cpuinfo)


def _read_page_size(root: Root, cpuinfo: CpuInfo) -> int | None:
    """x86's is 4 KiB whatever the kernel; a captured machine of another architecture does not say."""
    if root.is_host:
        return os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    return 4096 if cpuinfo.first("vendor_id") and cpuinfo.first("flags") else None


def read_virtualization(root: Root, cpuinfo: CpuInfo) -> str | None:
    """systemd-detect-virt's name for the hypervisor, `none` on bare metal, `vm-other` for an unknown hypervisor.

    None where nothing settles it: without the CPU's `hypervisor` flag (x86 only) a firmware's maker that is not known
    may be a cloud.
    """
    flags = (cpuinfo.first("flags") or "").split()
    is_bare = bool(flags) and "hypervisor" not in flags
    strings = [root.read(f"/sys/class/dmi/id/{name}") or "" for name in _DMI_FILES]
    named = (
        parse_dmi(strings, is_bare=is_bare)
        or _read_hypervisor_folder(root)
        or _read_device_tree(root)
        or _read_control_program(root)
        or parse_pci_ids(root.read("/proc/bus/pci/devices", 1 << 20) or "")
    )
    clock = _read_clock(root) if "hypervisor" in flags or not flags else None
    if named in (None, "qemu") and clock:
        return clock
    if named:
        return named
    if "UML" in (cpuinfo.first("model name") or "") and "User Mode Linux" in (cpuinfo.first("vendor_id") or ""):
        return "uml"
    if "hypervisor" in flags:
        return "vm-other"
    return "none" if flags or _is_metal(strings) or _hosts_guests(root) else None


def _is_metal(strings: list[str]) -> bool:
    """Amazon's m5.metal, m7i.metal-24xl; strings as `parse_dmi` takes them."""
    return ".metal" in strings[0] and any(text.strip().startswith("Amazon EC2") for text in strings)


def _hosts_guests(root: Root) -> bool:
    """Arm, where KVM needs the level of a hypervisor (EL2, the kernel's virt/kvm/arm), which one keeps for itself."""
    return root.exists("/sys/class/dmi/id/sys_vendor") and root.exists("/sys/class/misc/kvm")


def parse_dmi(strings: list[str], *, is_bare: bool = False) -> str | None:
    """The hypervisor that the firmware's strings name. `strings` in the order product, system, board, BIOS, version.

    is_bare: the processor tells of no hypervisor, where it could.
    """
    if strings and strings[0].strip() == "Virtual Machine" and any("Microsoft" in text for text in strings):
        return "microsoft"
    for text in strings:
        for prefix, name in _DMI_PREFIXES:
            if text.strip().startswith(prefix):
                return None if _is_metal(strings) or (is_bare and prefix in _MAKERS_OF_BOTH) else name
    return None


def _read_hypervisor_folder(root: Root) -> str | None:
    """/sys/hypervisor/type. A Xen dom0 owns the hardware: bare metal for our purposes, as systemd has it."""
    kind = clean(root.read("/sys/hypervisor/type"))
    if kind is None and root.exists("/proc/xen"):
        kind = "xen"
    if kind == "xen" and "control_d" in (root.read("/proc/xen/capabilities") or ""):
        return "none"
    return kind


def _read_device_tree(root: Root) -> str | None:
    for path in ("/proc/device-tree/hypervisor/compatible", "/proc/device-tree/compatible"):
        text = root.read(path) or ""
        for mark, name in _DEVICE_TREES:
            if mark in text:
                return name
    if root.exists("/proc/device-tree/ibm,partition-name") and root.exists("/proc/device-tree/hmc-managed?"):
        return "powervm"
    return None


def _read_control_program(root: Root) -> str | None:
    """s390: /proc/sysinfo names the control program that a guest runs under."""
    text = root.read("/proc/sysinfo") or ""
    program = next((line for line in text.splitlines() if "Control Program:" in line), "")
    return ("kvm" if "KVM" in program else "zvm" if "z/VM" in program else "vm-other") if program else None


def parse_pci_ids(text: str) -> str | None:
    """/proc/bus/pci/devices: hypervisors put a display or platform device of their own on the bus (as lscpu looks)."""
    ids = {words[1].lower() for line in text.splitlines() if len(words := line.split()[:2]) == 2}
    return next((name for mark, name in _PCI_IDS if mark in ids), None)


def _read_clock(root: Root) -> str | None:
    clocks = root.read_words("/sys/devices/system/clocksource/clocksource0/available_clocksource")
    return next((name for mark, name in _CLOCKS if any(clock.startswith(mark) for clock in clocks)), None)


def read_container(root: Root) -> str | None:
    """The kind of container this process runs in, the more telling name first; None: none was seen."""
    environment = dict(os.environ) if root.is_host else {}
    if "KUBERNETES_SERVICE_HOST" in environment or root.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "apptainer"
    cgroup = root.read("/proc/self/cgroup") or ""
    if "kubepods" in cgroup:
        return "kubernetes"
    if root.exists("/run/.containerenv"):
        return "podman"
    if root.exists("/.dockerenv"):
        return "docker"
    return _read_container_marks(root, cgroup)


def _read_container_marks(root: Root, cgroup: str) -> str | None:
    if told := clean(root.read("/run/systemd/container")):
        return told
    if marked := next((name for mark, name in _CGROUP_MARKS if mark in cgroup), None):
        return marked
    if "microsoft" in (root.read("/proc/sys/kernel/osrelease") or "").lower():
        return "wsl"
    if root.exists("/proc/vz") and not root.exists("/proc/bc"):
        return "openvz"
    return _read_init_mark(root)


def _read_init_mark(root: Root) -> str | None:
    """`container=lxc` in the first process's environment, as systemd's container interface has it; root may read it."""
    variables = root.read_words("/proc/1/environ")  # zeros between them are read as blanks
    return next((clean(text.removeprefix("container=")) for text in variables if text.startswith("container=")), None)
