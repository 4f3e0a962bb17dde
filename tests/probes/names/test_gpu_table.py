"""The tables hold together: no spelling means two cards, no row lacks a source, no misspelt field goes unnoticed."""

from collections import Counter

import pytest

from probes.names.gpu import spellings
from probes.names.gpu_meaning import explain_suffix, explain_tier
from probes.names.gpu_scheme import SCHEMES, split_name
from probes.names.gpu_table import SEGMENTS, TABLES, Card, InvalidTable, load_table, parse_table

CARDS = [card for table in TABLES for card in load_table(table)]
NVIDIA_CARDS = [card for card in CARDS if card.vendor == "NVIDIA"]
FAMILY = """
[[family]]
vendor = "NVIDIA"
generation = "GeForce RTX 60"
architecture = "Rubin"
segment = "consumer"
scheme = "geforce"
source = "a data sheet"
[family.cards]
"""


def test_no_card_stands_twice() -> None:
    counts = Counter((card.vendor, card.name) for card in CARDS)

    assert [name for name, count in counts.items() if count > 1] == []


def test_no_spelling_means_two_cards() -> None:
    owners: dict[tuple[str | None, str], Card] = {}
    for card in CARDS:
        for key in set(spellings(card)):
            named = card.vendor if card.vendor_required else None
            assert owners.setdefault((named, key), card) is card, f"{key!r}: {owners[named, key].name} and {card.name}"


def test_every_row_is_complete_and_plausible() -> None:
    for card in CARDS:
        assert card.generation, card.name
        assert len(card.source) > 15, card.name
        assert card.segment in SEGMENTS, card.name
        assert card.scheme in SCHEMES, card.name
        assert card.architecture or "architecture" in dict(card.unknown), card.name
        assert len(card.bandwidth_gb) in {0, 1, len(card.memory_gib)}, card.name
        assert all(0 < size <= 512 for size in card.memory_gib), card.name
        assert all(20 < bandwidth <= 10_000 for bandwidth in card.bandwidth_gb), card.name
        assert list(card.memory_gib) == sorted(set(card.memory_gib)), card.name


def test_tier_and_suffix_of_every_card_have_a_meaning() -> None:
    for card in CARDS:
        tier, suffix = split_name(card.name, card.scheme)
        meaning = explain_tier(card.scheme, tier, card.segment)
        assert "Memory decides first" in meaning, card.name
        assert tier is None or meaning.startswith(tier), card.name
        assert suffix is None or explain_suffix(card.vendor, suffix), card.name


def test_a_small_laptop_chips_number_promises_less_than_a_geforces() -> None:
    assert {card.scheme for card in NVIDIA_CARDS if card.generation.startswith("GeForce MX")} == {"mx"}
    assert split_name("GeForce MX570 A", "mx") == ("70", "A")
    assert "upper middle" in explain_tier("geforce", "70", "laptop")
    assert "upper middle" not in explain_tier("mx", "70", "laptop")


def test_every_nvidia_card_has_a_compute_capability_or_says_why_not() -> None:
    lacking = [card.name for card in NVIDIA_CARDS if not (card.compute_capability or dict(card.unknown))]

    assert lacking == []


def test_cards_of_one_architecture_have_its_compute_capabilities() -> None:
    allowed = {
        "Fermi": {"2.1"},
        "Kepler": {"3.0", "3.2", "3.5", "3.7"},
        "Maxwell": {"5.0", "5.2", "5.3"},
        "Pascal": {"6.0", "6.1", "6.2"},
        "Volta": {"7.0", "7.2"},
        "Turing": {"7.5"},
        "Ampere": {"8.0", "8.6", "8.7"},
        "Ada Lovelace": {"8.9"},
        "Hopper": {"9.0"},
        "Blackwell": {"10.0", "10.3", "11.0", "12.0", "12.1"},
    }
    for card in NVIDIA_CARDS:
        if card.architecture and card.compute_capability:
            assert card.compute_capability in allowed[card.architecture], card.name


def test_a_new_card_is_one_row() -> None:
    (card,) = parse_table(FAMILY + '"GeForce RTX 6060" = { compute_capability = "13.0", memory = [8, 16] }')

    assert (card.generation, card.memory_gib) == ("GeForce RTX 60", (8, 16))
    assert split_name(card.name, card.scheme) == ("60", None)


@pytest.mark.parametrize(
    "row",
    [
        '"X" = { memmory = 8 }',
        '"X" = { memory = "8 GB" }',
        '"X" = { segment = "gaming" }',
        '"X" = { gpus = "two" }',
    ],
)
def test_a_malformed_row_is_refused_by_name(row: str) -> None:
    with pytest.raises(InvalidTable, match="'X'"):
        parse_table(FAMILY + row)


def test_a_row_without_source_is_refused() -> None:
    with pytest.raises(InvalidTable, match="source"):
        parse_table(FAMILY.replace('source = "a data sheet"', "") + '"X" = {}')
