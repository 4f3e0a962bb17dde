"""What only torch itself can tell, merged into a survey: the micro-training's `ready` event (docs/protocol.md).

torch counts devices in another order than NVML, so they are matched by UUID, else by PCI address
(probes.gpu.identity). Unknown or ill-typed fields of the event change nothing, and nothing here raises.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probes.gpu.identity import is_same_card, may_be_same
from probes.gpu.naming import with_name_facts
from probes.gpu.nvml.processes import is_closed_by_mode
from probes.gpu.pci import normalize_address
from probes.hardware import Accelerator, Memory, Software, Survey, Torch
from probes.reading import clean

# GPUs inside NVIDIA's Tegra chips (Jetson): their machine code and other cards' are strangers within one major version
# (torch/cuda/__init__.py, DEVICE_REQUIREMENT; CUDA C++ Programming Guide, "Binary compatibility").
_ON_CHIP = ((3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (10, 1))
_RENUMBERED = {(10, 1): (11, 0)}  # Thor, since CUDA 13


def with_torch_facts(survey: Survey, ready: dict[str, Any]) -> Survey:
    """The survey with torch's devices: which cards it can use, and by which name; those that it alone shows (ROCm's
    under WSL, where no bus has them; a card's partitions) stand behind the others. The fingerprint stays."""
    devices, software = _list_devices(ready), add_to_software(survey.software, ready)
    is_live = survey.software.python is not None  # a captured machine has no devices of this one's torch
    if is_live:
        devices = _place_lone(devices, survey.accelerators, software)
    cards = [_add_device(card, devices) for card in survey.accelerators]
    if is_live:
        for device in devices:
            if _is_new(device, cards):
                cards.append(_describe(device, cards, software, survey.memory))
    return replace(survey, accelerators=tuple(cards), software=software)


def add_to_software(software: Software, ready: dict[str, Any]) -> Software:
    cuda = [device for device in _list_devices(ready) if str(device.get("device", "")).startswith("cuda")]
    torch = software.torch or Torch()
    merged = replace(
        torch,
        version=_text(ready.get("torch")) or torch.version,
        cuda_version=_text(ready.get("cuda_version")) or torch.cuda_version,
        hip_version=_text(ready.get("hip_version")) or torch.hip_version,
        xpu_version=_text(ready.get("xpu_version")) or torch.xpu_version,
        cudnn_version=_text(ready.get("cudnn_version")) or torch.cudnn_version,
        cuda_available=bool(cuda),
        device_count=len(cuda),
        current_device=0 if cuda else None,
        architectures=_architectures(cuda) or torch.architectures,
    )
    return replace(software, torch=merged)


def has_kernels(capability: str | None, architectures: Sequence[str]) -> bool:
    """Whether a build for these architectures (`sm_86`, `compute_90`) runs on a card; True where it cannot be told.

    Machine code runs on the same major version with the same or a higher minor one; PTX (compute_…) on any newer card
    (CUDA C++ Programming Guide, "Binary compatibility" and "PTX compatibility"). What was built for one architecture's
    own features (`sm_90a`) runs there alone, and for a family's (`sm_100f`) on the family's later members alone. A
    Jetson's machine code runs on its own number alone, and no other card's runs there.
    """
    card = re.fullmatch(r"(\d{1,3})\.(\d)", capability or "")
    built = [re.fullmatch(r"(sm|compute)_(\d{1,3})(\d)([af]?)", name) for name in architectures]
    known = [(match[1], (int(match[2]), int(match[3])), match[4]) for match in built if match]
    if card is None or not known:
        return True
    return any(_runs_on((int(card[1]), int(card[2])), *build) for build in known)


def _runs_on(card: tuple[int, int], kind: str, built: tuple[int, int], features: str) -> bool:
    if features == "a":
        return built == card
    is_newer = kind == "compute" and not features and built <= card
    return is_newer or _is_one_family(card, built)


