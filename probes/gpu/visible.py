"""Which cards the environment leaves visible: CUDA_VISIBLE_DEVICES with its kin, as their libraries read them.

Pure. CUDA's rules (CUDA C++ Programming Guide, "CUDA Environment Variables"; where it is silent, what torch's own
parser of the variable does): entries are numbers or the beginnings of UUIDs; reading stops at the first that is
invalid; a card named twice hides all. Numbers count in CUDA's order, which is not the bus's unless it was told so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.gpu.driver import FREE_NVIDIA_DRIVERS, VIRTUAL_MACHINE_DRIVERS
from probes.gpu.intel import DRIVERS as INTEL_DRIVERS
from probes.gpu.pci import NO_GPUS
from probes.hardware import Accelerator

_PREFIXES = ("GPU-", "MIG-")
_NUMBER = re.compile(r"[+-]?\d+")
_MAX_ENTRIES = 256
# A card that another driver holds is none to CUDA, or to HIP, and has no number.
_NOT_COUNTED = {
    "NVIDIA": (*FREE_NVIDIA_DRIVERS, *VIRTUAL_MACHINE_DRIVERS),
    "AMD": ("radeon", *VIRTUAL_MACHINE_DRIVERS),
}
_ALL = ("all", "none", "void")  # words of NVIDIA_VISIBLE_DEVICES, which container runtimes read and CUDA does not
_LEVEL_ZERO_ENTRY = re.compile(r"(\d{1,4})(?:\.\d{1,4})*")
_IN_TILES = "counts tiles here, of which a card may have two: which cards it leaves, the driver alone tells"
_SELECTED = "what ONEAPI_DEVICE_SELECTOR leaves of the cards, SYCL alone tells"


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a variable leaves visible.

    cards: in the order in which torch will count them; None: which ones is not known, only `count`.
    invalid: the entry at which reading stopped; reason: a sentence about it, or about why nothing is visible or nobody
    knows what is.
    """

    count: int
    cards: tuple[Accelerator, ...] | None
    variable: str | None = None  # None: no variable limits them
    invalid: str | None = None
    reason: str | None = None

    def hides(self, card: Accelerator) -> bool | None:
        """None: it hides some card, and which cannot be told."""
        if self.cards is None:
            return True if self.count == 0 else None
        return all(shown.id != card.id for shown in self.cards)


def find_visible(environment: Mapping[str, str], vendor: str, cards: Sequence[Accelerator]) -> Visibility:
    """What this environment leaves of a vendor's cards, before any library is asked."""
    elsewhere = _NOT_COUNTED.get(vendor, VIRTUAL_MACHINE_DRIVERS)
    own = tuple(card for card in cards if card.vendor == vendor and card.kernel_driver not in elsewhere)
    if vendor == "NVIDIA":  # what its driver does not tell this process of, CUDA does not count
        own = tuple(card for card in own if card.id.startswith(_PREFIXES)) or own
        return _apply(environment, ("CUDA_VISIBLE_DEVICES",), Visibility(len(own), order_cuda(own, environment)), own)
    if vendor == "AMD":  # the runtime's own variable first; HIP then counts among what it left
        left = _apply(environment, ("ROCR_VISIBLE_DEVICES",), Visibility(len(own), _by_address(own)), own)
        return _apply(environment, ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), left, left.cards or own)
    if vendor == "Intel":
        gpus = tuple(card for card in own if _is_in_level_zero(card))
        mask = environment.get("ZE_AFFINITY_MASK")
        # Empty or "default" is as good as none (Intel's compute-runtime, ExecutionEnvironment::parseAffinityMask).
        if mask not in (None, "", "default"):
            return resolve_affinity_mask(str(mask), gpus, environment)
        if gpus and environment.get("ONEAPI_DEVICE_SELECTOR"):
            return Visibility(len(gpus), None, "ONEAPI_DEVICE_SELECTOR", None, _SELECTED)
        return Visibility(len(gpus), gpus)
    return Visibility(len(own), own)


def order_cuda(cards: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...] | None:
    """The cards as CUDA numbers them, where that is certain: told to go by the bus, or all of one kind."""
    split = {card.parent_id for card in cards}  # by MIG: their instances are counted instead
    whole = [card for card in cards if card.id not in split]
    by_bus = environment.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID"
    if by_bus or len({card.name for card in whole}) <= 1:
        return _by_address(whole)
    return None


def resolve_visible(
    value: str, cards: Sequence[Accelerator], ordered: Sequence[Accelerator] | None, variable: str = ""
) -> Visibility:
    """What `value` leaves visible.

    cards: all that there are; ordered: those that numbers count, in their order; None: it is not known.
    """
    entries = [entry.strip() for entry in value.split(",")][:_MAX_ENTRIES]
    if not value.strip():
        return Visibility(0, (), variable, None, f"{variable} is empty, which hides every card")
    if entries[0].startswith(_PREFIXES):
        return _resolve_uuids(entries, cards, variable)
    return _resolve_numbers(entries, cards, ordered, variable)


def resolve_affinity_mask(value: str, cards: Sequence[Accelerator], environment: Mapping[str, str]) -> Visibility:
    """Level Zero's mask: device numbers, each perhaps with a tile (`0.1`). It hides and does not reorder.

    What matches no device is passed over (Level Zero specification, "Affinity Mask"). Where tiles are devices, their
    numbers are no card's.
    """
    variable, ordered = "ZE_AFFINITY_MASK", order_level_zero(cards, environment)
    found = [_LEVEL_ZERO_ENTRY.fullmatch(entry.strip()) for entry in value.split(",")[:_MAX_ENTRIES]]
    numbers = {int(match[1]) for match in found if match}
    if numbers and _counts_tiles(cards, environment):
        return Visibility(min(len(numbers), len(cards)), None, variable, None, f"{variable} {_IN_TILES}")
    numbers = {number for number in numbers if number < len(cards)}
    if ordered is None and 0 < len(numbers) < len(cards):
        return Visibility(len(numbers), None, variable)
    shown = tuple(card for number, card in enumerate(ordered or cards) if number in numbers)
    reason = None if shown else f"{variable}={_quote(value)} names no device that there is"
    return Visibility(len(shown), shown, variable, None, reason)


