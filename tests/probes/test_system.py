from pathlib import Path

import pytest

from probes.reading import Root
from probes.system import parse_dmi, read_container, read_system
from tests.probes.machines import Files, write_machine, x86_cpuinfo, x86_machine

GUEST = x86_cpuinfo(1, flags="fpu lm hypervisor")
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
DMI = "sys/class/dmi/id"


def test_a_machine_says_its_name_system_and_kernel(tmp_path: Path) -> None:
    files = x86_machine() | {"etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian 12"\n'}
    system = read_system(Root(write_machine(tmp_path, files)))
    assert (system.hostname, system.os, system.kernel, system.architecture) == (
        "somewhere",
        "Debian 12",
        "6.1.0",
        "x86_64",
    )
    assert (system.virtualization, system.container) == ("none", None)


def test_the_kernel_is_in_proc_version_too(tmp_path: Path) -> None:
    root = Root(write_machine(tmp_path, {"proc/version": "Linux version 3.10.0-1160 (builder@host)\n"}))
    assert read_system(root).kernel == "3.10.0-1160"


@pytest.mark.parametrize(
    ("files", "virtualization"),
    [
        ({"proc/cpuinfo": GUEST}, "vm-other"),
        ({"proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "QEMU\n"}, "qemu"),
        ({"proc/cpuinfo": GUEST, f"{DMI}/product_name": "KVM\n"}, "kvm"),
        ({"proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "VMware, Inc.\n"}, "vmware"),
        ({"proc/cpuinfo": GUEST, f"{DMI}/product_name": "Virtual Machine", f"{DMI}/sys_vendor": "Microsoft Corp"},
         "microsoft"),
        ({"proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m5.large"}, "amazon"),
        ({"proc/cpuinfo": GUEST, "sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/cpuinfo": GUEST, CLOCKS: "kvm-clock tsc\n"}, "kvm"),
        ({"proc/cpuinfo": x86_cpuinfo(1), "proc/bus/pci/devices": "0010\t80eebeef\t0\n"}, "oracle"),
        ({"proc/cpuinfo": x86_cpuinfo(1), "proc/xen/capabilities": "control_d\n"}, "none"),
        ({"proc/cpuinfo": x86_cpuinfo(1), f"{DMI}/sys_vendor": "Dell Inc.\n"}, "none"),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({"proc/cpuinfo": x86_cpuinfo(1), f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m7i.metal-24xl"},
         "none"),
        ({"proc/cpuinfo": x86_cpuinfo(1), f"{DMI}/sys_vendor": "Oracle Corporation"}, "none"),
        ({"proc/cpuinfo": x86_cpuinfo(1), f"{DMI}/product_name": "Google Compute Engine"}, "none"),
        ({"proc/cpuinfo": GUEST, f"{DMI}/product_name": "Google Compute Engine"}, "google"),
        ({"proc/cpuinfo": x86_cpuinfo(1), f"{DMI}/product_name": "VirtualBox",
          f"{DMI}/board_vendor": "Oracle Corporation"}, "oracle"),
        ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m8g.large"}, "amazon"),
        ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m8g.metal-24xl"}, "none"),
        ({f"{DMI}/sys_vendor": "Alibaba Cloud", f"{DMI}/product_name": "Alibaba Cloud ECS"}, None),
        ({f"{DMI}/sys_vendor": "GIGABYTE", "sys/class/misc/kvm/dev": "10:232"}, "none"),
        ({f"{DMI}/sys_vendor": "QEMU", "sys/class/misc/kvm/dev": "10:232"}, "qemu"),
        ({"proc/sysinfo": "VM00 Control Program: z/VM    6.4.0\n"}, "zvm"),
        ({"proc/cpuinfo": "processor : 0\n"}, None),
    ],
)  # fmt: skip
def test_a_hypervisor_is_known_by_what_it_leaves(tmp_path: Path, files: Files, virtualization: str | None) -> None:
    assert read_system(Root(write_machine(tmp_path, files))).virtualization == virtualization


def test_an_amazon_machine_of_ones_own_is_no_guest() -> None:
    assert parse_dmi(["m5.metal", "Amazon EC2", "", "", ""]) is None


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": "engine=podman"}, "podman"),
        ({".dockerenv": "", "var/run/secrets/kubernetes.io/x": ""}, "kubernetes"),
        ({"proc/self/cgroup": "1:cpu:/kubepods/pod1\n", ".dockerenv": ""}, "kubernetes"),
        ({"proc/self/cgroup": "1:cpu:/docker/abc\n"}, "docker"),
        ({"proc/self/cgroup": "0::/lxc.payload.web/x\n"}, "lxc"),
        ({"run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
        ({"proc/sys/kernel/osrelease": "5.15.0-microsoft-standard-WSL2\n"}, "wsl"),
        ({"proc/vz/x": ""}, "openvz"),
        ({"proc/1/environ": "PATH=/bin\0container=lxc\0"}, "lxc"),
        ({"proc/1/environ": "PATH=/bin\0container=\0"}, None),
        ({"proc/self/cgroup": "0::/user.slice\n"}, None),
    ],
)
def test_a_container_is_known_by_its_marks(tmp_path: Path, files: Files, container: str | None) -> None:
    assert read_container(Root(write_machine(tmp_path, files))) == container