def _is_one_family(card: tuple[int, int], built: tuple[int, int]) -> bool:
    """Whether machine code that was built for one number runs on a card of the other."""
    if card in _ON_CHIP or built in _ON_CHIP:
        return card in (built, _RENUMBERED.get(built))
    return built[0] == card[0] and built[1] <= card[1]


def has_gfx_kernels(target: str | None, architectures: Sequence[str]) -> bool:
    """Whether a ROCm build for these targets (`gfx1100`, `gfx90a:xnack-`) runs on a card of `target`.

    AMD's machine code runs on its own target alone; builds for generic targets (`gfx11-generic`) cover several, and
    then, as without any word of the card or the build, it cannot be told: True.
    """
    built = {name.partition(":")[0] for name in architectures if name.startswith("gfx")}
    if target is None or not built or any(name.endswith("-generic") for name in built):
        return True
    return target in built


# What torch calls a vendor's devices.
_KINDS = {"NVIDIA": "cuda", "AMD": "cuda", "Intel": "xpu"}
_VENDORS = {"cuda": "NVIDIA", "xpu": "Intel"}  # of a device, where its build is not for ROCm
_METAL = "mps"
# What may hide a vendor's card from a torch that is built for it.
_HIDING = {
    "NVIDIA": "CUDA_VISIBLE_DEVICES",
    "AMD": "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES",
    "Intel": "ZE_AFFINITY_MASK or ONEAPI_DEVICE_SELECTOR",
}


def _add_device(card: Accelerator, devices: list[dict[str, Any]]) -> Accelerator:
    """What torch says of a device that it cannot tell more of is said of every card that it might be."""
    same = [device for device in devices if _is_same(card, device)]
    nameless = [row for row in devices if _is_nameless(row) and _kind(row) == _KINDS.get(card.vendor or "")]
    if same:
        # Of several partitions the driver's figures are the whole card's.
        whole = card if len(same) == 1 else replace(card, memory_total_bytes=None, memory_free_bytes=None)
        return _add_facts(whole, same[0])
    if card.usable is not None:
        return replace(card, torch_device=None)
    if nameless:
        return replace(card, torch_device=None, usable=False, why_not=_text(nameless[0].get("why_not")))
    may = f" ({_HIDING[card.vendor]} may hide it)" if card.vendor in _HIDING else ""
    return replace(card, torch_device=None, usable=False, why_not=f"torch does not list it{may}")


def _add_facts(card: Accelerator, device: dict[str, Any]) -> Accelerator:
    why = _text(device.get("why_not")) or _explain_kernels(card, device) or _explain_mode(card)
    named = replace(card, torch_device=_text(device.get("device")), usable=why is None, why_not=why)
    # Where a card is several of the kernel's nodes, its target is torch's to tell.
    named = replace(named, gfx_target=card.gfx_target or _text(device.get("gfx_target")))
    return _add_memory(named, device)


def _place_lone(
    devices: list[dict[str, Any]], cards: Sequence[Accelerator], software: Software
) -> list[dict[str, Any]]:
    """The devices; one that tells no place, as its runtime does not, has that of the one card that it can be."""
    known = [device for device in devices if _kind(device) in _VENDORS]
    lone = [device for device in known if not any(_is_same(card, device) for card in cards)]
    left = [card for card in cards if card.usable is None and not any(_is_same(card, device) for device in devices)]
    for vendor in _KINDS:
        rows = [device for device in lone if _find_vendor(device, software) == vendor]
        own = [card for card in left if card.vendor == vendor]
        if len(rows) == len(own) == 1 and not _text(rows[0].get("why_not")) and _may_be(own[0], rows[0]):
            placed = {**rows[0], "pci_address": own[0].pci_address}
            devices = [placed if device is rows[0] else device for device in devices]
    return devices


def _is_new(device: dict[str, Any], cards: Sequence[Accelerator]) -> bool:
    """Whether no card bears the name of this device, which started."""
    is_known_kind = _kind(device) in (*_KINDS.values(), _METAL)
    name = _text(device.get("device"))
    return is_known_kind and not _text(device.get("why_not")) and all(card.torch_device != name for card in cards)