def _counts_tiles(cards: Sequence[Accelerator], environment: Mapping[str, str]) -> bool:
    """Of what Intel sells only Data Center GPU Max (Xe-HPC) has two tiles, but for the 1100, and its driver shows each
    as a device of its own unless it is told otherwise (compute-runtime, ExecutionEnvironment::setDeviceHierarchyMode).
    """
    are_whole = environment.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
    return not are_whole and any(card.architecture == "Xe-HPC" and "1100" not in (card.name or "") for card in cards)


def order_level_zero(cards: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...] | None:
    """Intel's GPUs as its mask numbers them, where that is certain: told to go by the bus, or all of one kind.

    Newer drivers sort by the bus in any case; older ones took graphics inside the processor and cards as they found
    them (compute-runtime, ExecutionEnvironment::sortNeoDevices, which runs before the mask is read).
    """
    by_bus = environment.get("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "").strip() == "1"
    kinds = {card.segment == "integrated" for card in cards}
    return _by_address(cards) if by_bus or len(kinds) <= 1 else None


def _is_in_level_zero(card: Accelerator) -> bool:
    """Its driver for GPUs lists them alone: no neural processor, co-processor or FPGA, and nothing that a virtual
    machine was given."""
    if card.kernel_driver is None:  # or the machine does not tell which it is
        return card.why_not not in NO_GPUS
    return card.kernel_driver in INTEL_DRIVERS


def _apply(
    environment: Mapping[str, str], names: tuple[str, ...], before: Visibility, cards: Sequence[Accelerator]
) -> Visibility:
    """The first of these variables that is set, applied to what is visible already."""
    variable = next((name for name in names if name in environment), None)
    if variable is None or (before.count == 0 and before.variable):
        return before
    return resolve_visible(environment[variable], cards, before.cards, variable)


def _resolve_uuids(entries: list[str], cards: Sequence[Accelerator], variable: str) -> Visibility:
    prefix, shown = entries[0][:4], list[Accelerator]()
    for entry in entries:
        matches = [card for card in cards if entry.startswith(prefix) and _has_uuid(card, entry)]
        if len(matches) != 1:
            why = "begins the UUID of several cards" if matches else "is no card's UUID"
            return _stopped(shown, variable, entry, why)
        if matches[0] in shown:
            return _doubled(variable, entry)
        shown.append(matches[0])
    return Visibility(len(shown), tuple(shown), variable)


def _has_uuid(card: Accelerator, entry: str) -> bool:
    """NVIDIA's and AMD's ids begin with GPU- or MIG-; hexadecimal digits may be written in either case."""
    return card.id.lower().startswith(entry.lower())


def _resolve_numbers(
    entries: list[str], cards: Sequence[Accelerator], ordered: Sequence[Accelerator] | None, variable: str
) -> Visibility:
    total = len(cards) if ordered is None else len(ordered)
    numbers: list[int] = []
    for entry in entries:
        number = _leading_number(entry)
        if number in numbers:
            return _doubled(variable, entry)
        if not 0 <= number < total:
            shown = [ordered[found] for found in numbers] if ordered is not None else None
            return _stopped(shown, variable, entry, _explain_number(entry, number, total), len(numbers))
        numbers.append(number)
    if ordered is None and len(numbers) < total:
        return Visibility(len(numbers), None, variable)
    counted = cards if ordered is None else ordered  # all of them, in whichever order
    return Visibility(len(numbers), tuple(counted[number] for number in numbers), variable)


def _leading_number(entry: str) -> int:
    """As C's strtoul reads it: `1gpu` is 1; -1 for what begins with no number."""
    found = _NUMBER.match(entry[:20])
    return int(found.group()) if found else -1


def _explain_number(entry: str, number: int, total: int) -> str:
    if entry.lower() in _ALL:
        return "is a word of NVIDIA_VISIBLE_DEVICES, which CUDA does not know"
    if number < 0:
        return "is neither a card's number nor a UUID"
    cards = "card is" if total == 1 else "cards are"
    return f"is not the number of a card: {total} {cards} here, counted from 0"


def _stopped(
    shown: Sequence[Accelerator] | None, variable: str, entry: str, why: str, count: int | None = None
) -> Visibility:
    count = len(shown or ()) if count is None else count
    rest = "so no card is visible" if count == 0 else "so it and what follows it is passed over"
    cards = () if count == 0 else None if shown is None else tuple(shown)
    return Visibility(count, cards, variable, entry[:80], f"{variable}: {_quote(entry)} {why}, {rest}")


def _doubled(variable: str, entry: str) -> Visibility:
    return Visibility(0, (), variable, entry[:80], f"{variable} names {_quote(entry)} twice, which hides every card")


def _by_address(cards: Sequence[Accelerator]) -> tuple[Accelerator, ...]:
    """MIG instances share an address and keep their order."""
    return tuple(sorted(cards, key=lambda card: card.pci_address or "~"))


def _quote(text: str) -> str:
    shown = "".join(letter for letter in text[:80] if letter.isprintable())
    return f'"{shown}"'
