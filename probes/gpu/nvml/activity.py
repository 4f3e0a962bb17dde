"""What changes on a card from second to second, in a few quick calls: what a watch asks again and again."""

from typing import Any

from probes.gpu.nvml.asking import Card, as_count
from probes.gpu.throttle import parse_throttle_mask

_GRAPHICS_CLOCK, _MEMORY_CLOCK = 0, 2  # nvmlClockType_t
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU
_HOTTEST_CELSIUS = 200  # above it, the answer is rubbish: cards switch themselves off near 100
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


def read_activity(card: Card) -> dict[str, Any]:
    return {
        **read_memory(card),
        "utilization_percent": _read_utilization(card),
        "temperature_celsius": _read_temperature(card),
        # Some laptops answer 0 W for "not measured".
        "power_watts": _scale(card.positive("nvmlDeviceGetPowerUsage"), 1e-3),
        "power_limit_watts": _scale(_read_power_limit(card), 1e-3),
        "graphics_clock_hz": _megahertz(card.positive("nvmlDeviceGetClockInfo", _GRAPHICS_CLOCK)),
        "memory_clock_hz": _megahertz(card.positive("nvmlDeviceGetClockInfo", _MEMORY_CLOCK)),
        **_read_throttling(card),
    }


def read_clock_limits(card: Card) -> dict[str, Any]:
    return {
        "graphics_clock_maximum_hz": _megahertz(card.positive("nvmlDeviceGetMaxClockInfo", _GRAPHICS_CLOCK)),
        "memory_clock_maximum_hz": _megahertz(card.positive("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK)),
    }


def read_memory(card: Card) -> dict[str, Any]:
    """Total, free, and whether it is the machine's own memory: GB10, Jetson and Grace say NOT_SUPPORTED then."""
    call = "nvmlDeviceGetMemoryInfo"
    answer = card.ask(call)
    total, free = as_count(getattr(answer, "total", None)) or None, as_count(getattr(answer, "free", None))
    is_sound = total is not None and free is not None and free <= total
    is_shared = True if card.errors.get(call) == "NVML_ERROR_NOT_SUPPORTED" else None
    return {
        "memory_total_bytes": total,
        "memory_free_bytes": free if is_sound else None,
        "unified_memory": False if total is not None else is_shared,
    }


def _read_utilization(card: Card) -> int | None:
    percent = as_count(getattr(card.ask("nvmlDeviceGetUtilizationRates"), "gpu", None))
    return percent if percent is not None and percent <= 100 else None


def _read_temperature(card: Card) -> int | None:
    degrees = as_count(card.ask_first(("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), _CORE_SENSOR))
    return degrees if degrees is not None and degrees <= _HOTTEST_CELSIUS else None


def _read_power_limit(card: Card) -> int | None:
    """The limit in force is the lowest of all that somebody set; some cards tell only their own."""
    return card.positive("nvmlDeviceGetEnforcedPowerLimit") or card.positive("nvmlDeviceGetPowerManagementLimit")


def _read_throttling(card: Card) -> dict[str, Any]:
    mask = as_count(card.ask_first(_REASONS))
    words, codes = (None, None) if mask is None else parse_throttle_mask(mask)
    return {"throttle_reasons": words, "throttle_codes": codes}


def _scale(value: int | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3)


def _megahertz(value: int | None) -> int | None:
    return None if value is None else value * 1_000_000
