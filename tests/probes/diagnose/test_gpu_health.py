"""Cards that work, and not as they could."""

from dataclasses import replace
from typing import Any

import pytest

from probes.diagnose import diagnose
from probes.hardware import Xid
from tests.probes.diagnose.situations import HEALTHY, codes, only, with_card


def test_memory_that_failed_is_found() -> None:
    assert only(with_card(ecc_needs_reset=True)).code == "gpu-memory-errors"
    assert "replaced" in (only(with_card(ecc_repair_failed=True, ecc_needs_reset=True)).fix or "")
    assert "3 errors" in only(with_card(ecc_uncorrected_errors=3)).message
    assert codes(with_card(ecc_uncorrected_errors=0, ecc_corrected_errors=12, ecc_needs_reset=False)) == []


def test_errors_of_the_card_are_told_from_a_programs_own() -> None:
    finding = only(with_card(xids=(Xid(62, "internal micro-controller halt", 7200.0), Xid(13))))
    assert finding.code == "gpu-driver-errors"
    assert "Xid 62" in finding.message
    assert "2.0 hours ago" in finding.message
    for harmless in ((), (Xid(13), Xid(31), Xid(43)), (Xid(62, None, 30 * 24 * 3600.0),)):
        assert codes(with_card(xids=harmless)) == []


@pytest.mark.parametrize("code", ["sw_thermal_slowdown", "hw_thermal_slowdown"])
@pytest.mark.parametrize("beside", [(), ("hw_slowdown",)])
def test_heat_that_slows_a_card_is_told_with_its_degrees(code: str, beside: tuple[str, ...]) -> None:
    hot = with_card(
        throttle_codes=(*beside, code),
        temperature_celsius=91.0,
        graphics_clock_hz=900_000_000,
        graphics_clock_maximum_hz=2_100_000_000,
        power_limit_watts=350.0,
    )
    finding = only(hot)
    assert finding.code == "gpu-throttled-by-heat"
    assert "91 °C to 900 of 2100 MHz" in finding.message
    assert (finding.fix or "").endswith("-pl 298")


@pytest.mark.parametrize("degrees", [45.0, 91.0, None])
def test_a_cards_own_protection_is_called_heat_only_where_the_driver_does(degrees: float | None) -> None:
    finding = only(with_card(throttle_codes=("hw_slowdown",), temperature_celsius=degrees))
    assert finding.code == "gpu-throttled-by-power"
    assert "does not say which" in finding.message
    assert degrees is None or f"{degrees:g} °C" in finding.message


CAPPED = {"throttle_codes": ("sw_power_cap",), "graphics_clock_hz": 700, "graphics_clock_maximum_hz": 2000}
LOWERED = {"power_limit_watts": 200.0, "power_limit_default_watts": 350.0}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"throttle_codes": ("hw_power_brake_slowdown",)}, True),
        ({"throttle_codes": ("hw_slowdown", "hw_power_brake_slowdown")}, True),
        ({**CAPPED, **LOWERED}, True),
        ({**CAPPED, "power_limit_watts": 72.0, "power_limit_default_watts": 72.0}, False),  # an L4, as it is made
        ({**CAPPED, "power_limit_watts": 72.0}, False),
        (CAPPED, False),
        ({**CAPPED, **LOWERED, "graphics_clock_hz": 1800}, False),
        ({"throttle_codes": ("sw_power_cap",), **LOWERED}, False),
        ({**CAPPED, **LOWERED, "throttle_codes": ("gpu_idle",)}, False),
        ({"throttle_codes": ()}, False),
        ({"throttle_codes": None}, False),
    ],
)
def test_reaching_the_power_limit_is_healthy_until_a_lowered_one_costs_much(
    changes: dict[str, Any], found: bool
) -> None:
    assert codes(with_card(utilization_percent=99.0, **changes)) == (["gpu-throttled-by-power"] if found else [])


def test_a_lowered_power_limit_is_told_with_what_it_was() -> None:
    finding = only(with_card(utilization_percent=99.0, **CAPPED, **LOWERED))
    assert "200 W, for 350 W" in finding.message
    assert "-pl 350" in (finding.fix or "")


