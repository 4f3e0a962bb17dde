"""Intel's GPUs from sysfs alone: what the i915 or xe driver tells of each, without Level Zero.

Files: Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon; drivers/gpu/drm/xe/xe_gt_{freq,throttle}.c;
drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c. Neither driver tells how busy the GPU is, or how much of its memory is
free. Its size only some do: xe's per-tile `physical_vram_size_bytes`, and the `lmem_total_bytes` of Intel's own
builds of i915.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from probes.gpu.hwmon import MOST_MEMORY_BYTES, Sensors, read_sensors
from probes.hardware import Accelerator
from probes.reading import Root, clean

DRIVERS = ("xe", "i915")
_MAX_TILES = 16
_MAX_CLOCK_MHZ = 10_000
# What `reason_…` files mean (xe_gt_throttle.c); the words are for people.
_REASONS = {
    "pl1": "held down by its sustained power limit",
    "pl2": "held down by its burst power limit",
    "pl4": "held down by its peak current limit",
    "iccmax": "held down by its peak current limit",
    "psys_pl1": "held down by the whole machine's power limit",
    "psys_pl2": "held down by the whole machine's power limit",
    "psys_crit": "held down by the whole machine's power limit",
    "thermal": "held down because it is too hot",
    "soc_thermal": "held down because it is too hot",
    "soc_avg_thermal": "held down because it is too hot",
    "mem_thermal": "held down because its memory is too hot",
    "prochot": "held down because the machine reports that it is too hot",
    "ratl": "held down because it has been hot for long",
    "vr_thermalert": "held down because its voltage regulator is too hot",
    "vr_thermal": "held down because its voltage regulator is too hot",
    "vr_tdc": "held down by its voltage regulator's current limit",
    "fastvmode": "held down by its voltage regulator's current limit",
    "p0_freq": "held down to its highest lasting clock",
}


def read_intel(root: Root, card: Accelerator) -> Accelerator:
    """What i915 or xe adds to a GPU that it drives."""
    driver = card.kernel_driver or DRIVERS[0]
    folder = f"/sys/bus/pci/devices/{card.pci_address}"
    gt = _find_gt(root, folder)
    codes = None if gt is None else gt.read_throttling(root)
    told = replace(
        card,
        driver_version=clean(root.read(f"/sys/module/{driver}/version")) or card.driver_version,
        memory_total_bytes=(None if card.unified_memory else _read_memory(root, folder)) or card.memory_total_bytes,
        graphics_clock_hz=None if gt is None else _read_clock(root, gt.clock_now),
        graphics_clock_maximum_hz=None if gt is None else _read_clock(root, gt.clock_maximum),
        throttle_codes=codes,
        throttle_reasons=None if codes is None else explain_throttling(codes),
    )
    return _add_sensors(root, told, read_sensors(root, folder, driver))


def explain_throttling(codes: tuple[str, ...]) -> tuple[str, ...]:
    """Each reason once; a code that is not known stands for itself."""
    return tuple(dict.fromkeys(_REASONS.get(code, f"held down ({code})") for code in codes))


@dataclass(frozen=True, slots=True)
class Gt:
    """Where a driver tells of the first graphics unit: xe and i915 differ in folders and names."""

    clock_now: str
    clock_maximum: str  # what the silicon allows, not what somebody has set
    throttle_folder: str
    throttle_prefix: str

    def read_throttling(self, root: Root) -> tuple[str, ...] | None:
        """Codes of what holds the clock down; None where the driver does not tell."""
        names = [name for name in root.list(self.throttle_folder) if name.startswith(self.throttle_prefix)]
        states = {
            name.removeprefix(self.throttle_prefix): root.read_int(f"{self.throttle_folder}/{name}") for name in names
        }
        states.pop("status", None)
        if not states or any(state not in (0, 1) for state in states.values()):
            return None
        return tuple(code for code, state in states.items() if state)


def _find_gt(root: Root, folder: str) -> Gt | None:
    for place in (f"{folder}/tile0/gt0/freq0", f"{folder}/gt0/freq0"):  # xe
        if root.exists(place):
            return Gt(f"{place}/act_freq", f"{place}/rp0_freq", f"{place}/throttle", "reason_")
    card = _find_drm_card(root, folder)
    if card is None:
        return None
    place = f"{card}/gt/gt0"  # i915; before Linux 5.18 the same stood in the card's own folder
    if root.exists(place):
        return Gt(f"{place}/rps_act_freq_mhz", f"{place}/rps_RP0_freq_mhz", place, "throttle_reason_")
    return Gt(f"{card}/gt_act_freq_mhz", f"{card}/gt_RP0_freq_mhz", card, "throttle_reason_")


def _find_drm_card(root: Root, folder: str) -> str | None:
    names = [name for name in root.list(f"{folder}/drm") if re.fullmatch(r"card\d+", name)]
    return f"{folder}/drm/{names[0]}" if names else None


def _read_clock(root: Root, path: str) -> int | None:
    """An idle unit has a clock of 0: that is no clock to tell of."""
    megahertz = root.read_int(path)
    return megahertz * 1_000_000 if megahertz is not None and 0 < megahertz <= _MAX_CLOCK_MHZ else None


def _read_memory(root: Root, folder: str) -> int | None:
    """All tiles' memory; None where one tile does not tell: half a card's memory is a wrong fact."""
    tiles = [name for name in root.list(folder) if re.fullmatch(r"tile\d+", name)][:_MAX_TILES]
    sizes = [_read_size(root, f"{folder}/{tile}") for tile in tiles]
    known = [size for size in sizes if size is not None]
    if known:
        return sum(known) if len(known) == len(sizes) else None
    card = _find_drm_card(root, folder)
    return None if card is None else _positive(root.read_int(f"{card}/lmem_total_bytes"))


def _read_size(root: Root, tile: str) -> int | None:
    sizes = (root.read_int(f"{tile}/{place}physical_vram_size_bytes") for place in ("", "memory/"))
    return next((size for size in map(_positive, sizes) if size is not None), None)


def _positive(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= MOST_MEMORY_BYTES else None


def _add_sensors(root: Root, card: Accelerator, sensors: Sensors | None) -> Accelerator:
    if sensors is None:
        return card
    power = sensors.power_watts
    if power is None and sensors.energy_joules is not None:
        power = _meter.read((root.path, card.pci_address), sensors.energy_joules)
    return replace(
        card,
        temperature_celsius=sensors.temperature("pkg", "temp2", "temp1"),
        power_watts=power,
        power_limit_watts=sensors.power_limit_watts,
    )


class Meter:
    """Power from a counter of energy: the mean between two readings of it in this process."""

    shortest_seconds = 0.2  # the counters move in steps of some milliseconds
    longest_seconds = 60.0  # a mean over longer tells nothing of now
    _most_watts = 10_000

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: dict[object, tuple[float, float]] = {}
        self._means: dict[object, float] = {}
        self._lock = threading.Lock()

    def read(self, key: object, joules: float) -> float | None:
        """Watts since the last reading; None at the first."""
        with self._lock:
            now = self._clock()
            when, before = self._readings.get(key, (now, joules))
            if key in self._readings and now - when < self.shortest_seconds:
                return self._means.get(key)
            self._readings[key] = (now, joules)
            watts = (joules - before) / (now - when) if now > when else -1.0
            self._means.pop(key, None)
            if 0 <= watts <= self._most_watts and now - when <= self.longest_seconds:
                self._means[key] = watts
            return self._means.get(key)


_meter = Meter()
