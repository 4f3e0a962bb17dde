"""A recommended `cuda:N` is the same card where the snippet runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from probes.hardware import Accelerator
from probes.machine_facts import DeviceFacts, MachineFacts
from tests.app.advisor.build import ONE, a_gpu, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

SLOW = a_gpu(id="GPU-2", name="NVIDIA T400 4GB", torch_device="cuda:1", compute_capability="7.5")
LIKE = a_gpu(id="GPU-2", torch_device="cuda:1")
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
PROFILE = a_profile((ONE, GPU))


def answer(*gpus: Accelerator, devices: tuple[str, ...] = ("cuda:0",)) -> Recommendation:
    return recommend(a_survey(gpus=gpus), PROFILE, None, [], Request(a_workload(), "fp32", devices))


def told(found: Recommendation) -> tuple[bool, bool, bool]:
    reasons = [reason for reason in found.reasons if reason.code == "device-order"]
    return (
        found.settings.get("environment") == ORDER,
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID" in (found.snippet or ""),
        bool(reasons),
    )


def test_of_unlike_cards_the_order_that_names_them_is_told() -> None:
    found = answer(a_gpu(), SLOW)
    assert found.recommended is not None
    assert (found.recommended.device, found.recommended.environment) == ("cuda:0", {})
    assert told(found) == (True, True, True)


def test_beside_a_hidden_unlike_card_the_order_is_told() -> None:
    """CUDA_VISIBLE_DEVICES=0 is the T400 by the bus, and another card by CUDA's own order."""
    hidden = replace(SLOW, torch_device=None, usable=False, why_not="torch does not list it")
    assert told(answer(a_gpu(), hidden)) == (True, True, True)


@pytest.mark.parametrize(
    ("gpus", "devices"), [((a_gpu(), LIKE), ("cuda:0",)), ((a_gpu(),), ("cuda:0",)), ((a_gpu(), SLOW), ("cpu",))]
)
def test_of_like_cards_and_for_the_cpu_no_order_is_told(
    gpus: tuple[Accelerator, ...], devices: tuple[str, ...]
) -> None:
    found = answer(*gpus, devices=devices)
    assert found.recommended is not None
    assert told(found) == (False, False, False)


def test_another_machines_cards_are_told_in_their_order() -> None:
    cards = (DeviceFacts("cuda:0", "NVIDIA A10", None, "8.6"), DeviceFacts("cuda:1", "NVIDIA T400 4GB", None, "7.5"))
    for accelerators, order in ((cards, True), (cards[:1], False)):
        facts = MachineFacts("A CPU", 2, 2.0, 8 * 10**9, accelerators)
        other = replace(PROFILE, name="other", fingerprint="another", hardware=facts)
        request = Request(a_workload(), "fp32", ("cuda:0",), profile="other")
        assert told(recommend(a_survey(), other, None, [], request)) == (order,) * 3
