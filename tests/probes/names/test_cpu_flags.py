"""Classes of instructions grow from one another, and flags find the smallest that explains them."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from probes.names.cpu_flags import archspec_word, impossible_flags, instruction_classes, smallest_classes
from probes.names.cpu_identity import CpuIdentity
from probes.names.identification import FAMILY_AND_MODEL
from probes.names.microarchitecture import expected_instruction_sets, identify
from probes.names.tables import read_table

ARCHSPEC = Path(find_spec("archspec").origin).parent / "json" / "cpu" / "microarchitectures.json"  # type: ignore[union-attr, arg-type]


def test_a_class_has_what_its_ancestors_have() -> None:
    intel = instruction_classes("GenuineIntel")
    assert intel["haswell"].has < intel["skylake"].has < intel["sapphirerapids"].has
    assert "avx512_fp16" in intel["alderlake"].may - intel["alderlake"].has


def test_archspecs_words_are_archspecs() -> None:
    targets = json.loads(ARCHSPEC.read_text())["microarchitectures"]
    for vendor in ("GenuineIntel", "AuthenticAMD"):
        assert {one.archspec for one in instruction_classes(vendor).values()} <= {*targets, "k8", "x86_64"}


def test_the_smallest_class_is_the_one_that_explains_every_flag() -> None:
    flags = instruction_classes("GenuineIntel")["sapphirerapids"].has
    assert [one.name for one in smallest_classes("GenuineIntel", flags)] == ["sapphirerapids"]
    assert [one.name for one in smallest_classes("GenuineIntel", flags - {"amx_tile"})] == ["sapphirerapids"]
    assert smallest_classes("GenuineIntel", flags | {"xop"}) == []


def test_only_markers_can_be_impossible() -> None:
    haswell = instruction_classes("GenuineIntel")["haswell"]
    assert impossible_flags(haswell, frozenset({"avx2", "avx512f", "never_heard_of"})) == ["avx512f"]


def test_archspecs_word_is_that_of_the_flags_shown() -> None:
    intel = instruction_classes("GenuineIntel")
    tiger = intel["tigerlake"]
    assert archspec_word("GenuineIntel", tiger, tiger.has) == "icelake"
    assert archspec_word("GenuineIntel", tiger, intel["haswell"].has) == "haswell"
    assert archspec_word("GenuineIntel", tiger, frozenset()) is None


CUT = ("avx", "f16c", "avx2", "fma", "bmi2", "adx")  # off in a Pentium and a Celeron


@pytest.mark.parametrize(
    ("model", "stepping", "brand", "class_name", "cut", "word"),
    [
        (0xA7, 1, "11th Gen Intel(R) Core(TM) i5-11600 @ 2.80GHz", "icelake_client", (), "cannonlake"),
        (0x7E, 5, "Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz", "icelake_client", (), "cannonlake"),
        (0x6A, 6, "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", "icelake", (), "icelake"),
        (0x9E, 10, "Intel(R) Pentium(R) Gold G5400 CPU @ 3.70GHz", "skylake", CUT, "westmere"),
        (0x8E, 12, "Intel(R) Celeron(R) CPU 5205U @ 1.90GHz", "skylake", CUT, "westmere"),
        (0x3A, 9, "Intel(R) Celeron(R) CPU 1037U @ 1.80GHz", "ivybridge", CUT, "westmere"),
        (0x56, 3, "Intel(R) Pentium(R) CPU D1517 @ 1.60GHz", "broadwell", (), "broadwell"),
    ],
)
def test_a_guest_that_shows_all_that_its_processor_has_hides_nothing(
    model: int, stepping: int, brand: str, class_name: str, cut: tuple[str, ...], word: str
) -> None:
    flags = instruction_classes("GenuineIntel")[class_name].has.difference(cut) | {"hypervisor"}
    found = identify(CpuIdentity(brand, "GenuineIntel", 6, model, stepping, flags))
    assert (found.believed, found.hidden, found.reason) == (FAMILY_AND_MODEL, (), None)
    assert found.archspec == word
    assert expected_instruction_sets(found.name or "", brand) <= flags


def test_only_a_pentiums_and_a_celerons_lack_is_expected() -> None:
    assert "avx2" in expected_instruction_sets("Coffee Lake", "Intel(R) Core(TM) i5-8400 CPU @ 2.80GHz")
    assert "avx2" not in expected_instruction_sets("Coffee Lake", "Intel(R) Celeron(R) G4900 CPU @ 3.10GHz")
    classes = read_table("microarchitectures")["cut"]["classes"]
    assert set(classes) <= set(instruction_classes("GenuineIntel"))
