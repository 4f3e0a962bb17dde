"""NVML's bits for why a card's clocks are held down."""

import pynvml
import pytest

from probes.gpu.throttle import parse_throttle_mask

PREFIX = "nvmlClocksThrottleReason"
BITS = {name: getattr(pynvml, name) for name in dir(pynvml) if name.startswith(PREFIX)}
ONE_BIT = {name: bit for name, bit in BITS.items() if bit.bit_count() == 1}


@pytest.mark.parametrize("name", sorted(ONE_BIT))
def test_every_reason_that_the_library_knows_has_a_code_and_words_but_for_idleness(name: str) -> None:
    words, codes = parse_throttle_mask(ONE_BIT[name])
    assert len(codes) == 1
    assert bool(words) == (codes != ("gpu_idle",))


def test_codes_are_the_librarys_names() -> None:
    _, codes = parse_throttle_mask(2**64 - 1)
    names = {name.removeprefix(PREFIX).lower() for name in ONE_BIT}
    assert {code.replace("_", "") for code in codes} <= names


def test_a_bit_that_nobody_has_named_is_left_out() -> None:
    assert parse_throttle_mask(1 << 40) == ((), ())


def test_several_reasons_stand_side_by_side() -> None:
    words, codes = parse_throttle_mask(0x44)
    assert codes == ("sw_power_cap", "hw_thermal_slowdown")
    assert words[0] == "held down by its power limit"
