"""Cards that work, and not as they could: errors, heat, power, the link to the processor."""

from __future__ import annotations

from collections.abc import Iterator

from probes.accelerator import subject_of
from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.diagnose.links import Case
from probes.diagnose.nvidia_kernel import is_lost
from probes.hardware import Accelerator, Finding, Xid

# Xids that a program's own mistakes cause; the others are the card's, the bus's or the driver's
# (docs.nvidia.com/deploy/xid-errors, "Xid Catalog": 13 and 31 invalid accesses, 43 a stopped channel, 45 its clean-up,
# 11, 25, 66, 67, 69 invalid commands).
_OF_PROGRAMS = frozenset({11, 13, 25, 31, 43, 45, 66, 67, 69})
_RECENT_SECONDS = 7 * 24 * 3600.0
_HEAT = frozenset(
    {
        *("sw_thermal_slowdown", "hw_thermal_slowdown"),
        # Intel's, as xe and i915 name them (probes.gpu.intel).
        *("thermal", "soc_thermal", "soc_avg_thermal", "mem_thermal"),
        *("prochot", "ratl", "vr_thermalert", "vr_thermal"),
    }
)
# Reaching the power limit under load is what cards are made for; only the supply's own brake is a defect.
_POWER = ("hw_power_brake_slowdown",)
# Its protection's own word, which stands beside that of heat or of the brake where one of them is the reason. Alone it
# may be the card's draw, or a driver that does not tell them apart (NVML, "HW Slowdown").
_PROTECTION = "hw_slowdown"
_LOW_LIMIT_CLOCK = 0.7  # of the maximum: below it the power limit costs more than the usual few percent
_BUSY_PERCENT = 50.0  # an idle link slows down to save power (NVIDIA/open-gpu-kernel-modules#731)


def _whole_cards(facts: Facts) -> list[Accelerator]:
    """A MIG instance shares its card's health."""
    return [card for card in facts.accelerators if card.parent_id is None]


def _number(card: Accelerator) -> str:
    return card.pci_address or card.id


def _is_busy(card: Accelerator) -> bool:
    """Busy enough for its clocks and its link to be those that work gets; a card that does not tell its load is not."""
    return (card.utilization_percent or 0) >= _BUSY_PERCENT


def find_memory_errors(facts: Facts) -> Iterator[Finding]:
    """Of several signs the gravest."""
    for card in _whole_cards(facts):
        told = _explain_memory(card)
        if told is not None:
            yield make_finding("gpu-memory-errors", subject_of(card), *told)


def _explain_memory(card: Accelerator) -> tuple[str, str] | None:
    """A message and a fix."""
    if card.ecc_repair_failed:
        return (
            "This card's memory has failing cells and no spare ones left to take over for them.",
            "Have the card replaced; until then do not trust what is computed on it.",
        )
    if card.ecc_needs_reset:
        return (
            "A failing part of this card's memory waits for a reset to be taken out of use; until then "
            "errors may come back.",
            f"End its programs, then: sudo nvidia-smi -i {_number(card)} -r",
        )
    if card.ecc_uncorrected_errors:
        shows = {
            "NVIDIA": f"nvidia-smi -i {_number(card)} -q -d ECC,ROW_REMAPPER",
            "AMD": f"cat /sys/bus/pci/devices/{_number(card)}/ras/umc_err_count",
        }.get(card.vendor or "", "sudo dmesg | grep -i ecc")
        return (
            f"This card's memory had {card.ecc_uncorrected_errors} errors that could not be corrected since the driver "
            "was loaded: what was computed then may be wrong.",
            f"{shows} tells more; if it goes on, have the card replaced.",
        )
    return None


def find_driver_errors(facts: Facts) -> Iterator[Finding]:
    """A lost card is the chain's finding already."""
    for card in _whole_cards(facts):
        serious = [xid for xid in card.xids or () if _is_serious(xid)]
        if not serious or is_lost(Case(facts, card)):
            continue
        last = serious[0]
        when = f"{last.age_seconds / 3600:.1f} hours ago" if last.age_seconds is not None else "recently"
        message = f"The driver reported Xid {last.code} for this card {when}" + (
            f": {last.meaning}." if last.meaning else "."
        )
        if len(serious) > 1:
            message += f" {len(serious)} such errors are in the kernel's log."
        yield make_finding(
            "gpu-driver-errors",
            subject_of(card),
            message,
            "sudo dmesg | grep -i xid; look the number up at https://docs.nvidia.com/deploy/xid-errors/",
        )


def _is_serious(xid: Xid) -> bool:
    return xid.code not in _OF_PROGRAMS and (xid.age_seconds is None or xid.age_seconds < _RECENT_SECONDS)


def find_throttling(facts: Facts) -> Iterator[Finding]:
    for card in _whole_cards(facts):
        codes = set(card.throttle_codes or ())
        if codes & set(_POWER) or _is_held_low(card, codes):
            yield _throttled_by_power(card)
        elif codes & _HEAT:
            yield _throttled_by_heat(card)
        elif _PROTECTION in codes:
            yield _throttled_by_protection(card)


