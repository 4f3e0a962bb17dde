"""What changes from second to second, read cheaply: a look at a few files and at what the watched cards last told.

    reader = LiveReader()
    reader.start()                       # begins to watch NVIDIA's cards, where there is a driver
    live = reader.read(survey.accelerators)
    reader.stop()

The names are those of the survey. What does not change, a card's name or architecture, comes from the survey given.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from probes.gpu.amd import read_amd
from probes.gpu.intel import read_intel
from probes.gpu.nvml_watch import NvmlWatch, Watched
from probes.hardware import Accelerator, Load, Memory
from probes.load import read_load
from probes.memory import read_memory
from probes.reading import Root, Unreadable

_DEVICES = "/sys/bus/pci/devices"
# Kernel driver -> what its folder in /sys tells of a card, in some tenths of a millisecond. The number: bytes that the
# machine's own memory has left, which AMD's graphics inside a processor draw from.
_SYSFS_READERS: dict[str | None, Callable[[Root, Accelerator, int | None], Accelerator]] = {
    "amdgpu": read_amd,
    "i915": lambda root, card, _: read_intel(root, card),
    "xe": lambda root, card, _: read_intel(root, card),
}
# What a card told this many intervals ago, and a start's worth, is no longer now.
STALE_INTERVALS = 3
STALE_SECONDS = 2.0


class Watch(Protocol):
    """As probes.gpu.nvml_watch.NvmlWatch."""

    def start(self) -> None: ...
    def latest(self) -> Watched: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveAccelerator:
    """A card's changing facts, by the names of Accelerator, and what it is called."""

    id: str
    name: str | None = None
    torch_device: str | None = None
    utilization_percent: float | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    throttle_codes: tuple[str, ...] | None = None
    graphics_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    usable: bool | None = None
    why_not: str | None = None


LIVE_FIELDS = tuple(
    item.name
    for item in fields(LiveAccelerator)
    if item.name not in ("id", "name", "torch_device", "memory_total_bytes", "usable", "why_not")
)


@dataclass(frozen=True, slots=True)
class Live:
    """One reading. reason: why cards that are there tell nothing now. outdated: the survey that was given lists other
    cards than there are; take another one."""

    read_at: str
    load: Load
    memory: Memory
    accelerators: tuple[LiveAccelerator, ...]
    reason: str | None = None
    outdated: bool = False

    def to_json(self) -> dict[str, Any]:
        """The data of an event of `GET /hardware/events`."""
        document = asdict(self)
        del document["outdated"]
        return document


class LiveReader:
    """For one thread at a time. watch: of a caller who has one already."""

    def __init__(self, interval_seconds: float = 1.0, watch: Watch | None = None, path: Path = Path("/")) -> None:
        self._path = path
        self._stale_seconds = STALE_INTERVALS * interval_seconds + STALE_SECONDS
        self._watch: Watch = watch or NvmlWatch(interval_seconds)
        self._started = 0.0
        self._known: Sequence[Accelerator] | None = None
        self._devices: list[str] = []

    def start(self) -> None:
        read_load(Root(self._path))  # what the first reading's fractions are taken from
        self._started = time.monotonic()
        self._watch.start()

    def stop(self) -> None:
        self._watch.stop()

    def read(self, known: Sequence[Accelerator]) -> Live:
        """Never waits for a driver. known: the cards of the last survey."""
        root, watched = Root(self._path), self._watch.latest()
        memory = _read_memory(root)
        cards, outdated = self._read_cards(root, known, watched, memory)
        return Live(
            read_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            load=read_load(root),
            memory=memory,
            accelerators=tuple(_show(card) for card in cards),
            reason=watched.reason,
            outdated=outdated or self._bus_has_changed(root, known),
        )

    def _read_cards(
        self, root: Root, known: Sequence[Accelerator], watched: Watched, memory: Memory
    ) -> tuple[tuple[Accelerator, ...], bool]:
        if watched.age_seconds is None and time.monotonic() - self._started < STALE_SECONDS:
            return tuple(known), False  # just started: the survey is as new as anything
        cards, outdated = update_cards(known, watched, self._stale_seconds)
        read = (_read_sysfs(root, card, memory.available_bytes) for card in cards)
        shared = {card.id for card in known if card.unified_memory and card.memory_free_bytes is not None}
        return tuple(_share_memory(card, memory) if card.id in shared else card for card in read), outdated

    def _bus_has_changed(self, root: Root, known: Sequence[Accelerator]) -> bool:
        """Since the first reading with these known cards: one was put in or taken out."""
        devices = sorted(root.list(_DEVICES))
        if known is not self._known:
            self._known, self._devices = known, devices
        return devices != self._devices


