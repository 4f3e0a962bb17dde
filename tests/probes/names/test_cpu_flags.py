"""Classes of instructions grow from one another, and flags find the smallest that explains them."""

import json
from importlib.util import find_spec
from pathlib import Path

from probes.names.cpu_flags import archspec_word, impossible_flags, instruction_classes, smallest_classes

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
