"""Which of torch's names are another kind of card's because cards are hidden, and which are not."""

from __future__ import annotations

from typing import Any

import pytest

from probes.gpu.renamed import is_like, may_rename, renamed_devices
from probes.hardware import Accelerator

GIB = 1 << 30


def card(name: str, slot: int, device: str | None = None, /, **facts: Any) -> Accelerator:
    usual: dict[str, Any] = {
        "id": f"GPU-{slot}",
        "vendor": "NVIDIA",
        "name": name,
        "pci_address": f"0000:{slot:02x}:00.0",
        "torch_device": device,
        "memory_total_bytes": 24 * GIB,
        "compute_capability": "8.9",
        "kernel_driver": "nvidia",
    }
    return Accelerator(**{**usual, **facts})


def part(name: str, number: int, device: str | None = None) -> Accelerator:
    return card(name, 1, device, id=f"MIG-{number}", parent_id="GPU-1", mig_mode=True)


def amd(name: str, slot: int, device: str | None = None, **facts: Any) -> Accelerator:
    chip = {"vendor": "AMD", "compute_capability": None, "gfx_target": "gfx1100", "kernel_driver": "amdgpu"}
    return card(name, slot, device, **{**chip, **facts})


def renamed(*cards: Accelerator) -> dict[str, str]:
    return {device: found.id for device, found in renamed_devices(cards).items()}


SPLIT = card("H100", 1, None, mig_mode=True, usable=False)
AS_USUAL = {
    "nothing is hidden": (card("4090", 1, "cuda:0"), card("T400", 2, "cuda:1")),
    "listed in another order": (card("T400", 2, "cuda:1"), card("4090", 1, "cuda:0")),
    "the last is hidden": (card("4090", 1, "cuda:0"), card("T400", 2)),
    "all are hidden": (card("4090", 1), card("T400", 2)),
    "its twin is hidden": (card("4090", 1), card("4090", 2, "cuda:0")),
    "a screen is on one of them": (card("4090", 1, memory_total_bytes=24 * GIB - 5000000), card("4090", 2, "cuda:0")),
    "others have the first": (card("T400", 1, kernel_driver="vfio-pci"), card("4090", 2, "cuda:0")),
    "a container has one of them": (card("H100", 1, id="pci-0000:01:00.0"), card("T400", 2, "cuda:0")),
    "MIG's first part": (SPLIT, part("1g.10gb", 1, "cuda:0"), part("3g.40gb", 2)),
    "MIG's parts are alike": (SPLIT, part("1g.10gb", 1), part("1g.10gb", 2, "cuda:0")),
    "MIG without a part": (SPLIT, card("T400", 2, "cuda:0")),
    "HIP counts otherwise": (amd("Radeon 780M", 1, "cuda:1"), amd("RX 7900 XTX", 2, "cuda:0")),
    "graphics that HIP never shows": (amd("Radeon", 1, gfx_target=None), amd("RX 7900 XTX", 2, "cuda:0")),
    "Intel's": (card("A770", 1, "xpu:1", vendor="Intel"), card("A380", 2, "xpu:0", vendor="Intel")),
}


@pytest.mark.parametrize("cards", AS_USUAL.values(), ids=AS_USUAL)
def test_a_name_that_is_the_usual_kind_of_card_s_is_not_told(cards: tuple[Accelerator, ...]) -> None:
    assert renamed(*cards) == {}


OTHERWISE = {
    "the first is hidden": ((card("4090", 1), card("T400", 2, "cuda:0")), {"cuda:0": "GPU-2"}),
    "they are exchanged": (
        (card("4090", 1, "cuda:1"), card("T400", 2, "cuda:0")),
        {"cuda:0": "GPU-2", "cuda:1": "GPU-1"},
    ),
    "of alike ones the first is named": (
        (card("4090", 1), card("T400", 2), card("T400", 3, "cuda:0")),
        {"cuda:0": "GPU-2"},
    ),
    "the other link": (
        (card("4090", 1, pcie_lanes_slot=16), card("4090", 2, "cuda:0", pcie_lanes_slot=4)),
        {"cuda:0": "GPU-2"},
    ),
    "the other memory": (
        (card("RTX 3080", 1, memory_total_bytes=10 * GIB), card("RTX 3080", 2, "cuda:0", memory_total_bytes=12 * GIB)),
        {"cuda:0": "GPU-2"},
    ),
    "MIG's other part": ((SPLIT, part("1g.10gb", 1), part("3g.40gb", 2, "cuda:0")), {"cuda:0": "MIG-2"}),
    "a whole card beside MIG's parts": (
        (SPLIT, part("1g.10gb", 1), card("H100", 2, "cuda:0")),
        {"cuda:0": "GPU-2"},
    ),
    "AMD's": ((amd("RX 7900 XTX", 1), amd("Radeon 780M", 2, "cuda:0")), {"cuda:0": "GPU-2"}),
}


@pytest.mark.parametrize(("cards", "found"), OTHERWISE.values(), ids=OTHERWISE)
def test_a_name_that_another_kind_of_card_has_is_told(cards: tuple[Accelerator, ...], found: dict[str, str]) -> None:
    assert renamed(*cards) == found


def test_cards_that_say_too_little_are_like_no_other() -> None:
    assert is_like(card("T400", 1), card("T400", 2))
    for lacking in ("name", "memory_total_bytes", "compute_capability"):
        one, other = card("T400", 1, **{lacking: None}), card("T400", 2, **{lacking: None})
        assert not is_like(one, other)
        assert is_like(one, one)


def test_only_unlike_cards_and_a_variable_may_rename() -> None:
    unlike, alike = (card("4090", 1), card("T400", 2)), (card("4090", 1), card("4090", 2))
    hiding = {"CUDA_VISIBLE_DEVICES": "1"}
    assert may_rename(hiding, unlike)
    assert not may_rename({"PATH": "/bin"}, unlike)
    assert not may_rename(hiding, alike)