def _describe(device: dict[str, Any], cards: Sequence[Accelerator], software: Software, memory: Memory) -> Accelerator:
    """A card by torch's word alone. A number or a place that another card has is no second one's: partitions share
    theirs, and torch tells no function of the address."""
    if _kind(device) == _METAL:
        card = Accelerator(_METAL, "Apple", segment="integrated", unified_memory=True)
        shared = replace(card, memory_total_bytes=memory.total_bytes, memory_free_bytes=memory.available_bytes)
        return _add_facts(shared, device)
    uuid, address = _text(device.get("uuid")), normalize_address(_text(device.get("pci_address")))
    vendor, is_taken = _find_vendor(device, software), any(is_same_card(card, uuid, None) for card in cards)
    card = Accelerator(
        id=str(device["device"]) if uuid is None or is_taken else uuid,
        vendor=vendor,
        name=_text(device.get("name")),
        compute_capability=_text(device.get("capability")) if vendor == "NVIDIA" else None,
        pci_address=None if any(card.pci_address == address for card in cards) else address,
    )
    return _add_facts(with_name_facts(card), device)


def _find_vendor(device: dict[str, Any], software: Software) -> str:
    is_rocm = software.torch is not None and software.torch.hip_version is not None
    is_amds = _kind(device) == "cuda" and (is_rocm or _text(device.get("gfx_target")) is not None)
    return "AMD" if is_amds else _VENDORS[_kind(device)]


def _add_memory(card: Accelerator, device: dict[str, Any]) -> Accelerator:
    """Where no driver told of it: Intel's kernel drivers do not."""
    total = device.get("memory_total_bytes")
    if card.memory_total_bytes is not None or type(total) is not int or not 0 < total < 1 << 50:
        return card
    return replace(card, memory_total_bytes=total)


def _is_nameless(device: dict[str, Any]) -> bool:
    """It was counted, and did not start: torch says why, and neither who nor where it is."""
    return bool(_text(device.get("why_not"))) and not (device.get("uuid") or device.get("pci_address"))


def _kind(device: dict[str, Any]) -> str:
    return str(device.get("device") or "").partition(":")[0]


def _is_same(card: Accelerator, device: dict[str, Any]) -> bool:
    if device.get("device") == _METAL:
        return card.vendor == "Apple"
    return is_same_card(card, _text(device.get("uuid")), _text(device.get("pci_address")))


def _may_be(card: Accelerator, device: dict[str, Any]) -> bool:
    return may_be_same(card, _text(device.get("uuid")), _text(device.get("pci_address")))


def _explain_kernels(card: Accelerator, device: dict[str, Any]) -> str | None:
    architectures = _architectures([device])
    target = _text(device.get("gfx_target")) or card.gfx_target
    if not has_gfx_kernels(target, architectures):
        return f"this build of torch has no kernels for {target}; install one that has"
    capability = _text(device.get("capability")) or card.compute_capability
    if has_kernels(capability, architectures):
        return None
    return f"this build of torch has no kernels for compute capability {capability}; install one that has"


def _explain_mode(card: Accelerator) -> str | None:
    """torch sees a card without computing on it: that its driver lets nobody do that now is not torch's to know."""
    return card.why_not if is_closed_by_mode(card) else None


def _list_devices(ready: dict[str, Any]) -> list[dict[str, Any]]:
    devices = ready.get("devices")
    return [device for device in devices if isinstance(device, dict)] if isinstance(devices, list | tuple) else []


def _architectures(devices: list[dict[str, Any]]) -> tuple[str, ...]:
    lists = [device.get("architectures") for device in devices]
    return tuple(sorted({str(name) for row in lists if isinstance(row, list | tuple) for name in row}))


def _text(value: Any) -> str | None:
    return clean(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
