"""Whether a card's memory makes errors, and whether its spare parts took over."""

from typing import Any

from probes.gpu.nvml.asking import Card, as_counts, as_flag

_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_SINCE_LOADED, _LIFETIME = 0, 1  # nvmlEccCounterType_t
_COUNTER = "nvmlDeviceGetTotalEccErrors"


def read_health(card: Card) -> dict[str, Any]:
    return {
        "ecc_enabled": as_flag(as_counts(card.ask("nvmlDeviceGetEccMode"), 2)[0]),
        "ecc_corrected_errors": card.count(_COUNTER, _CORRECTED, _SINCE_LOADED),
        "ecc_uncorrected_errors": card.count(_COUNTER, _UNCORRECTED, _SINCE_LOADED),
        "ecc_corrected_errors_lifetime": card.count(_COUNTER, _CORRECTED, _LIFETIME),
        "ecc_uncorrected_errors_lifetime": card.count(_COUNTER, _UNCORRECTED, _LIFETIME),
        **_read_repairs(card),
    }


def _read_repairs(card: Card) -> dict[str, Any]:
    """Ampere and newer put spare rows in place of failing ones; older cards retire whole pages."""
    _, _, pending, failed = as_counts(card.ask("nvmlDeviceGetRemappedRows"), 4)
    if pending is not None:
        return {"ecc_needs_reset": as_flag(pending), "ecc_repair_failed": as_flag(failed)}
    return {"ecc_needs_reset": as_flag(card.ask("nvmlDeviceGetRetiredPagesPendingStatus"))}
