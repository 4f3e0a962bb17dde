"""A card's sensors as the kernel's hardware monitoring gives them (Documentation/hwmon/sysfs-interface.rst).

Temperatures there are in thousandths of a degree, power in millionths of a watt, energy in millionths of a joule.
"""

import re
from dataclasses import dataclass
from typing import Any

from probes.reading import Root, clean

_MAX_SENSORS = 16
_SENSIBLE_CELSIUS = (-40, 150)
_SENSIBLE_WATTS = 10_000
_MOST_HERTZ = 100_000_000_000
MOST_MEMORY_BYTES = 1 << 50  # of one card; what is more is no size but an error


@dataclass(frozen=True, slots=True)
class Sensors:
    """Temperatures and clocks by label, lower case; a sensor without a label by its file's name, as temp1."""

    temperatures_celsius: dict[str, float]
    clocks_hz: dict[str, int]
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None  # where the driver tells it; the limit may have been set since
    energy_joules: float | None = None  # since the driver was loaded

    def temperature(self, *labels: str) -> float | None:
        """The first of these that there is."""
        return next((self.temperatures_celsius[label] for label in labels if label in self.temperatures_celsius), None)


def read_sensors(root: Root, device_folder: str, driver: str) -> Sensors | None:
    """The sensors that `driver` gives for a device; None where there are none."""
    folders = [f"{device_folder}/hwmon/{name}" for name in root.list(f"{device_folder}/hwmon")[:_MAX_SENSORS]]
    folder = next((folder for folder in folders if (root.read(f"{folder}/name") or "").strip() == driver), None)
    if folder is None:
        return None
    names = root.list(folder)
    temperatures = {label: value / 1e3 for label, value in _read_labelled(root, folder, names, "temp").items()}
    clocks = _read_labelled(root, folder, names, "freq")
    low, high = _SENSIBLE_CELSIUS
    return Sensors(
        temperatures_celsius={label: value for label, value in temperatures.items() if low <= value <= high},
        clocks_hz={label: value for label, value in clocks.items() if 0 < value <= _MOST_HERTZ},
        power_watts=_first_watts(root, folder, ("power1_average", "power1_input")),
        power_limit_watts=_first_watts(root, folder, ("power1_cap", "power1_max", "power1_rated_max")) or None,
        power_limit_default_watts=_first_watts(root, folder, ("power1_cap_default",)) or None,
        energy_joules=_scaled(root.read_int(f"{folder}/energy1_input"), 1e-6),
    )


def _read_labelled(root: Root, folder: str, names: list[str], kind: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for sensor in [name.removesuffix("_input") for name in names if re.fullmatch(rf"{kind}\d+_input", name)]:
        value = root.read_int(f"{folder}/{sensor}_input")
        if value is not None and len(found) < _MAX_SENSORS:
            found[(clean(root.read(f"{folder}/{sensor}_label")) or sensor).lower()] = value
    return found


def _first_watts(root: Root, folder: str, names: tuple[str, ...]) -> float | None:
    readings = (_scaled(root.read_int(f"{folder}/{name}"), 1e-6) for name in names)
    return next((watts for watts in readings if watts is not None and 0 <= watts <= _SENSIBLE_WATTS), None)


def _scaled(number: int | None, factor: float) -> Any:
    return None if number is None or not 0 <= number < 1 << 63 else number * factor
