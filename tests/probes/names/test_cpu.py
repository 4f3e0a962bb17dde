"""A processor's name gives its generation, tier and suffix, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.names.cpu import MAX_NAME_LENGTH, compiled, name_by_host, ordinal, parse_cpu_name
from probes.names.tables import read_table

Row = tuple[str, str | None, str | None, str | None, str | None]

INTEL_CORE: list[Row] = [
    ("12th Gen Intel(R) Core(TM) i9-12900KF", "12th Gen Core", "Core i9", "KF", "consumer"),
    ("Intel(R) Core(TM) i7 CPU         920  @ 2.67GHz", "1st Gen Core", "Core i7", None, "consumer"),
    ("Intel(R) Core(TM) i7 CPU         970  @ 3.20GHz", "1st Gen Core", "Core i7", None, "consumer"),
    ("Intel(R) Core(TM) i7 CPU       X 980  @ 3.33GHz", "1st Gen Core", "Core i7", "X", "consumer"),
    ("Intel(R) Core(TM) i7 CPU       Q 720  @ 1.60GHz", "1st Gen Core", "Core i7", "QM", "laptop"),
    ("Intel(R) Core(TM) i7 CPU       X 920  @ 2.00GHz", "1st Gen Core", "Core i7", "XM", "laptop"),
    ("Intel(R) Core(TM) i5 CPU       M 520  @ 2.40GHz", "1st Gen Core", "Core i5", "M", "laptop"),
    ("Intel Core i7-640M", "1st Gen Core", "Core i7", "M", "laptop"),
    ("Intel(R) Core(TM) i5-2500K CPU @ 3.30GHz", "2nd Gen Core", "Core i5", "K", "consumer"),
    ("Intel(R) Core(TM) i7-2720QM CPU @ 2.20GHz", "2nd Gen Core", "Core i7", "QM", "laptop"),
    ("Intel(R) Core(TM) i5-3230M CPU @ 2.60GHz", "3rd Gen Core", "Core i5", "M", "laptop"),
    ("Intel(R) Core(TM) i7-4980HQ CPU @ 2.80GHz", "4th Gen Core", "Core i7", "HQ", "laptop"),
    ("Intel(R) Core(TM) i7-4790S CPU @ 3.20GHz", "4th Gen Core", "Core i7", "S", "consumer"),
    ("Intel(R) Core(TM) i7-5775C CPU @ 3.30GHz", "5th Gen Core", "Core i7", "C", "consumer"),
    ("Intel(R) Core(TM) M-5Y10c CPU @ 0.80GHz", "5th Gen Core", "Core M", "Y", "laptop"),
    ("Intel(R) Core(TM) m3-6Y30 CPU @ 0.90GHz", "6th Gen Core", "Core m3", "Y", "laptop"),
    ("Intel(R) Core(TM) i7-6820HK CPU @ 2.70GHz", "6th Gen Core", "Core i7", "HK", "laptop"),
    ("Intel(R) Core(TM) m3-7Y30 CPU @ 1.00GHz", "7th Gen Core", "Core m3", "Y", "laptop"),
    ("Intel(R) Core(TM) i5-7Y54 CPU @ 1.20GHz", "7th Gen Core", "Core i5", "Y", "laptop"),
    ("Intel(R) Core(TM) i9-7900X CPU @ 3.30GHz", "7th Gen Core", "Core i9", "X", "consumer"),
    ("Intel(R) Core(TM) i7-8565U CPU @ 1.80GHz", "8th Gen Core", "Core i7", "U", "laptop"),
    ("Intel(R) Core(TM) i7-8086K CPU @ 4.00GHz", "8th Gen Core", "Core i7", "K", "consumer"),
    ("Intel(R) Core(TM) i7-8709G CPU @ 3.10GHz", "8th Gen Core", "Core i7", "G", "laptop"),
    ("Intel(R) Core(TM) i9-9980XE CPU @ 3.00GHz", "9th Gen Core", "Core i9", "XE", "consumer"),
    ("Intel(R) Core(TM) i5-9400F CPU @ 2.90GHz", "9th Gen Core", "Core i5", "F", "consumer"),
    ("Intel(R) Core(TM) i5-10210U CPU @ 1.60GHz", "10th Gen Core", "Core i5", "U", "laptop"),
    ("Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz", "10th Gen Core", "Core i7", "G7", "laptop"),
    ("Intel(R) Core(TM) i7-1068NG7 CPU @ 2.30GHz", "10th Gen Core", "Core i7", "NG7", "laptop"),
    ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "11th Gen Core", "Core i7", "G7", "laptop"),
    ("11th Gen Intel(R) Core(TM) i7-1185GRE @ 2.80GHz", "11th Gen Core", "Core i7", "GRE", "embedded"),
    ("11th Gen Intel(R) Core(TM) i7-11370H @ 3.30GHz", "11th Gen Core", "Core i7", "H", "laptop"),
    ("12th Gen Intel(R) Core(TM) i7-1265U", "12th Gen Core", "Core i7", "U", "laptop"),
    ("12th Gen Intel(R) Core(TM) i9-12950HX", "12th Gen Core", "Core i9", "HX", "laptop"),
    ("13th Gen Intel(R) Core(TM) i5-1340P", "13th Gen Core", "Core i5", "P", "laptop"),
    ("13th Gen Intel(R) Core(TM) i7-13700TE", "13th Gen Core", "Core i7", "TE", "embedded"),
    ("Intel(R) Core(TM) i9-14900KS", "14th Gen Core", "Core i9", "KS", "consumer"),
    ("Intel(R) Core(TM) i5-L16G7 CPU @ 1.40GHz", "Core with Hybrid Technology", "Core i5", "G7", "laptop"),
    ("i9-13900K", "13th Gen Core", "Core i9", "K", "consumer"),
    ("Intel Core i7 12700K", "12th Gen Core", "Core i7", "K", "consumer"),
    ("Core i7 4790K", "4th Gen Core", "Core i7", "K", "consumer"),
    ("Intel(R) Core(TM) i5 CPU         750  @ 2.67GHz", "1st Gen Core", "Core i5", None, "consumer"),
    ("Intel® Core™ i9-10900X X-series Processor", "10th Gen Core", "Core i9", "X", "consumer"),
    ("Intel(R) Core(TM) i7-6498DU CPU @ 2.50GHz", "6th Gen Core", "Core i7", "DU", "laptop"),
    ("Intel(R) Core(TM) i5-14401EF", "14th Gen Core", "Core i5", "EF", "embedded"),
    ("Intel(R) Core(TM) i3-N305", "N-series", "Core i3", None, "laptop"),
    ("Intel(R) Core(TM) 3 N355", "N-series", "Core 3", None, "laptop"),
    ("Intel(R) N100", "N-series", "Intel Processor", None, "laptop"),
    ("Intel(R) Core(TM) 5 120U", "Core Series 1", "Core 5", "U", "laptop"),
    ("Intel(R) Core(TM) 7 240H", "Core Series 2", "Core 7", "H", "laptop"),
    ("Intel(R) Core(TM) Ultra 7 155H", "Core Ultra Series 1", "Core Ultra 7", "H", "laptop"),
    ("Intel(R) Core(TM) Ultra 7 258V", "Core Ultra Series 2", "Core Ultra 7", "V", "laptop"),
    ("Intel(R) Core(TM) Ultra 9 285K", "Core Ultra Series 2", "Core Ultra 9", "K", "consumer"),
    ("Intel(R) Core(TM) Ultra 9 285", "Core Ultra Series 2", "Core Ultra 9", None, "consumer"),
    ("Intel(R) Core(TM) Ultra X7 358H", "Core Ultra Series 3", "Core Ultra X7", "H", "laptop"),
    ("Intel(R) Core(TM) Ultra 7 355", "Core Ultra Series 3", "Core Ultra 7", None, "laptop"),
    ("Intel(R) Core(TM)2 Quad CPU    Q6600  @ 2.40GHz", "Core 2", "Core 2 Quad", None, "consumer"),
    ("Intel(R) Pentium(R) Gold G5400 CPU @ 3.70GHz", None, "Pentium Gold", None, "consumer"),
    ("Intel(R) Celeron(R) N4020 CPU @ 1.10GHz", None, "Celeron", None, "consumer"),
    ("Intel(R) Atom(TM) CPU C3758 @ 2.20GHz", None, "Atom", None, "consumer"),
]

INTEL_XEON: list[Row] = [
    ("Intel(R) Xeon(R) CPU E5-2680 0 @ 2.70GHz", "Xeon E5 v1", "Xeon E5", None, "data-center"),
    ("Intel(R) Xeon(R) CPU E31230 @ 3.20GHz", "Xeon E3 v1", "Xeon E3", None, "data-center"),
    ("Intel(R) Xeon(R) CPU E7- 4870  @ 2.40GHz", "Xeon E7 v1", "Xeon E7", None, "data-center"),
    ("Intel(R) Xeon(R) CPU E3-1230 V2 @ 3.30GHz", "Xeon E3 v2", "Xeon E3", None, "data-center"),
    ("Intel(R) Xeon(R) CPU E5-2630L v3 @ 1.80GHz", "Xeon E5 v3", "Xeon E5", "L", "data-center"),
    ("Intel(R) Xeon(R) CPU E5-2687W v4 @ 3.00GHz", "Xeon E5 v4", "Xeon E5", "W", "workstation"),
    ("Intel(R) Xeon(R) CPU E3-1505M v5 @ 2.80GHz", "Xeon E3 v5", "Xeon E3", "M", "laptop"),
    ("Intel(R) Xeon(R) Gold 6132 CPU @ 2.60GHz", "1st Gen Xeon Scalable", "Xeon Gold", None, "data-center"),
    ("Intel(R) Xeon(R) Platinum 8260M CPU @ 2.40GHz", "2nd Gen Xeon Scalable", "Xeon Platinum", "M", "data-center"),
    ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "2nd Gen Xeon Scalable", "Xeon Platinum", "CL", "data-center"),
    ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "3rd Gen Xeon Scalable", "Xeon Platinum", "C", "data-center"),
    ("Intel(R) Xeon(R) Silver 4416+", "4th Gen Xeon Scalable", "Xeon Silver", "+", "data-center"),
    ("INTEL(R) XEON(R) GOLD 6530", "5th Gen Xeon Scalable", "Xeon Gold", None, "data-center"),
    ("INTEL(R) XEON(R) PLATINUM 8592V", "5th Gen Xeon Scalable", "Xeon Platinum", "V", "data-center"),
    ("Intel(R) Xeon(R) Bronze 3408U", "4th Gen Xeon Scalable", "Xeon Bronze", "U", "data-center"),
    ("Intel(R) Xeon(R) CPU Max 9480", "Xeon Max", "Xeon Max", None, "data-center"),
    ("Intel(R) Xeon(R) 6980P", "Xeon 6", "Xeon 6900", "P", "data-center"),
    ("Intel(R) Xeon(R) 6780E", "Xeon 6", "Xeon 6700", "E", "data-center"),
    ("Intel(R) Xeon(R) 6975P-C", "Xeon 6", "Xeon 6900", "P-C", "data-center"),
    ("Intel(R) Xeon(R) W-2145 CPU @ 3.70GHz", "Xeon W-2100", "Xeon W", None, "workstation"),
    ("Intel(R) Xeon(R) W-3275M CPU @ 2.50GHz", "Xeon W-3200", "Xeon W", "M", "workstation"),
    ("Intel(R) Xeon(R) w9-3495X", "Xeon W-3400", "Xeon w9", "X", "workstation"),
    ("Intel(R) Xeon(R) D-2183IT CPU @ 2.20GHz", "Xeon D-2100", "Xeon D", "IT", "data-center"),
    ("Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz", "Xeon E-2200", "Xeon E", "G", "data-center"),
    ("Intel(R) Xeon(R) CPU           X5650  @ 2.67GHz", None, "Xeon", None, "data-center"),
    ("                  Intel(R) Xeon(TM) CPU 2.60GHz", None, "Xeon", None, "data-center"),
]

AMD: list[Row] = [
    ("AMD Ryzen 5 1600 Six-Core Processor", "Ryzen 1000", "Ryzen 5", None, "consumer"),
    ("AMD Ryzen 5 3500U with Radeon Vega Mobile Gfx", "Ryzen 3000", "Ryzen 5", "U", "laptop"),
    ("AMD Ryzen 7 PRO 4750U with Radeon Graphics", "Ryzen 4000", "Ryzen 7 PRO", "U", "laptop"),
    ("AMD Ryzen 9 5950X 16-Core Processor", "Ryzen 5000", "Ryzen 9", "X", "consumer"),
    ("AMD Ryzen 7 5800X3D 8-Core Processor", "Ryzen 5000", "Ryzen 7", "X3D", "consumer"),
    ("AMD Ryzen 9 6900HS with Radeon Graphics", "Ryzen 6000", "Ryzen 9", "HS", "laptop"),
    ("AMD Ryzen 9 7950X 16-Core Processor", "Ryzen 7000", "Ryzen 9", "X", "consumer"),
    ("AMD Ryzen 5 7520U with Radeon Graphics", "Ryzen 7000 (7020 series)", "Ryzen 5", "U", "laptop"),
    ("AMD Ryzen 7 7730U with Radeon Graphics", "Ryzen 7000 (7030 series)", "Ryzen 7", "U", "laptop"),
    ("AMD Ryzen 7 7735HS with Radeon Graphics", "Ryzen 7000 (7035 series)", "Ryzen 7", "HS", "laptop"),
    ("AMD Ryzen 7 7840U w/ Radeon  780M Graphics", "Ryzen 7000 (7040 series)", "Ryzen 7", "U", "laptop"),
    ("AMD Ryzen 9 7945HX3D", "Ryzen 7000 (7045 series)", "Ryzen 9", "HX3D", "laptop"),
    ("AMD Ryzen 7 8845HS w/ Radeon 780M Graphics", "Ryzen 8000 (8040 series)", "Ryzen 7", "HS", "laptop"),
    ("AMD Ryzen 7 8700G w/ Radeon 780M Graphics", "Ryzen 8000", "Ryzen 7", "G", "consumer"),
    ("AMD Ryzen 9 9950X3D 16-Core Processor", "Ryzen 9000", "Ryzen 9", "X3D", "consumer"),
    ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", "Ryzen AI 300", "Ryzen AI 9", "HX", "laptop"),
    ("AMD Ryzen AI 9 365 w/ Radeon 880M", "Ryzen AI 300", "Ryzen AI 9", None, "laptop"),
    ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "Ryzen AI Max 300", "Ryzen AI Max+", None, "laptop"),
    ("AMD Ryzen 7 260 w/ Radeon 780M Graphics", "Ryzen 200", "Ryzen 7", None, "laptop"),
    ("AMD Ryzen Threadripper 2990WX 32-Core Processor", "Threadripper 2000", "Ryzen Threadripper", "WX", "workstation"),
    ("AMD Ryzen Threadripper PRO 5995WX 64-Cores", "Threadripper 5000", "Ryzen Threadripper PRO", "WX", "workstation"),
    ("AMD EPYC 7301 16-Core Processor", "EPYC 7001", "EPYC", None, "data-center"),
    ("AMD EPYC 7551P 32-Core Processor", "EPYC 7001", "EPYC", "P", "data-center"),
    ("AMD EPYC 7R32", "EPYC 7002", "EPYC", None, "data-center"),
    ("AMD EPYC 7H12 64-Core Processor", "EPYC 7002", "EPYC", "H", "data-center"),
    ("AMD EPYC 74F3 24-Core Processor", "EPYC 7003", "EPYC", "F", "data-center"),
    ("AMD EPYC 7V73X 64-Core Processor", "EPYC 7003", "EPYC", "X", "data-center"),
    ("AMD EPYC 9654 96-Core Processor", "EPYC 9004", "EPYC", None, "data-center"),
    ("AMD EPYC 9V33X 96-Core Processor", "EPYC 9004", "EPYC", "X", "data-center"),
    ("AMD EPYC 9575F 64-Core Processor", "EPYC 9005", "EPYC", "F", "data-center"),
    ("AMD EPYC 8324P 32-Core Processor", "EPYC 8004", "EPYC", "P", "data-center"),
    ("AMD EPYC 4564P 16-Core Processor", "EPYC 4004", "EPYC", "P", "data-center"),
    ("AMD EPYC Embedded 9354P", "EPYC Embedded 9004", "EPYC Embedded", "P", "embedded"),
    ("AMD Ryzen Embedded V3C48", "Ryzen Embedded V3000", "Ryzen Embedded", None, "embedded"),
    ("AMD Opteron(tm) Processor 6136", "Opteron 6100", "Opteron", None, "data-center"),
    ("AMD FX(tm)-8350 Eight-Core Processor", "FX", "FX", None, "consumer"),
    ("AMD A10-7850K Radeon R7, 12 Compute Cores 4C+8G", None, "A10", None, "consumer"),
]

OTHERS: list[Row] = [
    ("Apple M1", "Apple M1", "M1", None, "consumer"),
    ("Apple M2 Max", "Apple M2", "M2 Max", "Max", "consumer"),
    ("Firestorm-M1-Pro", "Apple M1", "M1 Pro", "Pro", "consumer"),
    ("Blizzard-M2", "Apple M2", "M2", None, "consumer"),
    ("Firestorm-M1-Max", "Apple M1", None, None, "consumer"),
    ("Everest-M3", "Apple M3", "M3", None, "consumer"),
    ("Sawtooth-M3-Max", "Apple M3", None, None, "consumer"),
    ("Apple-M4-Pro", "Apple M4", "M4 Pro", "Pro", "consumer"),
    ("AWS Graviton", "Graviton", "Graviton", None, "data-center"),
    ("AWS Graviton3E", "Graviton3", "Graviton", "E", "data-center"),
    ("Ampere(R) Altra(R) Processor", "Altra", "Altra", None, "data-center"),
    ("Ampere Altra Max M128-30", "Altra Max", "Altra Max", None, "data-center"),
    ("AmpereOne A192-32X", "AmpereOne", "AmpereOne", None, "data-center"),
    ("NVIDIA Grace CPU Superchip", "Grace", "Grace", None, "data-center"),
    ("Microsoft Azure Cobalt 100", "Cobalt 100", "Cobalt", None, "data-center"),
    ("Google Axion Processor", "Axion", "Axion", None, "data-center"),
    ("Snapdragon(R) X Elite - X1E78100 - Qualcomm(R) Oryon(TM) CPU", "Snapdragon X", "X Elite", None, "laptop"),
    ("Snapdragon(R) X 12-core X1E80100 @ 3.40 GHz", "Snapdragon X", "X Elite", None, "laptop"),
    ("Snapdragon(R) X Plus - X1P42100 - Qualcomm(R) Oryon(TM) CPU", "Snapdragon X", "X Plus", None, "laptop"),
    ("Snapdragon(R) X - X126100 - Qualcomm(R) Oryon(TM) CPU", "Snapdragon X", "X", None, "laptop"),
    ("POWER9 (raw), altivec supported", "POWER9", "POWER", None, "data-center"),
    ("POWER8NVL (raw), altivec supported", "POWER8", "POWER", None, "data-center"),
    ("AMD Opteron 62xx class CPU", None, "Opteron", None, "data-center"),
]


@pytest.mark.parametrize("row", INTEL_CORE + INTEL_XEON + AMD + OTHERS, ids=lambda row: row[0])
def test_a_name_gives_generation_tier_suffix_and_segment(row: Row) -> None:
    found = parse_cpu_name(row[0])
    assert found is not None
    assert (found.generation, found.tier, found.suffix, found.segment) == row[1:]


@pytest.mark.parametrize(
    "name",
    [
        "AMD EPYC",
        "AMD EPYC Processor (with IBPB)",
        "AMD EPYC-Rome Processor",
        "AMD EPYC-Milan-v2 Processor",
        "Intel(R) Xeon(R) CPU @ 2.20GHz",
        "Intel Xeon Processor (Skylake, IBRS)",
        "Intel Core Processor (Haswell, no TSX)",
        "Intel Xeon E312xx (Sandy Bridge, IBRS update)",
        "Intel Xeon E3-12xx v2 (Ivy Bridge)",
        "Intel Core i7 9xx (Nehalem Class Core i7)",
        "Westmere E56xx/L56xx/X56xx (Nehalem-C)",
        "AMD Opteron 63xx class CPU",
    ],
)
def test_a_hypervisors_name_settles_the_tier_and_no_generation(name: str) -> None:
    found = parse_cpu_name(name)
    assert found is not None
    assert (found.generation, found.suffix) == (None, None)
    assert found.tier in ("EPYC", "Xeon", "Core", "Xeon E3", "Core i7", "Opteron")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Core i9",
        "Core i9-99999K",
        "Core i7-15700K",
        "i9-12900QQ",
        "12th Gen Intel(R) Core(TM) i7-13700K",
        "Intel(R) Xeon(R) Gold 8260 CPU @ 2.40GHz",
        "Intel(R) Xeon(R) Platinum 8960",
        "Intel(R) Xeon(R) CPU E5-2690 v7",
        "Intel(R) Core(TM) Ultra 7 955H",
        "AMD Ryzen 10 5000",
        "AMD Ryzen 9 5950Z",
        "AMD EPYC 9999",
        "AMD Ryzen Threadripper 8970X",
        "Apple M9",
        "AWS Graviton9",
        "QEMU Virtual CPU version 2.5+",
        "Common KVM processor",
        "Genuine Intel(R) CPU 0000 @ 2.60GHz",
        "AMD Eng Sample: 100-000000304-61_40/34_Y",
        "VirtualApple @ 2.50GHz",
        "ARMv8 Processor rev 1 (v8l)",
        "NVIDIA GeForce RTX 4090",
    ],
)
def test_a_name_that_no_vendor_gave_is_unknown(name: str) -> None:
    assert parse_cpu_name(name) is None


def test_case_and_marks_do_not_matter() -> None:
    assert parse_cpu_name("intel core I9-12900kf") == parse_cpu_name("Intel® Core™ i9-12900KF Processor")


def test_what_a_suffix_means_is_a_sentence() -> None:
    for table in read_table("cpus")["suffixes"].values():
        for meaning, *segment in table.values():
            assert meaning[0].isupper()
            assert meaning.endswith(".")
            assert segment in ([], ["laptop"], ["embedded"], ["workstation"])


def test_a_suffix_is_explained() -> None:
    found = parse_cpu_name("AMD Ryzen 7 5800X3D 8-Core Processor")
    assert found is not None
    assert "V-Cache" in (found.suffix_meaning or "")


def test_every_row_has_a_listed_source_known_suffix_tables_and_a_pattern_that_compiles() -> None:
    table = read_table("cpus")
    for line in table["line"]:
        for row in line["rows"]:
            assert row["source"] in table["sources"]
            assert set(row.get("suffixes", ())) <= set(table["suffixes"])
            assert "suffix" not in compiled(row["pattern"]).groupindex or "suffixes" in row


def test_ordinals_are_english() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 14)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "14th",
    ]


def test_a_name_longer_than_any_is_unknown() -> None:
    assert parse_cpu_name("Intel Core i9-12900K" + " " * MAX_NAME_LENGTH) is None


@given(st.text(max_size=200))
def test_any_text_is_a_name_or_none(text: str) -> None:
    parse_cpu_name(text)


WORDS = [
    "Intel(R)",
    "Core(TM)",
    "i7-",
    "Ultra",
    "Xeon",
    "AMD",
    "Ryzen",
    "EPYC",
    "PRO",
    "9",
    "12",
    "700",
    "7",
    "K",
    "X3D",
]


@given(st.lists(st.sampled_from([*WORDS, " ", "-", "CPU", "@ 2GHz", "{", "}", "(", "Apple M1", "v4"]), max_size=12))
def test_any_mixture_of_words_from_names_is_a_name_or_none(words: list[str]) -> None:
    found = parse_cpu_name("".join(words))
    assert found is None or found.tier


@pytest.mark.parametrize(
    ("maker", "product", "core", "generation"),
    [
        ("Amazon EC2", "c6g.large", "Neoverse N1", "Graviton2"),
        ("Amazon EC2", "m8g.metal-24xl", "Neoverse V2", "Graviton4"),
        ("Amazon EC2", "p6e-gb200.36xlarge", "Neoverse V2", None),
        ("Microsoft Corporation", "Virtual Machine", "Neoverse N2", "Cobalt 100"),
        ("Google", "Google Compute Engine", "Neoverse V2", None),
        ("NVIDIA", None, "Neoverse V2", "Grace"),
        ("QEMU", "KVM Virtual Machine", "Neoverse N1", None),
        ("Supermicro", None, "Ampere-1", "AmpereOne"),
        (None, None, "Olympus", "Vera"),
        (None, None, None, None),
    ],
)
def test_a_cloud_sells_an_arm_core_under_one_name_or_it_is_not_settled(
    maker: str | None, product: str | None, core: str | None, generation: str | None
) -> None:
    name = name_by_host(maker, product, core)
    found = parse_cpu_name(name) if name else None
    assert (found.generation if found else None) == generation
