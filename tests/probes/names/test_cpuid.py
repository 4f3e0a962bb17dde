"""CPUID registers, as Windows gives them, are decoded as the manuals say."""

import pytest

from probes.names.cpuid import decode_signature, parse_cpuid

# A laptop with an i7-1185G7.
TIGER_LAKE = """0, 0, 20, 1970169159, 1818588270, 1231384169
2147483648, 0, 2147483656, 0, 0, 0
1, 0, 526017, 68159488, 2147154943, 3219913727
7, 0, 2, 4089423851, 415268830, 4228908816
7, 1, 0, 0, 0, 262144
13, 1, 15, 2440, 14592, 0
2147483649, 0, 0, 0, 289, 739248128
2147483650, 0, 1752445233, 1852131104, 1953384736, 1378380901
2147483651, 0, 1866670121, 1411933554, 1763715405, 825306423
2147483652, 0, 927413560, 857751584, 1194340398, 31304
"""


def test_registers_give_vendor_name_and_numbers() -> None:
    found = parse_cpuid(TIGER_LAKE)
    assert (found.vendor_id, found.family, found.model, found.stepping) == ("GenuineIntel", 6, 0x8C, 1)
    assert found.name == "11th Gen Intel(R) Core(TM) i7-1185G7 @ 3.00GHz"


def test_registers_give_the_flags_in_linux_spelling() -> None:
    flags = parse_cpuid(TIGER_LAKE).flags
    assert {"avx2", "avx512f", "avx512_vp2intersect", "gfni", "sha_ni", "lm", "abm"} <= flags
    assert flags.isdisjoint({"amx_tile", "avx_vnni", "hypervisor", "sse4a"})


@pytest.mark.parametrize(
    ("signature", "numbers"),
    [
        (0x806C1, (6, 0x8C, 1)),  # Intel: the extended model counts in family 6
        (0x00A20F12, (25, 0x21, 2)),  # AMD: family 15 + 10
        (0x00B00F21, (26, 2, 1)),
        (0x00000543, (5, 4, 3)),  # neither is extended
    ],
)
def test_extended_family_and_model_are_added_as_the_manuals_say(signature: int, numbers: tuple[int, int, int]) -> None:
    assert decode_signature({(1, 0): (signature, 0, 0, 0)}) == numbers


def test_lines_that_are_no_registers_are_passed_over() -> None:
    assert parse_cpuid("1, 0, 526017\n1, 0, x, 0, 0, 0\n1, 0, -5, 0, 0, 0\n\n") == parse_cpuid("")
