"""How a card is connected: to the machine by PCIe, to other cards by NVLink or through a fabric of switches."""

import ctypes
from typing import Any

from probes.gpu.nvml.asking import Card, as_count

_MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS of nvml.h
_SPEED_FIELD = 90  # NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: megabytes a second of each active link, one direction
_VALUE_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}  # nvmlValueType_t
_FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}  # nvmlGpuFabricState_t; 0: on no fabric


def read_links(card: Card) -> dict[str, Any]:
    return {
        "pcie_generation": card.positive("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_maximum": card.positive("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_lanes": card.positive("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_lanes_maximum": card.positive("nvmlDeviceGetMaxPcieLinkWidth"),
        **_read_nvlinks(card),
    }


def _read_nvlinks(card: Card) -> dict[str, Any]:
    states = _read_link_states(card)
    if not states:
        return {}
    active, speed = sum(states), _read_link_speed(card)
    rate = active * speed * 1e6 if active and speed else None
    return {"nvlinks": active, "nvlinks_maximum": len(states), "nvlink_bytes_per_second": rate}


def _read_link_states(card: Card) -> list[int]:
    """One for each link that the card has, 1 where it is active; the first that does not answer ends them."""
    states: list[int] = []
    for number in range(_MOST_LINKS):
        state = as_count(card.ask("nvmlDeviceGetNvLinkState", number))
        if state not in (0, 1):
            break
        states.append(state)
    return states


def _read_link_speed(card: Card) -> int | None:
    answer = card.ask("nvmlDeviceGetFieldValues", [_SPEED_FIELD])
    try:
        field = answer[0]
        return as_count(getattr(field.value, _VALUE_MEMBERS[field.valueType])) if field.nvmlReturn == 0 else None
    except (TypeError, IndexError, KeyError, AttributeError):
        return None


def read_fabric_state(card: Card) -> str | None:
    """not-started, in-progress, completed or failed; None: on no fabric, or a card that does not know of any."""
    try:
        answer = card.nvml.c_nvmlGpuFabricInfo_t()
        pointer = ctypes.byref(answer)
    except (AttributeError, TypeError):
        return None
    if card.ask("nvmlDeviceGetGpuFabricInfo", pointer) is None:
        return None
    state = _FABRIC_STATES.get(as_count(answer.state) or 0)
    return "failed" if state == "completed" and answer.status != 0 else state
