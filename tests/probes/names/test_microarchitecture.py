"""A processor's own numbers give its vendor's code name; flags check them, and rubbish gives none."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.names.cpu_flags import instruction_classes, marker_flags
from probes.names.cpu_identity import CpuIdentity, parse_cpuinfo, parse_sysctl
from probes.names.cpu_x86 import x86_rows
from probes.names.cpuid import parse_cpuid
from probes.names.identification import FAMILY_AND_MODEL, FLAGS, IMPLEMENTER_AND_PART, VERSION_REGISTER, Identification
from probes.names.microarchitecture import expected_instruction_sets, identify
from probes.names.tables import read_table

# archspec's wheel brings the captures that its own detection is tested with; the file's name ends in the answer.
CAPTURES = Path(find_spec("archspec").origin).parent / "json" / "tests" / "targets"  # type: ignore[union-attr, arg-type]

# archspec names the nearest set of instructions, which for these is not the vendor's code name of the part.
CODE_NAMES = {
    "windows-cpuid-icelake": "Tiger Lake",  # i7-1185G7, model 0x8C
    "linux-ubuntu24.04-alderlake": "Arrow Lake",  # Core Ultra 9 285, model 0xC6, read by an older kernel
    "linux-ubuntu26.04-arrowlake_s": "Arrow Lake",  # the same machine, read by a newer one
    "linux-rhel7-x86_64_v3": "Haswell",  # made from the Haswell capture by taking flags away
    "linux-centos7-power8le": "POWER8",  # le is its byte order
}


def same(left: str, right: str) -> bool:
    """Equal but for case, blanks, hyphens and underscores."""
    return re.sub(r"[^a-z0-9]", "", left.lower()) == re.sub(r"[^a-z0-9]", "", right.lower())


def identify_capture(path: Path) -> Identification:
    parse = {"windows": parse_cpuid, "darwin": parse_sysctl}.get(path.name.split("-")[0], parse_cpuinfo)
    return identify(parse(path.read_text()))


@pytest.mark.parametrize("path", sorted(CAPTURES.iterdir()), ids=lambda path: path.name)
def test_a_captured_machine_has_the_name_that_its_file_ends_in(path: Path) -> None:
    found = identify_capture(path)
    expected = CODE_NAMES.get(path.name, path.name.split("-")[-1])
    assert found.name is not None
    assert same(found.name.removeprefix("Apple "), expected)


@pytest.mark.parametrize(
    "name", ["windows-cpuid-icelake", "linux-ubuntu24.04-alderlake", "linux-ubuntu26.04-arrowlake_s"]
)
def test_archspecs_own_word_stands_beside_a_code_name_that_it_does_not_have(name: str) -> None:
    if not (CAPTURES / name).exists():
        pytest.skip("this archspec does not bring the capture")
    assert identify_capture(CAPTURES / name).archspec == name.split("-")[-1]


X86 = [
    ("GenuineIntel", 6, 0x1A, 5, "Nehalem"),
    ("GenuineIntel", 6, 0x2F, 2, "Westmere"),
    ("GenuineIntel", 6, 0x2D, 7, "Sandy Bridge"),
    ("GenuineIntel", 6, 0x56, 3, "Broadwell"),
    ("GenuineIntel", 6, 0x5E, 3, "Skylake"),
    ("GenuineIntel", 6, 0x55, 4, "Skylake AVX-512"),
    ("GenuineIntel", 6, 0x55, 7, "Cascade Lake"),
    ("GenuineIntel", 6, 0x55, 11, "Cooper Lake"),
    ("GenuineIntel", 6, 0x9E, 9, "Kaby Lake"),
    ("GenuineIntel", 6, 0x9E, 12, "Coffee Lake"),
    ("GenuineIntel", 6, 0xA5, 5, "Comet Lake"),
    ("GenuineIntel", 6, 0x6A, 6, "Ice Lake"),
    ("GenuineIntel", 6, 0x7E, 5, "Ice Lake"),
    ("GenuineIntel", 6, 0x8C, 1, "Tiger Lake"),
    ("GenuineIntel", 6, 0xA7, 1, "Rocket Lake"),
    ("GenuineIntel", 6, 0x97, 2, "Alder Lake"),
    ("GenuineIntel", 6, 0x9A, 3, "Alder Lake"),
    ("GenuineIntel", 6, 0xB7, 1, "Raptor Lake"),
    ("GenuineIntel", 6, 0xAA, 4, "Meteor Lake"),
    ("GenuineIntel", 6, 0xBD, 1, "Lunar Lake"),
    ("GenuineIntel", 6, 0xC6, 2, "Arrow Lake"),
    ("GenuineIntel", 6, 0xCC, 2, "Panther Lake"),
    ("GenuineIntel", 6, 0x8F, 8, "Sapphire Rapids"),
    ("GenuineIntel", 6, 0xCF, 2, "Emerald Rapids"),
    ("GenuineIntel", 6, 0xAD, 1, "Granite Rapids"),
    ("GenuineIntel", 6, 0xAF, 3, "Sierra Forest"),
    ("GenuineIntel", 6, 0xDD, 0, "Clearwater Forest"),
    ("GenuineIntel", 19, 1, 0, "Diamond Rapids"),
    ("GenuineIntel", 6, 0xBE, 0, "Gracemont"),
    ("GenuineIntel", 6, 0x57, 1, "Knights Landing"),
    ("AuthenticAMD", 15, 0x21, 0, "K8"),
    ("AuthenticAMD", 16, 9, 1, "K10"),
    ("AuthenticAMD", 20, 2, 0, "Bobcat"),
    ("AuthenticAMD", 21, 2, 0, "Piledriver"),
    ("AuthenticAMD", 21, 0x65, 1, "Excavator"),
    ("AuthenticAMD", 22, 0, 1, "Jaguar"),
    ("AuthenticAMD", 23, 1, 2, "Zen"),
    ("AuthenticAMD", 23, 0x11, 0, "Zen"),
    ("AuthenticAMD", 23, 8, 2, "Zen+"),
    ("AuthenticAMD", 23, 0x18, 1, "Zen+"),
    ("AuthenticAMD", 23, 0x31, 0, "Zen 2"),
    ("AuthenticAMD", 23, 0xA0, 0, "Zen 2"),
    ("AuthenticAMD", 25, 1, 1, "Zen 3"),
    ("AuthenticAMD", 25, 0x50, 0, "Zen 3"),
    ("AuthenticAMD", 25, 0x44, 1, "Zen 3+"),
    ("AuthenticAMD", 25, 0x11, 1, "Zen 4"),
    ("AuthenticAMD", 25, 0x61, 2, "Zen 4"),
    ("AuthenticAMD", 25, 0xA0, 2, "Zen 4"),
    ("AuthenticAMD", 26, 2, 1, "Zen 5"),
    ("AuthenticAMD", 26, 0x44, 0, "Zen 5"),
    ("AuthenticAMD", 26, 0x51, 0, "Zen 6"),
    ("HygonGenuine", 24, 0, 1, "Dhyana"),
]


@pytest.mark.parametrize(("vendor", "family", "model", "stepping", "name"), X86)
def test_family_model_and_stepping_give_the_code_name(
    vendor: str, family: int, model: int, stepping: int, name: str
) -> None:
    found = identify(CpuIdentity(vendor_id=vendor, family=family, model=model, stepping=stepping))
    assert found == Identification(name, FAMILY_AND_MODEL)


@pytest.mark.parametrize(
    ("stepping", "brand", "name"),
    [
        (9, "Intel(R) Core(TM) i7-7500U CPU @ 2.70GHz", "Kaby Lake"),
        (10, "Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz", "Kaby Lake"),
        (10, "Intel(R) Core(TM) i5-8259U CPU @ 2.30GHz", "Coffee Lake"),
        (11, "Intel(R) Core(TM) i7-8565U CPU @ 1.80GHz", "Whiskey Lake"),
        (12, "Intel(R) Core(TM) i5-8365U CPU @ 1.60GHz", "Whiskey Lake"),
        (12, "Intel(R) Core(TM) i5-10210U CPU @ 1.60GHz", "Comet Lake"),
        (9, "Intel(R) Core(TM) i5-8200Y CPU @ 1.30GHz", "Amber Lake"),
        (12, "Intel(R) Xeon(R) CPU @ 2.20GHz", None),
    ],
)
def test_one_model_number_with_five_code_names_is_told_apart_by_stepping_and_processor_number(
    stepping: int, brand: str, name: str | None
) -> None:
    identity = CpuIdentity(name=brand, vendor_id="GenuineIntel", family=6, model=0x8E, stepping=stepping)
    assert identify(identity).name == name


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        (0x41, 0xD0C, "Neoverse N1"),
        (0x41, 0xD40, "Neoverse V1"),
        (0x41, 0xD84, "Neoverse V3"),
        (0x41, 0xD87, "Cortex-A725"),
        (0x43, 0x0AF, "ThunderX2"),
        (0x46, 0x001, "A64FX"),
        (0x48, 0xD01, "TaiShan V110"),
        (0x4E, 0x004, "Carmel"),
        (0x51, 0x001, "Oryon"),
        (0x61, 0x033, "Apple M2"),
        (0x6D, 0xD49, "Neoverse N2"),
        (0xC0, 0xAC4, "Ampere-1A"),
    ],
)
def test_implementer_and_part_give_the_core(implementer: int, part: int, name: str) -> None:
    found = identify(CpuIdentity(cores=((implementer, part),)))
    assert (found.name, found.believed, found.cores) == (name, IMPLEMENTER_AND_PART, (name,))


def test_a_chip_with_several_kinds_of_core_names_them_from_big_to_little() -> None:
    found = identify(CpuIdentity(cores=((0x41, 0xD05), (0x41, 0xD0B), (0x41, 0xD44))))
    assert found.name == "Cortex-X1 + Cortex-A76 + Cortex-A55"


def test_both_kinds_of_core_of_an_apple_chip_are_one_name() -> None:
    assert identify(CpuIdentity(cores=((0x61, 0x022), (0x61, 0x023)))).name == "Apple M1"


def test_a_chip_with_one_unknown_kind_of_core_has_no_name() -> None:
    found = identify(CpuIdentity(cores=((0x41, 0xD05), (0x41, 0xFFF))))
    assert found.name is None
    assert "0xfff" in (found.reason or "")
    assert "Cortex-A55" in (found.reason or "")


def flags_of(vendor: str, name: str) -> frozenset[str]:
    return instruction_classes(vendor)[name].has


def test_flags_that_a_part_cannot_have_are_believed_over_its_numbers() -> None:
    flags = flags_of("GenuineIntel", "sapphirerapids") | {"hypervisor"}
    found = identify(CpuIdentity(vendor_id="GenuineIntel", family=6, model=0xA7, stepping=1, flags=flags))
    assert (found.name, found.believed, found.archspec) == ("Sapphire Rapids", FLAGS, "sapphirerapids")
    assert "Rocket Lake" in (found.reason or "")
    assert "Emerald Rapids" in (found.reason or "")
    assert "Granite Rapids or Diamond Rapids would differ in nothing that most kernels show" in (found.reason or "")


def test_flags_that_fit_several_parts_name_none_of_them() -> None:
    flags = flags_of("GenuineIntel", "arrowlake_s")
    found = identify(CpuIdentity(vendor_id="GenuineIntel", family=6, model=0x5E, stepping=3, flags=flags))
    assert found.name is None
    assert "Arrow Lake or Lunar Lake" in (found.reason or "")


def test_flags_of_another_vendor_fit_no_processor() -> None:
    flags = flags_of("AuthenticAMD", "zen3") | {"amx_tile"}
    found = identify(CpuIdentity(vendor_id="AuthenticAMD", family=25, model=1, stepping=1, flags=flags))
    assert found.name is None
    assert "fit no processor" in (found.reason or "")


def test_flags_that_a_hypervisor_hides_are_listed_and_the_numbers_stand() -> None:
    amx = {"amx_tile", "amx_int8", "amx_bf16"}
    flags = flags_of("GenuineIntel", "sapphirerapids") - amx | {"hypervisor"}
    found = identify(CpuIdentity(vendor_id="GenuineIntel", family=6, model=0x8F, stepping=8, flags=flags))
    assert (found.name, found.believed) == ("Sapphire Rapids", FAMILY_AND_MODEL)
    assert set(found.hidden) == amx
    assert "hypervisor hides" in (found.reason or "")
    assert found.archspec == "icelake"


def test_flags_that_most_kernels_do_not_show_are_not_said_to_be_hidden() -> None:
    shown = flags_of("GenuineIntel", "graniterapids") - {"amx_fp16", "amx_complex"}
    found = identify(
        CpuIdentity(vendor_id="GenuineIntel", family=6, model=0xAD, stepping=1, flags=shown | {"hypervisor"})
    )
    assert (found.name, found.hidden, found.reason) == ("Granite Rapids", (), None)


def test_flags_missing_without_a_hypervisor_say_nothing() -> None:
    pentium = CpuIdentity(
        vendor_id="GenuineIntel", family=6, model=0x5E, stepping=3, flags=frozenset({"ssse3", "sse4_2"})
    )
    found = identify(pentium)
    assert (found.name, found.hidden, found.reason) == ("Skylake", (), None)


def test_avx512_of_the_first_alder_lakes_is_no_contradiction() -> None:
    flags = flags_of("GenuineIntel", "alderlake") | {"avx512f", "avx512_fp16"}
    assert (
        identify(CpuIdentity(vendor_id="GenuineIntel", family=6, model=0x97, stepping=2, flags=flags)).name
        == "Alder Lake"
    )


@pytest.mark.parametrize(
    "brand", ["QEMU Virtual CPU version 2.5+", "QEMU TCG CPU version 2.5+", "Common KVM processor"]
)
def test_a_processor_that_only_a_hypervisor_has_has_no_name(brand: str) -> None:
    found = identify(CpuIdentity(name=brand, vendor_id="AuthenticAMD", family=15, model=107, stepping=1))
    assert found.name is None
    assert "hypervisor" in (found.reason or "")


def test_the_processor_that_rosetta_presents_has_no_name() -> None:
    text = "machdep.cpu.vendor: GenuineIntel\nmachdep.cpu.model: 44\nmachdep.cpu.brand_string: VirtualApple @ 2.50GHz\n"
    found = identify(parse_sysctl(text))
    assert found.name is None
    assert "Rosetta" in (found.reason or "")


def test_without_family_and_model_flags_name_a_part_only_where_they_are_exactly_its_own() -> None:
    haswell = CpuIdentity(vendor_id="GenuineIntel", flags=flags_of("GenuineIntel", "haswell"))
    assert (identify(haswell).name, identify(haswell).believed) == ("Haswell", FLAGS)
    icelake = CpuIdentity(vendor_id="GenuineIntel", flags=flags_of("GenuineIntel", "icelake_client"))
    assert identify(icelake).name is None  # Rocket Lake has the same


def test_a_model_that_came_after_the_table_has_no_name_but_a_lower_bound() -> None:
    flags = flags_of("AuthenticAMD", "zen5")
    found = identify(CpuIdentity(vendor_id="AuthenticAMD", family=30, model=1, stepping=0, flags=flags))
    assert found.name is None
    assert "at least those of Zen 5" in (found.reason or "")


@pytest.mark.parametrize(
    ("line", "pvr", "name", "reasoned"),
    [
        ("POWER9, altivec supported", 0x4E, "POWER9", False),
        ("POWER8 (architected), altivec supported", 0x4E, "POWER9", True),
        ("POWER7 (architected), altivec supported", 0x4A, "POWER7+", False),
        ("POWER12, altivec supported", 0x99, "POWER12", False),
    ],
)
def test_powers_version_register_is_believed_over_what_it_runs_as(
    line: str, pvr: int, name: str, reasoned: bool
) -> None:
    found = identify(CpuIdentity(processor=line, pvr_version=pvr))
    assert (found.name, found.reason is not None) == (name, reasoned)
    assert pvr == 0x99 or found.believed == VERSION_REGISTER


@pytest.mark.parametrize(
    ("uarch", "name"),
    [("sifive,u74-mc", "U74-MC"), ("sifive,bullet0", "U74-MC"), ("thead,c910", "C910"), ("sifive,p550", "P550")],
)
def test_riscv_cores_go_by_their_device_tree_name(uarch: str, name: str) -> None:
    assert identify(CpuIdentity(uarch=uarch)).name == name


@pytest.mark.parametrize(
    ("brand", "family", "name"),
    [
        ("Apple M4 Max", None, "Apple M4"),
        ("Apple A18 Pro", None, "Apple A18 Pro"),
        ("Apple processor", 0xDA33D83D, "Apple M2"),
        ("Apple processor", None, None),
    ],
)
def test_apple_chips_go_by_name_else_by_family(brand: str, family: int | None, name: str | None) -> None:
    assert identify(CpuIdentity(name=brand, apple_family=family)).name == name


def test_an_ibm_z_goes_by_its_machine_type() -> None:
    text = "vendor_id       : IBM/S390\nprocessor 0: version = FF,  identification = 0133E8,  machine = 3931\n"
    assert identify(parse_cpuinfo(text)).name == "z16"


def test_nothing_known_gives_a_reason() -> None:
    found = identify(CpuIdentity())
    assert found.name is None
    assert found.reason


def test_every_row_names_a_source_that_is_listed_and_a_class_that_exists() -> None:
    table = read_table("microarchitectures")
    sourced = [*table["x86"], *table["invented"], *table["arm"].values(), *table["apple"].values()]
    sourced += [*table["hybrid"].values(), *table["dense"].values()]
    sourced += [table[name] for name in ("markers", "cut", "power", "riscv", "s390", "cpuid")]
    assert all(group["source"] in table["sources"] for group in sourced)
    assert all(row.class_name in (None, *instruction_classes(row.vendor)) for row in x86_rows())


@given(st.text(max_size=400))
def test_any_text_gives_an_answer_or_a_reason(text: str) -> None:
    for parse in (parse_cpuinfo, parse_sysctl, parse_cpuid):
        found = identify(parse(text))
        assert (found.name is None) == (found.believed is None)
        assert found.name is not None or found.reason


NUMBERS = st.none() | st.integers(-(2**70), 2**70)


@given(
    vendor=st.none() | st.sampled_from(["GenuineIntel", "AuthenticAMD", "HygonGenuine", "", "IBM/S390"]),
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    flags=st.frozensets(st.sampled_from(sorted(marker_flags() | {"hypervisor", "lm"}))),
    cores=st.lists(st.tuples(st.integers(-5, 2**40), st.integers(-5, 2**40)), max_size=3),
)
def test_any_numbers_and_flags_give_an_answer_or_a_reason(
    vendor: str | None,
    numbers: tuple[int | None, int | None, int | None, int | None],
    flags: frozenset[str],
    cores: list[tuple[int, int]],
) -> None:
    family, model, stepping, other = numbers
    identity = CpuIdentity(
        None, vendor, family, model, stepping, flags, tuple(cores), pvr_version=other, apple_family=other
    )
    found = identify(identity)
    assert found.name is not None or found.reason


@pytest.mark.parametrize(
    ("microarchitecture", "some"),
    [
        ("Zen 4", {"avx512f", "avx512_vnni", "avx512_bf16"}),
        ("Sapphire Rapids", {"amx_tile", "amx_bf16", "avx512_fp16"}),
        ("Haswell", {"avx2", "fma"}),
        ("Neoverse V2", {"sve2", "i8mm", "bf16"}),
    ],
)
def test_what_a_microarchitecture_has_is_known(microarchitecture: str, some: set[str]) -> None:
    expected = expected_instruction_sets(microarchitecture)
    assert expected >= some


def test_nothing_is_expected_of_what_is_not_known() -> None:
    assert expected_instruction_sets("Zen 99") == frozenset()
    assert "avx512f" not in expected_instruction_sets("Alder Lake")


def test_a_processor_that_has_a_name_and_no_table_is_told_by_it() -> None:
    assert "Loongson-3A6000-HV" in (identify(CpuIdentity(name="Loongson-3A6000-HV")).reason or "")
    assert "names no vendor" in (identify(CpuIdentity()).reason or "")