def test_a_laptops_lowered_limit_is_not_to_be_set_by_hand() -> None:
    finding = only(with_card(utilization_percent=99.0, segment="laptop", **CAPPED, **LOWERED))
    assert "power supply" in (finding.fix or "")
    assert "-pl" not in (finding.fix or "")


@pytest.mark.parametrize(
    ("lanes", "most", "slot", "found"),
    [
        (4, 16, 16, True),
        (8, 16, None, True),
        (8, 16, 8, False),  # the slot has no more: nothing to mend
        (16, 16, 16, False),
        (None, 16, 16, False),
        (8, None, 16, False),
    ],
)
def test_a_link_is_narrow_where_card_and_slot_could_do_more(
    lanes: int | None, most: int | None, slot: int | None, found: bool
) -> None:
    facts = with_card(pcie_lanes=lanes, pcie_lanes_maximum=most, pcie_lanes_slot=slot)
    assert codes(facts) == (["narrow-pcie-link"] if found else [])


@pytest.mark.parametrize(("busy", "found"), [(95.0, True), (0.0, False), (None, False)])
def test_an_idle_card_of_amds_may_have_given_lanes_up(busy: float | None, found: bool) -> None:
    facts = with_card(vendor="AMD", utilization_percent=busy, pcie_lanes=8, pcie_lanes_maximum=16, pcie_lanes_slot=16)
    assert ("narrow-pcie-link" in codes(facts)) is found


@pytest.mark.parametrize(("busy", "found"), [(95.0, True), (0.0, False), (None, False)])
def test_an_idle_link_at_generation_1_is_healthy(busy: float | None, found: bool) -> None:
    facts = with_card(pcie_generation=1, pcie_generation_maximum=4, utilization_percent=busy)
    assert codes(facts) == (["slow-pcie-link"] if found else [])
    assert codes(with_card(pcie_generation=4, pcie_generation_maximum=4, utilization_percent=100.0)) == []


def test_persistence_matters_where_nothing_else_holds_the_driver() -> None:
    assert only(with_card(persistence_mode=False, processes=())).code == "persistence-off"
    assert codes(with_card(persistence_mode=False, processes=None)) == []
    assert codes(with_card(persistence_mode=True, processes=())) == []


def test_a_lost_cards_xid_is_no_second_finding() -> None:
    assert codes(with_card(HEALTHY, xids=(Xid(79), Xid(62)), memory_total_bytes=None)) == ["gpu-lost"]


def test_a_card_is_named_as_torch_names_it() -> None:
    facts = with_card(ecc_needs_reset=True, torch_device="cuda:0", usable=True)
    assert only(facts).subject == "cuda:0"
    assert only(replace(facts, accelerators=(replace(facts.accelerators[0], torch_device=None),))).subject.startswith(
        "NVIDIA"
    )


def test_an_idle_cards_clocks_are_low_whatever_its_limit() -> None:
    idle = {**CAPPED, **LOWERED, "graphics_clock_hz": 210, "graphics_clock_maximum_hz": 2100}
    assert codes(with_card(**idle)) == []
    assert codes(with_card(utilization_percent=3.0, **idle)) == []


def test_what_to_do_about_another_vendors_card_names_no_tool_of_nvidias() -> None:
    hot = with_card(vendor="Intel", throttle_codes=("thermal",), temperature_celsius=99.0)
    failing = with_card(vendor="AMD", ecc_uncorrected_errors=2)
    for facts, code in ((hot, "gpu-throttled-by-heat"), (failing, "gpu-memory-errors")):
        [fix] = [finding.fix for finding in diagnose(facts) if finding.code == code]
        assert "nvidia-smi" not in (fix or "")


def test_a_cards_health_is_told_once_and_not_of_each_of_its_instances() -> None:
    card = replace(HEALTHY.accelerators[0], ecc_needs_reset=True, mig_mode=True)
    part = replace(card, id="MIG-1", parent_id=card.id)
    assert codes(replace(HEALTHY, accelerators=(card, part))) == ["gpu-memory-errors"]
