"""Apple's GPU: from the I/O registry on macOS, from the device tree on Linux (Asahi).

macOS has no files to read it from; `ioreg` writes the registry out as a property list in some tens of milliseconds
(`system_profiler` takes a second).
"""

import re
import sys
from typing import Any

from probes.hardware import Accelerator, Outcome
from probes.reading import Root, Unreadable, clean

_COMMAND = ("/usr/sbin/ioreg", "-a", "-r", "-d", "1", "-c", "IOAccelerator")
_TRY = "try: ioreg -r -d 1 -c IOAccelerator"
_MAX_BYTES = 8 << 20
LINUX_DRIVER = "asahi"
# Chips by their number in the device tree: Linux, Documentation/devicetree/bindings/arm/apple.yaml
_CHIPS = {
    "t8103": "Apple M1",
    "t6000": "Apple M1 Pro",
    "t6001": "Apple M1 Max",
    "t6002": "Apple M1 Ultra",
    "t8112": "Apple M2",
    "t6020": "Apple M2 Pro",
    "t6021": "Apple M2 Max",
    "t6022": "Apple M2 Ultra",
}


def read_apple(root: Root, deadline_seconds: float) -> tuple[Accelerator, ...]:
    """At most one GPU; empty where there is none. Raises Unreadable where the registry does not tell."""
    if sys.platform == "darwin" and root.is_host:
        return parse_registry(_ask_registry(deadline_seconds))
    chip = next((_CHIPS[name] for name in _list_chips(root) if name in _CHIPS), None)
    if chip is None or not root.exists(f"/sys/bus/platform/drivers/{LINUX_DRIVER}"):
        return ()
    return (_describe(chip, None, kernel_driver=LINUX_DRIVER),)


def parse_registry(text: bytes) -> tuple[Accelerator, ...]:
    """Apple's own GPUs in what `ioreg -a` writes; others are another vendor's."""
    import plistlib  # only macOS has use for it

    try:
        entries = plistlib.loads(text) if text else []
    except Exception:  # noqa: BLE001 - plistlib lets through whatever its parsers raise
        return ()
    rows = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    cards = (_parse_entry(row) for row in rows)
    return tuple(card for card in cards if card is not None)[:1]  # torch has but one `mps`


def _parse_entry(row: dict[str, Any]) -> Accelerator | None:
    model = row.get("model")
    if isinstance(model, bytes):
        model = model.decode("utf-8", "replace")
    name = clean(model.rstrip("\0")) if isinstance(model, str) else None
    if name is None or not name.startswith("Apple "):
        return None
    statistics = row.get("PerformanceStatistics")
    busy = _parse_count(statistics.get("Device Utilization %") if isinstance(statistics, dict) else None, 0, 100)
    cores = _parse_count(row.get("gpu-core-count"), 1, 1024)
    return _describe(name, cores, None if busy is None else float(busy))


def _parse_count(number: Any, least: int, most: int) -> int | None:
    return number if type(number) is int and least <= number <= most else None


def _describe(
    name: str, cores: int | None, utilization: float | None = None, kernel_driver: str | None = None
) -> Accelerator:
    return Accelerator(
        id="apple-gpu",
        vendor="Apple",
        name=name,
        segment="integrated",
        unified_memory=True,
        multiprocessors=cores,
        utilization_percent=utilization,
        kernel_driver=kernel_driver,
    )


def _list_chips(root: Root) -> list[str]:
    """`apple,j274` and `apple,t8103`, one after the other."""
    return re.findall(r"apple,(t\d{4})", root.read("/sys/firmware/devicetree/base/compatible") or "")


def _ask_registry(deadline_seconds: float) -> bytes:
    import subprocess

    try:
        told = subprocess.run(_COMMAND, capture_output=True, check=False, timeout=deadline_seconds)
    except subprocess.TimeoutExpired as error:
        raise Unreadable(Outcome.TIMEOUT, f"ioreg did not answer in time ({_TRY})") from error
    except OSError as error:
        raise Unreadable(Outcome.FAILED, f"ioreg could not be started: {clean(str(error))}") from error
    if told.returncode != 0:
        raise Unreadable(Outcome.FAILED, f"ioreg ended with exit code {told.returncode} ({_TRY})")
    return told.stdout[:_MAX_BYTES]
