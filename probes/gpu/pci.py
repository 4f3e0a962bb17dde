"""Every display or compute controller on the PCI bus that could train, with or without a driver.

A server's management chip and an emulated VGA are display controllers too; they cannot compute and are left out.
"""

import re
from dataclasses import asdict, dataclass, replace

from probes.gpu.pci_names import Ids, name_card
from probes.gpu.pcie_link import ADDRESS as _ADDRESS
from probes.gpu.pcie_link import read_link
from probes.hardware import Accelerator
from probes.names.gpu import parse_gpu_name
from probes.reading import Root, clean, parse_fields, parse_int

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
    0x1E60: "Hailo",
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
# Graphics of AMD's processors before Ryzen, Llano to Stoney Ridge (the kernel's include/drm/drm_pciids.h,
# RADEON_IS_IGP, and drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c, AMD_IS_APU); no card has a number among theirs.
_AMD_BEFORE_RYZEN = (range(0x1304, 0x131E), range(0x9640, 0x9650), range(0x9800, 0x9A00))
# Co-processors that compute: NEC's and Hailo's, and of Intel's Xeon Phi (pci.ids: 2250 to 225e, 2260, 2262). Others
# help a chipset (NVIDIA's nForce), encrypt and compress (QuickAssist) or hand packets out (Dynamic Load Balancer).
_COPROCESSOR_VENDORS = (0x1BCF, 0x1E60)
_XEON_PHI = range(0x2250, 0x2270)
# Ascend's of Huawei's processing accelerators (pci.ids: d100, d500, d801 …); the others compress, in a Kunpeng (a250).
_ASCEND = range(0xD000, 0xE000)
_DISPLAY, _ACCELERATOR, _COPROCESSOR = 0x03, 0x12, 0x0B40
_AMD, _AMD_CHIPSET, _INTEL, _HUAWEI = 0x1002, 0x1022, 0x8086, 0x19E5
_DRIVES_PARTS = ("xe", "i915", "amdgpu")  # kernels run on a virtual function that one of these drives
_DRIVES_INTEL_GPUS = ("xe", "i915")
# Names of Intel's cards that no table tells more of: `Arc(TM) A380E Graphics`, `Iris(R) Xe Graphics (DG1)`.
_INTEL_CARD = re.compile(r"\bArc(?:\(TM\))? (?:Pro )?[AB]\d|\(DG1\)")
_FUNCTIONS = 8  # of one device
_MAX_DEPTH = 12  # bridges behind bridges in /sys/devices
_MAX_DEVICES = 4096
_MAX_CLASS, _MAX_ID = 0xFFFFFF, 0xFFFF
_UNCLEAR = "unclear"
NEURAL_PROCESSOR = "a neural processor in the CPU, which torch has no backend of its own for"
NO_INTEL_GPU = "neither xe nor i915 drives it, and torch has no backend of its own for what else Intel makes"
NO_GPUS = (NEURAL_PROCESSOR, NO_INTEL_GPU)


@dataclass(frozen=True, slots=True)
class PciFunction:
    address: str
    class_code: int  # 24 bits: base class, subclass, interface
    vendor: int
    device: int
    folder: str = ""


def read_pci_accelerators(root: Root) -> tuple[Accelerator, ...]:
    return root.remember("pci-accelerators", lambda: _read_accelerators(root))


def _read_accelerators(root: Root) -> tuple[Accelerator, ...]:
    functions = [function for function in _read_functions(root).values() if isinstance(function, PciFunction)]
    cards = [function for function in functions if is_accelerator(function) and not _is_given_away(root, function)]
    return tuple(_read_card(root, function) for function in cards)


def _is_given_away(root: Root, function: PciFunction) -> bool:
    """A virtual function (SR-IOV) is a part of its card, made for a virtual machine; NVIDIA's driver holds those of a
    card that is shared out as well. In the machine that has one, it looks like a card."""
    is_part = root.exists(f"{function.folder}/physfn")
    return is_part and _read_driver(root, function.folder) not in _DRIVES_PARTS


def explain_pci(root: Root) -> str | None:
    """Why there may be accelerators that nobody saw: functions whose class or ids cannot be read; None without any."""
    unclear = [folder for folder, function in _read_functions(root).items() if function == _UNCLEAR]
    if not unclear:
        return None
    first = unclear[0].rsplit("/", 1)[-1]
    return f"what {len(unclear)} of the functions on the PCI bus are cannot be read (the first is {first})"


def _read_functions(root: Root) -> dict[str, PciFunction | str | None]:
    """By sysfs folder, read once for a root."""
    return root.remember(
        "pci-functions", lambda: {folder: _read_function(root, folder) for folder in _list_functions(root)}
    )


def _read_card(root: Root, function: PciFunction) -> Accelerator:
    is_neural = _is_intel_neural_processor(function)
    revision = root.read_int(f"{function.folder}/revision", 16)
    name = name_card(root, Ids(function.vendor, function.device, revision))
    in_processor = is_neural or _is_intel_graphics(function, name) or _is_amd_graphics(root, function)
    card = describe(function, is_integrated=in_processor)
    driver = _read_driver(root, function.folder)
    why_not = NEURAL_PROCESSOR if is_neural else NO_INTEL_GPU if _is_no_intel_gpu(function, driver) else None
    card = replace(card, usable=False, why_not=why_not) if why_not else card
    return replace(
        card,
        name=name,
        kernel_driver=driver,
        **asdict(read_link(root, function.address)),
    )


