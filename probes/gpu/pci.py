"""Every display or compute controller on the PCI bus that could train, with or without a driver.

A server's management chip and an emulated VGA are display controllers too; they cannot compute and are left out.
"""

import re
from dataclasses import dataclass, replace

from probes.hardware import Accelerator
from probes.reading import Root, parse_fields, parse_int

# Vendors whose display controllers compute (PCI-SIG ids). Any other display controller is a BMC's, an emulated or an
# old one: ASPEED 1a03, Matrox 102b, QEMU 1234, VMware 15ad, Cirrus 1013, virtio 1af4, Hyper-V 1414, XGI 18ca, …
_DISPLAY_VENDORS = {
    0x10DE: "NVIDIA",
    0x1002: "AMD",
    0x8086: "Intel",
    0x1ED5: "Moore Threads",
    0x1E3E: "Iluvatar",
    0x9999: "MetaX",
}
_COMPUTE_VENDORS = {
    **_DISPLAY_VENDORS,
    0x1BCF: "NEC",
    0x1DA3: "Habana",
    0x19E5: "Huawei",
    0xCABC: "Cambricon",
    0x1E52: "Tenstorrent",
    0x1AE0: "Google",
    0x1D0F: "Amazon",
    0x1D94: "Hygon",
    0x17CB: "Qualcomm",
    0x1022: "AMD",
}
# ATI chips that server boards used for their console: Rage XL, RV100, ES1000. Nothing computes on them.
_AMD_CONSOLE_DEVICES = {0x4752, 0x474D, 0x4759, 0x5159, 0x515E, 0x5969}
# Co-processors that encrypt and compress (Intel QuickAssist, PCI ids of the Linux qat drivers).
_INTEL_QUICKASSIST = {
    0x0435, 0x0443, 0x18A0, 0x18A1, 0x18EE, 0x18EF, 0x19E2, 0x19E3, 0x37C8, 0x37C9, 0x4940, 0x4941, 0x4942, 0x4943,
    0x4944, 0x4945, 0x4946, 0x4947, 0x578A, 0x578B, 0x6F54, 0x6F55,
}  # fmt: skip
_DISPLAY, _ACCELERATOR, _COPROCESSOR = 0x03, 0x12, 0x0B40
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LINK_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}  # GT/s a lane, PCI Express base specification
_MAX_DEPTH = 12  # bridges behind bridges in /sys/devices
_MAX_DEVICES = 4096


@dataclass(frozen=True, slots=True)
class PciFunction:
    address: str
    class_code: int  # 24 bits: base class, subclass, interface
    vendor: int
    device: int


def read_pci_accelerators(root: Root) -> tuple[Accelerator, ...]:
    functions = [_read_function(root, folder) for folder in _list_functions(root)]
    found = [function for function in functions if function is not None and is_accelerator(function)]
    return tuple(_add_link(root, describe(function)) for function in found)


def _add_link(root: Root, card: Accelerator) -> Accelerator:
    """The link as it runs now, and at most; an idle one runs slower than it can."""
    folder = f"/sys/bus/pci/devices/{card.pci_address}"
    return replace(
        card,
        pcie_generation=parse_link_generation(root.read(f"{folder}/current_link_speed")),
        pcie_generation_maximum=parse_link_generation(root.read(f"{folder}/max_link_speed")),
        pcie_lanes=root.read_int(f"{folder}/current_link_width") or None,
        pcie_lanes_maximum=root.read_int(f"{folder}/max_link_width") or None,
    )


def parse_link_generation(text: str | None) -> int | None:
    """`16.0 GT/s PCIe` is generation 4."""
    words = (text or "").split()
    return _LINK_GENERATIONS.get(words[0].removesuffix(".0")) if words else None


def is_accelerator(function: PciFunction) -> bool:
    base, base_and_sub = function.class_code >> 16, function.class_code >> 8
    if base == _DISPLAY:
        console = function.vendor == 0x1002 and function.device in _AMD_CONSOLE_DEVICES
        return function.vendor in _DISPLAY_VENDORS and not console
    if base_and_sub == _COPROCESSOR:
        return not (function.vendor == 0x8086 and function.device in _INTEL_QUICKASSIST)
    return base == _ACCELERATOR


def describe(function: PciFunction) -> Accelerator:
    return Accelerator(
        id=f"pci-{function.address}",
        vendor=_COMPUTE_VENDORS.get(function.vendor),
        segment="integrated" if _is_integrated(function) else None,
        unified_memory=True if _is_integrated(function) else None,
        pci_address=function.address,
    )


def _is_integrated(function: PciFunction) -> bool:
    """Intel's own graphics sit at 00:02.0 on every chip that has them; AMD's have no place of their own."""
    on_chip = re.fullmatch(r"0000:00:02\.0", function.address) is not None
    return function.vendor == 0x8086 and function.class_code >> 16 == _DISPLAY and on_chip


def normalize_address(text: str | None) -> str | None:
    """NVML's `00000000:01:00.0` and sysfs's `0000:01:00.0` alike as sysfs writes it; None for what is neither."""
    lowered = (text or "").strip().lower()
    if not _ADDRESS.fullmatch(lowered):
        return None
    domain, rest = lowered.split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _list_functions(root: Root) -> list[str]:
    """sysfs folders, one a function: by the bus, or below /sys/devices where a capture lacks the bus's links."""
    names = [name for name in root.list("/sys/bus/pci/devices") if _ADDRESS.fullmatch(name)]
    folders = [f"/sys/bus/pci/devices/{name}" for name in names]
    if folders and any(root.exists(folder) for folder in folders[:8]):
        return folders[:_MAX_DEVICES]
    tops = [name for name in root.list("/sys/devices") if name.startswith("pci")]
    return _walk(root, [f"/sys/devices/{name}" for name in tops])


def _walk(root: Root, folders: list[str]) -> list[str]:
    found: list[str] = []
    for _ in range(_MAX_DEPTH):
        below = [f"{folder}/{name}" for folder in folders for name in root.list(folder) if _ADDRESS.fullmatch(name)]
        if not below:
            break
        found += below
        if len(found) >= _MAX_DEVICES:
            break
        folders = below
    return found[:_MAX_DEVICES]


def _is_interesting(class_code: int) -> bool:
    return class_code >> 16 in (_DISPLAY, _ACCELERATOR) or class_code >> 8 == _COPROCESSOR


def _read_function(root: Root, folder: str) -> PciFunction | None:
    """From the attributes, else from uevent (`PCI_CLASS=30000`, `PCI_ID=10DE:2204`)."""
    address = normalize_address(folder.rsplit("/", 1)[-1])
    class_code = root.read_int(f"{folder}/class", 16)
    if class_code is not None and not _is_interesting(class_code):
        return None  # spares two reads for each of the hundreds of functions on a server's bus
    vendor, device = root.read_int(f"{folder}/vendor", 16), root.read_int(f"{folder}/device", 16)
    if class_code is None or vendor is None or device is None:
        event = parse_fields(root.read(f"{folder}/uevent") or "", "=")
        class_code = parse_int(event.get("PCI_CLASS"), 16) if class_code is None else class_code
        ids = event.get("PCI_ID", "").split(":")
        vendor, device = parse_int(ids[0], 16), parse_int(ids[-1], 16)
    if address is None or class_code is None or vendor is None or device is None:
        return None
    return PciFunction(address, class_code & 0xFFFFFF, vendor, device)