def update_cards(
    known: Iterable[Accelerator], watched: Watched, stale_seconds: float
) -> tuple[tuple[Accelerator, ...], bool]:
    """The cards with what the watch last told of them, and whether it tells of others than are known.

    A card that the watch tells nothing of keeps its place and has nothing that changes; one of NVML's that is gone has
    gone.
    """
    fresh = watched.age_seconds is not None and watched.age_seconds <= stale_seconds
    cards, known_ids = [], set()
    for card in known:
        known_ids.add(card.id)
        if fresh and card.id in watched.cards:
            cards.append(with_live_facts(card, watched.cards[card.id]))
        elif not (fresh and _is_watched(card)):
            cards.append(with_live_facts(card, {}))
    new = _list_new(cards, known_ids, watched) if fresh else []
    cards += [with_live_facts(Accelerator(key, vendor="NVIDIA"), watched.cards[key]) for key in new]
    return tuple(cards), {card.id for card in cards} != known_ids


def _list_new(cards: Sequence[Accelerator], known_ids: set[str], watched: Watched) -> list[str]:
    """Whom no known card is. What NVML does not reach has its number there and, in a survey, the address at which the
    bus shows it (probes.gpu.merge)."""
    new = [key for key in watched.cards if key not in known_ids]
    unreached = [key for key in new if watched.cards[key].get("usable") is False]
    silent = sum(card.vendor == "NVIDIA" and card.usable is False and not _is_watched(card) for card in cards)
    return [key for key in new if key not in unreached[:silent]]


def with_live_facts(card: Accelerator, facts: Mapping[str, Any]) -> Accelerator:
    """The card with these changing facts and no older ones. One that the driver lost says so."""
    changes: dict[str, Any] = {name: facts.get(name) for name in LIVE_FIELDS}
    if facts.get("memory_total_bytes") is not None:
        changes["memory_total_bytes"] = facts["memory_total_bytes"]
    if facts.get("usable") is False:
        changes |= {"usable": False, "why_not": facts.get("why_not")}
    return replace(card, **changes)


def _read_sysfs(root: Root, card: Accelerator, available_bytes: int | None) -> Accelerator:
    read = _SYSFS_READERS.get(card.kernel_driver)
    if read is None or card.pci_address is None:
        return card
    told = read(root, card, available_bytes)
    facts = {name: getattr(told, name) for name in LIVE_FIELDS}
    if card.memory_total_bytes not in (None, told.memory_total_bytes):  # a partition: the driver's is the whole card's
        facts["memory_free_bytes"] = None
    return with_live_facts(card, facts)


def _share_memory(card: Accelerator, memory: Memory) -> Accelerator:
    """What is left of the machine's memory, where no driver tells what is left of a part of it that it set aside; as
    in a survey (probes.gpu.judge)."""
    if card.memory_free_bytes is not None:
        return card
    if card.vendor != "NVIDIA":
        return replace(card, memory_free_bytes=memory.available_bytes)
    known = [size for size in (card.memory_total_bytes, memory.usable_bytes) if size is not None]
    return replace(card, memory_free_bytes=min(known) if memory.usable_bytes is not None else None)


def _is_watched(card: Accelerator) -> bool:
    """NVML told of it, and of its driver, which neither the bus nor CUDA do."""
    return card.vendor == "NVIDIA" and card.driver_version is not None


def _show(card: Accelerator) -> LiveAccelerator:
    return LiveAccelerator(**{item.name: getattr(card, item.name) for item in fields(LiveAccelerator)})


def _read_memory(root: Root) -> Memory:
    try:
        return read_memory(root).memory
    except (Unreadable, OSError):
        return Memory()
