"""What is promised of a card's name: exact or unknown, and every figure a card's own."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.names.gpu import GpuName, list_gpu_names, near_names, parse_gpu_name

GIB = 2**30
DRIVER_NAMES = [
    line
    for line in (Path(__file__).parent / "gpu_driver_names.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def known(name: str) -> GpuName:
    found = parse_gpu_name(name)
    assert found is not None, f"{name!r} is unknown"
    return found


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "RTX",
        "NVIDIA",
        "GeForce",
        "GeForce RTX",
        "Radeon",
        "GeForce RTX 9999",
        "GeForce RTX 4080 Ti",
        "RTX 3080 Tii",
        "RTX 3080 T",
        "RTX 3085",
        "RTX 308",
        "3080 Ti",
        "4090",
        "RTX 4050",
        "RTX 4090 48GB",
        "GTX 1060 4GB",
        "GTX 1060 6GB 6GB",
        "RTX 4090 Laptop GPU 24GB",
        "RTX 6000",
        "NVIDIA RTX 4000",
        "AMD GeForce RTX 3080",
        "NVIDIA Radeon RX 580",
        "Intel RTX 3090",
        "NVIDIA NVIDIA RTX 3090",
        "GeForce Tesla T4",
        "RTX 3090, RTX 3090",
        "M4",
        "840M",
        "AMD Radeon Graphics",
        "AMD Radeon RX 7900",
        "AMD Radeon RX 9080 XT",
        "Intel(R) UHD Graphics 770",
        "Intel Arc B770",
        "Apple M9",
        "ASPEED Graphics Family",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    ],
)
def test_what_is_not_exactly_a_known_card_is_unknown(name: str) -> None:
    assert parse_gpu_name(name) is None


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_a_name_that_a_driver_reports_is_known(name: str) -> None:
    assert known(name).generation


@pytest.mark.parametrize(
    "name",
    [
        "GeForce RTX 3080 Ti",
        "NVIDIA GeForce RTX 3080 Ti",
        "nvidia geforce rtx 3080 ti",
        "RTX 3080 Ti",
        "RTX 3080Ti",
        "RTX3080Ti",
        "NVIDIA RTX 3080 TI",
        "NVIDIA(R) GeForce RTX(TM) 3080 Ti",
        "NVIDIA® GeForce RTX™ 3080 Ti",
        "  GeForce   RTX-3080-Ti ",
        "NVIDIA Corporation GeForce RTX 3080 Ti",
        "RTX 3080 Ti 12GB",
    ],
)
def test_spellings_of_one_card_are_one_card(name: str) -> None:
    assert parse_gpu_name(name) == parse_gpu_name("NVIDIA GeForce RTX 3080 Ti")


def test_the_card_of_the_design_document_comes_out_whole() -> None:
    card = known("NVIDIA GeForce RTX 3080 Ti")

    assert (card.vendor, card.generation, card.architecture) == ("NVIDIA", "GeForce RTX 30", "Ampere")
    assert (card.tier, card.suffix, card.segment, card.compute_capability) == ("80", "Ti", "consumer", "8.6")
    assert card.memory_total_bytes == 12 * GIB
    assert card.memory_bandwidth_bytes_per_second == 912e9
    assert "Memory decides first" in card.tier_meaning
    assert card.suffix_meaning
    assert card.source
    assert card.reasons == {}


@pytest.mark.parametrize(
    ("name", "tier", "suffix"),
    [
        ("GeForce RTX 4070 Ti", "70", "Ti"),
        ("GeForce RTX 4070 Ti SUPER", "70", "Ti SUPER"),
        ("GeForce RTX 4090 D", "90", "D"),
        ("GeForce RTX 5090 D v2", "90", "D v2"),
        ("GeForce RTX 4090", "90", None),
        ("GeForce RTX 4090 Laptop GPU", "90", "Laptop GPU"),
        ("GeForce RTX 3050 6GB Laptop GPU", "50", "Laptop GPU"),
        ("GeForce RTX 3080 Ti Laptop GPU", "80", "Ti Laptop GPU"),
        ("GeForce RTX 2080 with Max-Q Design", "80", "Max-Q"),
        ("GeForce RTX 2070 Super with Max-Q Design", "70", "SUPER Max-Q"),
        ("GeForce GTX 1060 6GB", "60", None),
        ("GeForce GTX 860M", "60", "M"),
        ("GeForce 940MX", "40", "MX"),
        ("GeForce GT 710", "10", None),
        ("GeForce MX450", "50", None),
        ("Radeon RX 7900 XTX", "900", "XTX"),
        ("Radeon RX 7900 GRE", "900", "GRE"),
        ("Radeon RX 6950 XT", "950", "XT"),
        ("Radeon RX 6600M", "600", "M"),
        ("Radeon RX 9070 XT", "70", "XT"),
        ("Radeon RX 580", "80", None),
        ("Radeon RX Vega 64", "64", None),
        ("Arc A770", "770", None),
        ("Arc A770M", "770", "M"),
        ("Apple M2 Max", None, "Max"),
        ("NVIDIA A100-SXM4-40GB", None, None),
        ("Tesla T4", None, None),
        ("NVIDIA RTX A6000", None, None),
        ("NVIDIA TITAN RTX", None, None),
        ("GeForce GTX TITAN X", None, None),
        ("AMD Instinct MI300X", None, None),
        ("Radeon VII", None, None),
    ],
)
def test_tier_and_suffix_are_what_the_name_carries(name: str, tier: str | None, suffix: str | None) -> None:
    card = known(name)

    assert (card.tier, card.suffix) == (tier, suffix)
    assert (card.suffix_meaning is None) == (suffix is None)


@pytest.mark.parametrize(
    ("name", "architecture", "capability"),
    [
        ("GeForce GTX 750 Ti", "Maxwell", "5.0"),
        ("GeForce GTX 745", "Maxwell", "5.0"),
        ("GeForce GTX 770", "Kepler", "3.0"),
        ("GeForce GTX 780", "Kepler", "3.5"),
        ("GeForce 730", None, None),
        ("GeForce GTX 860M", None, None),
        ("GeForce GTX 980", "Maxwell", "5.2"),
        ("GeForce GTX 1080 Ti", "Pascal", "6.1"),
        ("GeForce GTX 1660", "Turing", "7.5"),
        ("GeForce RTX 2050", "Ampere", "8.6"),
        ("GeForce MX570", "Ampere", "8.6"),
        ("GeForce MX550", "Turing", "7.5"),
        ("GeForce RTX 3050 A Laptop GPU", "Ada Lovelace", "8.9"),
        ("GeForce RTX 5090", "Blackwell", "12.0"),
        ("GeForce GTX TITAN X", "Maxwell", "5.2"),
        ("TITAN X", "Pascal", "6.1"),
        ("TITAN V", "Volta", "7.0"),
        ("Quadro K620", "Maxwell", "5.0"),
        ("Quadro GP100", "Pascal", "6.0"),
        ("Quadro GV100", "Volta", "7.0"),
        ("Quadro RTX 6000", "Turing", "7.5"),
        ("RTX 6000 Ada Generation", "Ada Lovelace", "8.9"),
        ("Tesla K80", "Kepler", "3.7"),
        ("Tesla P100-PCIE-16GB", "Pascal", "6.0"),
        ("Tesla P40", "Pascal", "6.1"),
        ("A100-SXM4-80GB", "Ampere", "8.0"),
        ("A30", "Ampere", "8.0"),
        ("A10", "Ampere", "8.6"),
        ("L4", "Ada Lovelace", "8.9"),
        ("H100 PCIe", "Hopper", "9.0"),
        ("GH200 480GB", "Hopper", "9.0"),
        ("B200", "Blackwell", "10.0"),
        ("GB300", "Blackwell", "10.3"),
        ("GB10", "Blackwell", "12.1"),
        ("Orin (nvgpu)", "Ampere", "8.7"),
        ("Jetson AGX Xavier", "Volta", "7.2"),
        ("Thor", "Blackwell", "11.0"),
        ("Radeon RX 6800 XT", "RDNA 2", None),
        ("Instinct MI250X", "CDNA 2", None),
        ("Arc B580", "Xe2-HPG", None),
    ],
)
def test_architecture_and_compute_capability_are_the_chips_own(
    name: str, architecture: str | None, capability: str | None
) -> None:
    card = known(name)

    assert (card.architecture, card.compute_capability) == (architecture, capability)
    assert ("architecture" in card.reasons) == (architecture is None)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("GeForce RTX 4090", 24),
        ("GeForce RTX 4090 Laptop GPU", 16),
        ("GeForce RTX 4080 Laptop GPU", 12),
        ("GeForce RTX 5070 Laptop GPU", None),
        ("GeForce RTX 3060", None),
        ("GeForce RTX 3060 12GB", 12),
        ("GeForce GTX 1060", None),
        ("GeForce GTX 1060 6GB", 6),
        ("GTX 1060 3 GB", 3),
        ("GeForce RTX 3050 6GB Laptop GPU", 6),
        ("GeForce RTX 5060 Ti 16GB", 16),
        ("GeForce RTX 5090 D v2", 24),
        ("RTX A2000", 6),
        ("RTX A2000 12GB", 12),
        ("T1000 8GB", 8),
        ("RTX PRO 5000 72GB Blackwell", 72),
        ("RTX PRO 6000 Blackwell Max-Q Workstation Edition", 96),
        ("A100", None),
        ("A100 80GB", 80),
        ("A100-SXM4-40GB", 40),
        ("GH200 480GB", 96),
        ("H200", 141),
        ("H20", 96),
        ("GB300", None),
        ("Tesla K80", None),
        ("A16", None),
        ("Instinct MI250X", None),
        ("Instinct MI300X", 192),
        ("Radeon RX 9060 XT", None),
        ("Radeon RX 9060 XT 16GB", 16),
        ("Radeon RX 7900 XT", 20),
        ("Radeon RX 6800M", 12),
        ("Arc A770", None),
        ("Arc A770 16GB", 16),
        ("Apple M2 Max", None),
        ("Orin", None),
        ("GB10", 128),
    ],
)
def test_memory_is_given_only_where_the_name_settles_it(name: str, gigabytes: int | None) -> None:
    card = known(name)

    assert card.memory_total_bytes == (None if gigabytes is None else gigabytes * GIB)
    assert ("memory_total_bytes" in card.reasons) == (gigabytes is None)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("GeForce RTX 3050 8GB", 224e9),
        ("GeForce RTX 3050 6GB", 168e9),
        ("GeForce RTX 3080", None),
        ("GeForce RTX 3080 12GB", 912e9),
        ("GeForce GTX 1650", None),
        ("NVIDIA L4", 300e9),
        ("Tesla V100-SXM2-16GB", 900e9),
        ("NVIDIA H100 80GB HBM3", 3350e9),
        ("Instinct MI300X", 5300e9),
        ("Apple M2 Max", 400e9),
    ],
)
def test_bandwidth_is_the_data_sheets_or_null(name: str, bandwidth: float | None) -> None:
    assert known(name).memory_bandwidth_bytes_per_second == bandwidth


def test_a_laptop_chip_never_has_its_desktop_namesakes_figures() -> None:
    sold_in_one_laptop_only = {"AMD Radeon Pro 5600M"}
    for name in set(list_gpu_names()) - sold_in_one_laptop_only:
        card = known(name)
        if card.segment == "laptop":
            assert card.memory_bandwidth_bytes_per_second is None, name
            assert "laptop" in card.tier_meaning, name


def test_boards_with_several_gpus_say_so() -> None:
    card = known("Tesla K80")

    assert card.gpus == 2
    assert card.reasons["memory_total_bytes"] == "2 GPUs share one board, each with 12 GB: torch sees 2 devices"


def test_memory_shared_with_the_processor_is_called_shared() -> None:
    assert known("NVIDIA GB10").unified_memory is True
    assert known("Apple M4").unified_memory is True
    assert known("Orin (nvgpu)").unified_memory is True
    assert known("GeForce RTX 4090").unified_memory is False
    assert known("NVIDIA GH200 480GB").unified_memory is None


def test_every_canonical_name_is_its_own_name() -> None:
    for name in list_gpu_names():
        assert known(name).name == name


def test_every_null_has_a_reason_and_no_known_field_has_one() -> None:
    facts = (
        "architecture",
        "tier",
        "memory_total_bytes",
        "memory_bandwidth_bytes_per_second",
        "compute_capability",
        "unified_memory",
    )
    for name in list_gpu_names():
        card = known(name)
        assert set(card.reasons) == {fact for fact in facts if getattr(card, fact) is None}, name


def test_a_near_name_is_offered_and_never_taken() -> None:
    assert near_names("RTX 3080 Tii")[0] == "NVIDIA GeForce RTX 3080 Ti"
    assert near_names("4090")[0] == "NVIDIA GeForce RTX 4090"
    assert near_names("Radeon RX 7900 XTXX")[0] == "AMD Radeon RX 7900 XTX"
    assert near_names("") == ()
    assert len(near_names("GeForce RTX 9999")) <= 3
    assert all(parse_gpu_name(name) for name in near_names("GeForce RTX 9999"))


def test_the_document_of_a_card_is_plain_json() -> None:
    document = known("GTX 1060").to_json()

    assert document["tier"] == "60"
    assert document["memory_total_bytes"] is None
    assert document["reasons"]["memory_total_bytes"] == "sold with 3 GB or 5 GB or 6 GB under this name"


WORDS = st.sampled_from(
    (
        "NVIDIA",
        "AMD",
        "GeForce",
        "Radeon",
        "RTX",
        "GTX",
        "RX",
        "Ti",
        "SUPER",
        "XT",
        "XTX",
        "D",
        "M",
        "6GB",
        "Laptop GPU",
    )
)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200) | st.lists(WORDS | st.integers(0, 9999).map(str), max_size=7).map(" ".join))
def test_no_text_makes_it_raise(text: str) -> None:
    found = parse_gpu_name(text)

    assert found is None or parse_gpu_name(found.name) == found
    assert all(parse_gpu_name(name) for name in near_names(text))


def test_a_text_far_too_long_for_a_name_is_unknown_at_once() -> None:
    assert parse_gpu_name("RTX " * 1_000_000) is None
    assert len(near_names("RTX 3080 " * 1_000_000)) <= 3


def test_a_size_behind_a_laptops_name_is_a_size() -> None:
    assert parse_gpu_name("RTX 3080 Laptop GPU 16GB") == parse_gpu_name("RTX 3080 Laptop 16GB") is not None


@pytest.mark.parametrize(
    "name", ["AMD Radeon Pro V620 MxGPU", "AMD Radeon Pro V710 MxGPU", "Radeon Instinct MI25 MxGPU"]
)
def test_a_part_that_a_virtual_machine_has_is_of_the_cards_architecture_and_not_of_its_memory(name: str) -> None:
    part, card = known(name), known(name.removesuffix(" MxGPU"))
    assert (part.architecture, part.segment) == (card.architecture, card.segment)
    assert part.memory_total_bytes is None
