"""What Linux and macOS say of a processor, read without guessing."""

from probes.names.cpu_identity import MAX_CORE_KINDS, parse_cpuinfo, parse_number, parse_sysctl

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 79
model name\t: Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz
stepping\t: 1
flags\t\t: fpu sse4_2 avx avx2
bugs\t\t: cpu_meltdown

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: another
"""


def test_an_x86_processor_is_read_from_its_first_block() -> None:
    found = parse_cpuinfo(X86)
    assert (found.vendor_id, found.family, found.model, found.stepping) == ("GenuineIntel", 6, 79, 1)
    assert found.name == "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz"
    assert found.flags == {"fpu", "sse4_2", "avx", "avx2"}


def test_a_name_that_is_the_word_for_none_is_none() -> None:
    found = parse_cpuinfo("vendor_id : unknown\nmodel name : unknown\nmodel : 79\nstepping : unknown\n")
    assert (found.vendor_id, found.name, found.model, found.stepping) == (None, None, 79, None)


def test_each_kind_of_arm_core_is_kept_once() -> None:
    core = "processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : {part}\n\n"
    text = "".join(core.format(part=part) for part in ("0xd05", "0xd05", "0xd0b", "0xd0b"))
    found = parse_cpuinfo(text)
    assert found.cores == ((0x41, 0xD05), (0x41, 0xD0B))
    assert found.flags == {"fp", "asimd"}


def test_a_million_kinds_of_core_are_not_kept() -> None:
    text = "CPU implementer : 0x41\n" + "".join(f"CPU part : {part:#x}\n" for part in range(10_000))
    assert len(parse_cpuinfo(text).cores) == MAX_CORE_KINDS


def test_powers_line_and_version_register_are_both_read() -> None:
    found = parse_cpuinfo("cpu : POWER9, altivec supported\nrevision : 2.2 (pvr 004e 1202)\nmodel : IBM,8335\n")
    assert (found.processor, found.pvr_version, found.model) == ("POWER9, altivec supported", 0x4E, None)


def test_riscv_ids_are_read_from_hexadecimal() -> None:
    found = parse_cpuinfo("uarch : sifive,u74-mc\nmvendorid : 0x489\nmarchid : 0x8000000000000007\n")
    assert (found.uarch, found.riscv_ids) == ("sifive,u74-mc", (0x489, 0x8000000000000007))


def test_an_intel_mac_without_its_family_has_family_6() -> None:
    found = parse_sysctl(
        "machdep.cpu.vendor: GenuineIntel\nmachdep.cpu.model: 70\nmachdep.cpu.brand_string: i7-4980HQ\n"
        "machdep.cpu.features: SSE4.2 AVX1.0 VMM\nmachdep.cpu.leaf7_features: AVX2\nmachdep.cpu.extfeatures: LAHF\n"
    )
    assert (found.family, found.model, found.stepping) == (6, 70, None)
    assert found.flags == {"sse4_2", "avx", "hypervisor", "avx2", "lahf_lm"}


def test_macos_writes_its_family_as_a_signed_number_and_features_one_a_line() -> None:
    found = parse_sysctl(
        "machdep.cpu.brand_string: Apple M2\nhw.cpufamily: -634136515\n"
        "hw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_SME: 0\nhw.optional.armv8_2_sha3: 1\n"
    )
    assert (found.name, found.apple_family, found.family) == ("Apple M2", 0xDA33D83D, None)
    assert found.flags == {"bf16", "sha3"}


def test_numbers_are_decimal_or_hexadecimal_and_nothing_else() -> None:
    assert [parse_number(text) for text in ("12", "0x1f", "-3", "unknown", "", "1e9", "٣", "9" * 40, None)] == [
        12,
        31,
        -3,
        *[None] * 6,
    ]
