"""What AMD's own library adds to the files in /sys, where the machine's ROCm brings it: names, versions, sizes.

amdsmi is never a dependency. A process of its own imports it (probes.gpu.amdsmi_program), from Python's own path or
from ROCm's folder. Only what does not change is taken from it, so that what it said may be kept for minutes; what
changes comes from /sys.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from probes.gpu.child_process import TIMEOUT, ask_child
from probes.gpu.hwmon import MOST_MEMORY_BYTES
from probes.gpu.kept import Kept
from probes.gpu.pci import normalize_address
from probes.hardware import Accelerator, Outcome
from probes.reading import clean

FOLDER = "/opt/rocm/share/amd_smi"  # ROCm installation guide, "AMD SMI": the package lies here even if not installed
_MEBIBYTE = 1 << 20
_MOST = {"multiprocessors": 4096, "memory_bus_bits": 65536}


@dataclass(frozen=True, slots=True)
class AmdsmiReading:
    """cards: rows by PCI address, with an Accelerator's names."""

    outcome: Outcome
    reason: str | None = None
    cards: tuple[dict[str, Any], ...] = ()


_kept: Kept[AmdsmiReading] = Kept()


def read_amdsmi(deadline_seconds: float, environment: Mapping[str, str] | None = None) -> AmdsmiReading:
    """`absent` at once where there is no amdsmi."""
    environment = dict(os.environ) if environment is None else environment
    if not is_installed(environment):
        return AmdsmiReading(Outcome.ABSENT, "there is no amdsmi here: /sys alone tells of AMD's cards")
    key = tuple(environment.get(name) for name in ("PYTHONPATH", "LD_LIBRARY_PATH"))
    return _kept.get(key, lambda: ask_amdsmi(deadline_seconds, environment), lambda reading: bool(reading.cards))


def is_installed(environment: Mapping[str, str]) -> bool:
    """Some file look-ups; nothing is imported."""
    places = [place for place in (FOLDER, *environment.get("PYTHONPATH", "").split(os.pathsep)) if place]
    candidates = [f"{place}/{name}" for place in places for name in ("amdsmi/__init__.py", "amdsmi.py")]
    return any(os.path.exists(path) for path in candidates) or find_spec("amdsmi") is not None  # noqa: PTH110


def ask_amdsmi(deadline_seconds: float, environment: Mapping[str, str]) -> AmdsmiReading:
    answer = ask_child("probes.gpu.amdsmi_program", "amdsmi", deadline_seconds, environment)
    cards = tuple(_to_row(document["card"]) for document in answer.documents if isinstance(document.get("card"), dict))
    if answer.ending == TIMEOUT:
        return AmdsmiReading(Outcome.TIMEOUT, "amdsmi did not answer in time (try: amd-smi list)", cards)
    if answer.ending is not None:
        return AmdsmiReading(Outcome.FAILED, answer.ending, cards)
    error = next((document["error"] for document in answer.documents if "error" in document), None)
    if error is not None:
        return AmdsmiReading(Outcome.FAILED, f"amdsmi could not be used: {clean(str(error))}", cards)
    return AmdsmiReading(Outcome.OK, None, cards)


def with_amdsmi(cards: Sequence[Accelerator], reading: AmdsmiReading) -> tuple[Accelerator, ...]:
    """The cards with what the files did not tell."""
    rows = {row["pci_address"]: row for row in reading.cards if row["pci_address"]}
    return tuple(_fill(card, rows.get(card.pci_address)) for card in cards)


def outcome_with(cards: Sequence[Accelerator], reading: AmdsmiReading) -> Outcome:
    """Of what the files told beside amdsmi. While it is late it may know what they leave open of a card's identity, and
    nothing is settled; where it fails it will go on to, and the files' word is the answer."""
    is_open = any(card.name is None or card.driver_version is None for card in cards)
    return Outcome.TIMEOUT if reading.outcome is Outcome.TIMEOUT and is_open else Outcome.OK


def _fill(card: Accelerator, row: dict[str, Any] | None) -> Accelerator:
    if row is None:
        return card
    missing = {name: value for name, value in row.items() if value is not None and getattr(card, name) is None}
    if card.unified_memory:  # its "VRAM" is a carve-out
        missing.pop("memory_total_bytes", None)
    return replace(card, **missing)


def _to_row(told: dict[str, Any]) -> dict[str, Any]:
    """amdsmi writes `N/A` for what it does not know, and sizes in MiB."""
    megabytes = _number(told.get("vram_size"), MOST_MEMORY_BYTES // _MEBIBYTE)
    return {
        "pci_address": normalize_address(_text(told.get("bdf"))),
        "name": _text(told.get("market_name")),
        "driver_version": _text(told.get("driver_version")),
        "gfx_target": _gfx(_text(told.get("target_graphics_version"))),
        "multiprocessors": _number(told.get("num_compute_units"), _MOST["multiprocessors"]),
        "memory_bus_bits": _number(told.get("vram_bit_width"), _MOST["memory_bus_bits"]),
        "memory_total_bytes": None if megabytes is None else megabytes * _MEBIBYTE,
    }


def _text(value: Any) -> str | None:
    text = clean(value) if isinstance(value, str) else None
    return None if text is None or text.upper() == "N/A" else text


def _gfx(text: str | None) -> str | None:
    return text if text is not None and text.startswith("gfx") else None


def _number(value: Any, most: int) -> int | None:
    return value if type(value) is int and 0 < value <= most else None