def is_accelerator(function: PciFunction) -> bool:
    base, base_and_sub = function.class_code >> 16, function.class_code >> 8
    if base == _DISPLAY:
        console = function.vendor == 0x1002 and function.device in _AMD_CONSOLE_DEVICES
        return function.vendor in _DISPLAY_VENDORS and not console
    if base_and_sub == _COPROCESSOR:
        is_phi = function.vendor == _INTEL and function.device in _XEON_PHI
        return is_phi or function.vendor in _COPROCESSOR_VENDORS
    is_helper = function.vendor == _HUAWEI and function.device not in _ASCEND
    return base == _ACCELERATOR and not is_helper


def _read_driver(root: Root, folder: str) -> str | None:
    """What the kernel bound the function to; a capture may lack the link and still have uevent's `DRIVER=nvidia`."""
    target = root.link_target(f"{folder}/driver")
    told = target.rsplit("/", 1)[-1] if target else parse_fields(root.read(f"{folder}/uevent") or "", "=").get("DRIVER")
    return clean(told)


def describe(function: PciFunction, is_integrated: bool = False) -> Accelerator:
    return Accelerator(
        id=f"pci-{function.address}",
        vendor=_COMPUTE_VENDORS.get(function.vendor),
        segment="integrated" if is_integrated else None,
        unified_memory=True if is_integrated else None,
        pci_address=function.address,
    )


def _is_intel_graphics(function: PciFunction, name: str | None) -> bool:
    """Intel's own graphics sit at 00:02.0 on every chip that has them, their virtual functions behind it. A virtual
    machine may have a card there, or either elsewhere on bus 0, which the name tells (`Arc A770 Graphics`; `UHD
    Graphics 770`)."""
    is_on_chips_bus = function.address.startswith("0000:00:")
    if function.vendor != _INTEL or function.class_code >> 16 != _DISPLAY or not is_on_chips_bus:
        return False
    known = parse_gpu_name(name) if name else None
    if known is not None and known.segment is not None:
        return known.segment == "integrated"
    if _INTEL_CARD.search(name or ""):
        return False
    return function.address.startswith("0000:00:02.") or "Graphics" in (name or "")


def _is_intel_neural_processor(function: PciFunction) -> bool:
    """Core Ultra's sits on the chip, at 00:0b.0; Intel's cards for neural networks sit behind a port."""
    on_chip = function.address.startswith("0000:00:")
    return function.vendor == _INTEL and function.class_code >> 16 == _ACCELERATOR and on_chip


def _is_no_intel_gpu(function: PciFunction, driver: str | None) -> bool:
    """Xeon Phi, FPGAs, neural networks' cards. A GPU that is no display controller is known by its driver alone."""
    is_display = function.class_code >> 16 == _DISPLAY
    return function.vendor == _INTEL and not is_display and driver not in _DRIVES_INTEL_GPUS


def _is_amd_graphics(root: Root, function: PciFunction) -> bool:
    """AMD's own graphics have no place of their own, but company: functions of the processor beside them.

    The security processor and the USB controllers of the chip are functions of the same device, with the vendor id of
    AMD's processors; a card has only its own vendor id there. Chips before Ryzen had their graphics alone at 00:01.0,
    where a virtual machine may have a card.
    """
    if function.vendor != _AMD or function.class_code >> 16 != _DISPLAY:
        return False
    if function.address == "0000:00:01.0" and any(function.device in ids for ids in _AMD_BEFORE_RYZEN):
        return True
    beside = (f"{function.folder[:-1]}{number}" for number in range(1, _FUNCTIONS))
    return any(root.read_int(f"{folder}/vendor", 16) == _AMD_CHIPSET for folder in beside)


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


def _read_function(root: Root, folder: str) -> PciFunction | str | None:
    """From the attributes, else from uevent (`PCI_CLASS=30000`, `PCI_ID=10DE:2204`).

    None for what cannot be an accelerator; _UNCLEAR where there is something to read and it cannot be understood.
    """
    address = normalize_address(folder.rsplit("/", 1)[-1])
    class_code = _bounded(root.read_int(f"{folder}/class", 16), _MAX_CLASS)
    if class_code is not None and not _is_interesting(class_code):
        return None  # spares two reads for each of the hundreds of functions on a server's bus
    vendor = _bounded(root.read_int(f"{folder}/vendor", 16), _MAX_ID)
    device = _bounded(root.read_int(f"{folder}/device", 16), _MAX_ID)
    if class_code is None or vendor is None or device is None:
        event = parse_fields(root.read(f"{folder}/uevent") or "", "=")
        class_code = _bounded(parse_int(event.get("PCI_CLASS"), 16), _MAX_CLASS) if class_code is None else class_code
        ids = event.get("PCI_ID", "").split(":")
        vendor, device = (_bounded(parse_int(text, 16), _MAX_ID) for text in (ids[0], ids[-1]))
    if class_code is not None and not _is_interesting(class_code):
        return None
    if address is None or class_code is None or vendor is None or device is None:
        return _UNCLEAR
    return PciFunction(address, class_code, vendor, device, folder)


def _bounded(number: int | None, most: int) -> int | None:
    return number if number is not None and 0 <= number <= most else None
