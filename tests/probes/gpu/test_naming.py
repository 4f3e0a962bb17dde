from dataclasses import replace

import pytest

from probes.gpu.naming import with_name_facts
from probes.hardware import Accelerator
from probes.names.gpu import ALSO_LAPTOP

CARD = Accelerator(id="GPU-1", vendor="NVIDIA", name="NVIDIA GeForce RTX 3080 Ti")


def test_a_known_name_places_the_card() -> None:
    card = with_name_facts(CARD)
    assert (card.generation, card.tier, card.suffix, card.segment) == ("GeForce RTX 30", "80", "Ti", "consumer")


def test_what_the_driver_told_stands() -> None:
    assert with_name_facts(replace(CARD, architecture="Ampere (told)")).architecture == "Ampere (told)"


def test_an_unknown_or_missing_name_adds_nothing() -> None:
    for card in (replace(CARD, name="NVIDIA GeForce RTX 9999"), replace(CARD, name=None)):
        assert with_name_facts(card) == card


def test_memory_is_left_to_the_driver() -> None:
    assert with_name_facts(CARD).memory_total_bytes is None


def test_a_card_says_what_its_tier_is_good_for() -> None:
    assert "Memory decides first" in (with_name_facts(CARD).tier_meaning or "")


def test_a_name_that_laptops_bear_too_says_so() -> None:
    for name, is_said in (("NVIDIA GeForce RTX 2070", True), ("NVIDIA GeForce RTX 3080 Ti", False)):
        assert (ALSO_LAPTOP in (with_name_facts(replace(CARD, name=name)).tier_meaning or "")) is is_said


def test_an_instance_is_placed_by_the_card_that_it_is_a_part_of() -> None:
    instance = replace(CARD, id="MIG-1", name="NVIDIA A100-SXM4-40GB MIG 3g.20gb")
    assert (
        with_name_facts(instance).generation == with_name_facts(replace(CARD, name="NVIDIA A100-SXM4-40GB")).generation
    )
    assert with_name_facts(instance).generation is not None


@pytest.mark.parametrize(
    ("profile", "whole"),
    [("NVIDIA A40-48Q", "NVIDIA A40"), ("GRID T4-8C", "NVIDIA T4"), ("NVIDIA A40-1-6C", "NVIDIA A40")],
)
def test_a_virtual_part_of_a_card_is_of_the_cards_generation(profile: str, whole: str) -> None:
    part, card = (with_name_facts(replace(CARD, name=name)) for name in (profile, whole))
    assert card.generation is not None
    assert (part.generation, part.segment, part.tier_meaning) == (card.generation, card.segment, card.tier_meaning)
    assert part.name == profile
