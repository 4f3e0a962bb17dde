"""Everything that NVML tells of one card, told piece by piece, so that a hang or a crash keeps what was said before."""

from collections.abc import Callable, Iterator
from typing import Any

from probes.gpu.nvml.activity import read_activity, read_clock_limits, read_memory
from probes.gpu.nvml.asking import Card, as_count, explain_unreached
from probes.gpu.nvml.health import read_health
from probes.gpu.nvml.identity import read_build, read_identity, read_setup
from probes.gpu.nvml.links import read_fabric_state, read_links
from probes.gpu.nvml.processes import explain_mode, read_processes
from probes.reading import Root

Tell = Callable[[str, dict[str, Any]], None]

_MAX_INSTANCES = 16
_PIECES = (read_setup, read_activity, read_clock_limits, read_build, read_links, read_health)
# What a MIG instance has in common with its card. Power and links are the whole card's; counted twice, they mislead.
_SHARED = (
    "vendor", "driver_version", "architecture", "pci_address", "compute_capability", "temperature_celsius",
    "throttle_reasons", "throttle_codes", "graphics_clock_hz", "graphics_clock_maximum_hz", "memory_clock_hz",
    "memory_clock_maximum_hz", "persistence_mode", "virtualization", "mig_mode", "ecc_enabled",
)  # fmt: skip


def read_card(nvml: Any, index: int, driver: str | None, tell: Tell) -> None:
    """Tells of the card under its index and, where MIG splits it, of its instances under `index.number`.

    Nothing is told before the card can be recognised: what hangs or crashes even there is known from the bus alone.
    """
    key = str(index)
    facts: dict[str, Any] = {"id": f"nvidia-{index}", "vendor": "NVIDIA", "driver_version": driver}
    try:
        card = Card(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
    except Exception as error:  # noqa: BLE001 - one that is lost stays in the list with the reason
        tell(key, {**facts, "usable": False, "why_not": explain_unreached(error)})
        return
    facts |= read_identity(card, index)
    tell(key, facts)
    for piece in _read_pieces(card):
        facts |= piece
        tell(key, piece)
    why = card.why_lost or _tell_instances(card, key, facts, tell)
    why = why or explain_mode(card, facts.get("compute_mode"), Root())
    if why is not None:
        tell(key, {"usable": False, "why_not": why})


def _read_pieces(card: Card) -> Iterator[dict[str, Any]]:
    for read in _PIECES:
        piece = read(card)
        # Bus and clock of the machine's own memory are not the GPU's to tell.
        yield piece if read is not read_build else _without_shared_bandwidth(card, piece)
    yield {"fabric_state": read_fabric_state(card)}
    yield read_processes(card, Root())


def _without_shared_bandwidth(card: Card, piece: dict[str, Any]) -> dict[str, Any]:
    is_shared = card.errors.get("nvmlDeviceGetMemoryInfo") == "NVML_ERROR_NOT_SUPPORTED"
    return {**piece, "memory_bandwidth_bytes_per_second": None, "memory_bus_bits": None} if is_shared else piece


def list_instances(card: Card) -> list[tuple[int, Card]] | None:
    """MIG instances with their numbers; the places that are not taken answer NOT_FOUND. None: not known."""
    places = as_count(card.ask("nvmlDeviceGetMaxMigDeviceCount"))
    if not places:
        return None
    call = "nvmlDeviceGetMigDeviceHandleByIndex"
    handles = [(number, card.ask(call, number)) for number in range(min(places, _MAX_INSTANCES))]
    return [(number, Card(card.nvml, handle)) for number, handle in handles if handle is not None]


def _tell_instances(card: Card, key: str, facts: dict[str, Any], tell: Tell) -> str | None:
    """Why the card itself is not to be used, or None when MIG does not split it."""
    instances = list_instances(card) if facts.get("mig_mode") else None
    if instances is None:
        return None
    for number, instance in instances:
        tell(f"{key}.{number}", _describe_instance(instance, facts, number))
    if not instances:
        return "MIG is on, but the card has no instance that may be used here; make one, or: nvidia-smi -mig 0"
    return "MIG splits this card; use one of its instances"


def _describe_instance(instance: Card, facts: dict[str, Any], number: int) -> dict[str, Any]:
    """An instance has a UUID of its own (`MIG-…`, a string) and its own share of memory and multiprocessors."""
    attributes = instance.ask("nvmlDeviceGetAttributes")
    return {
        **{name: facts[name] for name in _SHARED if name in facts},
        "id": instance.text("nvmlDeviceGetUUID") or f"{facts['id']}/mig-{number}",
        "parent_id": facts["id"],
        "name": instance.text("nvmlDeviceGetName") or facts.get("name"),
        "multiprocessors": as_count(getattr(attributes, "multiprocessorCount", None)) or None,
        **read_memory(instance),
        "unified_memory": facts.get("unified_memory"),
        **read_processes(instance, Root()),
    }
