"""One table of Arm's numbers gives a core's design, its size and the name that lscpu has for it."""

import pytest

from probes.names.core_designs import find_design, name_part
from probes.names.microarchitecture import SIZES
from probes.names.tables import read_table


def test_every_part_gives_a_design_a_size_and_a_name() -> None:
    for implementer, row in read_table("microarchitectures")["arm"].items():
        for part in row["parts"]:
            design, (vendor, name) = find_design(implementer, part), name_part(implementer, part)
            assert design is not None
            assert design[1] in SIZES
            assert vendor == row["vendor"]
            assert name


@pytest.mark.parametrize(
    ("implementer", "part", "design", "named"),
    [
        ("0x41", "0xd0c", ("Neoverse N1", "big"), ("ARM", "Neoverse-N1")),
        ("0x41", "0xb36", ("ARM1136", "big"), ("ARM", "ARM1136")),
        ("0x41", "0xd8c", ("C1-Ultra", "prime"), ("ARM", "C1-Ultra")),
        ("0x43", "0xb6", ("OcteonTX2", "big"), ("Cavium", "OcteonTX2-95XXO")),
        ("0x46", "0x001", ("A64FX", "big"), ("FUJITSU", "A64FX")),
        ("0x51", "0x800", ("Kryo 2xx Gold", "big"), ("Qualcomm", "Falkor-V1/Kryo")),
        ("0x61", "0x044", ("Apple M3", "little"), ("Apple", "Sawtooth-M3-Pro")),
        ("0xc0", "0xac5", ("Ampere-1B", "big"), ("Ampere", "Ampere-1B")),
        ("0x69", "0x411", None, ("Intel", None)),
        ("0x99", "0xd0c", None, (None, None)),
        ("0x41", None, None, ("ARM", None)),
        ("garbage", "0xd0c", None, (None, None)),
    ],
)
def test_two_numbers_give_what_is_known_of_a_core(
    implementer: str, part: str | None, design: tuple[str, str] | None, named: tuple[str | None, str | None]
) -> None:
    assert (find_design(implementer, part), name_part(implementer, part)) == (design, named)