def _throttled_by_heat(card: Accelerator) -> Finding:
    message = f"This card is slowed down by heat{_degrees(card)}{_clocks(card)}: steps take longer the longer it runs."
    fix = f"Clean its fans and let air through{_advise_lower_limit(card)}"
    return make_finding("gpu-throttled-by-heat", subject_of(card), message, fix)


def _advise_lower_limit(card: Accelerator) -> str:
    if card.vendor != "NVIDIA":
        return "; leave a slot free beside it."
    return f"; meanwhile a lower power limit keeps it even: sudo nvidia-smi -i {_number(card)} -pl {_lower_limit(card)}"


def _is_held_low(card: Accelerator, codes: set[str]) -> bool:
    """By a limit that somebody, or a laptop, lowered: cards made for few watts (T4, L4) reach theirs under any load."""
    clock, most = card.graphics_clock_hz, card.graphics_clock_maximum_hz
    limit, default = card.power_limit_watts, card.power_limit_default_watts
    if not _is_busy(card) or limit is None or default is None or limit >= default:
        return False
    return "sw_power_cap" in codes and bool(clock and most and clock < _LOW_LIMIT_CLOCK * most)


def _throttled_by_power(card: Accelerator) -> Finding:
    if set(card.throttle_codes or ()) & set(_POWER):
        message = f"The power supply holds this card down{_clocks(card)}."
        fix = "Check the card's power cables, and that the supply has enough watts for all cards."
    else:
        default = f"{card.power_limit_default_watts:g}"
        message = (
            f"This card's power limit of {card.power_limit_watts:g} W, for {default} W as it was made, holds it "
            f"down{_clocks(card)}."
        )
        fix = f"sudo nvidia-smi -i {_number(card)} -pl {default}, where cooling and supply have room for it"
        if card.segment == "laptop":  # whose own rules set the limit, by battery and heat
            fix = "Plug in the laptop's own power supply and choose its performance mode."
    return make_finding("gpu-throttled-by-power", subject_of(card), message, fix)


def _throttled_by_protection(card: Accelerator) -> Finding:
    message = (
        f"This card's own protection slows it down{_degrees(card)}{_clocks(card)}: it draws too much power, gets too "
        "little or is too hot, and the driver does not say which."
    )
    fix = (
        f"nvidia-smi -i {_number(card)} -q -d PERFORMANCE,TEMPERATURE,POWER tells more; check the card's power cables, "
        "and that the supply has enough watts for all cards."
    )
    return make_finding("gpu-throttled-by-power", subject_of(card), message, fix)


def _degrees(card: Accelerator) -> str:
    return f" at {card.temperature_celsius:g} °C" if card.temperature_celsius is not None else ""


def _clocks(card: Accelerator) -> str:
    clock, most = card.graphics_clock_hz, card.graphics_clock_maximum_hz
    return f" to {clock / 1e6:.0f} of {most / 1e6:.0f} MHz" if clock and most else ""


def _lower_limit(card: Accelerator) -> str:
    return f"{0.85 * card.power_limit_watts:.0f}" if card.power_limit_watts else "WATTS"


def find_narrow_link(facts: Facts) -> Iterator[Finding]:
    """Fewer lanes than both the card and its slot have: they do not come back under load, but for AMD's cards. Those
    save power by their link's width too (levels of the driver's pp_dpm_pcie: `2.5GT/s, x1`, `16.0GT/s, x16`)."""
    for card in _whole_cards(facts):
        lanes, most = card.pcie_lanes, min(card.pcie_lanes_maximum or 0, card.pcie_lanes_slot or 1 << 10)
        if not lanes or card.segment == "integrated" or not 0 < lanes < most:
            continue
        if card.vendor == "AMD" and not _is_busy(card):
            continue
        message = (
            f"This card runs on {lanes} of {most} PCI Express lanes: batches reach it {most / lanes:.0f} "
            "times slower than they could."
        )
        fix = (
            "Switch the machine off and reseat the card; if it stays, try another slot, and look for a "
            "slot shared with an SSD in the board's manual."
        )
        yield make_finding("narrow-pcie-link", subject_of(card), message, fix)


def find_slow_link(facts: Facts) -> Iterator[Finding]:
    for card in _whole_cards(facts):
        now, most = card.pcie_generation, card.pcie_generation_maximum
        if not now or not most or now >= most or not _is_busy(card):
            continue
        message = (
            f"At {card.utilization_percent:g} % load this card's PCI Express link runs at generation {now} of {most}: "
            f"batches reach it about {2 ** (most - now)} times slower than they could."
        )
        fix = (
            f"sudo lspci -vv -s {card.pci_address} | grep -e LnkSta -e LnkCap; set the slot to Gen{most} "
            "or Auto in the firmware, and try without a riser cable."
        )
        yield make_finding("slow-pcie-link", subject_of(card), message, fix)


def find_persistence_off(facts: Facts) -> Iterator[Finding]:
    """A display server or any other program keeps the driver loaded all the same."""
    for card in facts.training_cards:
        if (
            card.vendor == "NVIDIA"
            and card.persistence_mode is False
            and card.processes == ()
            and card.segment != "laptop"
        ):
            message = (
                "Persistence mode is off and nothing else holds the driver: each program's start waits "
                "some seconds for the card."
            )
            yield make_finding("persistence-off", subject_of(card), message, "sudo nvidia-smi -pm 1")
