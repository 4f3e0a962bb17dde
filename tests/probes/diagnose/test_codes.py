"""Every code has a page and a test, and no page stands without a code."""

import re
from pathlib import Path

import pytest

from probes.diagnose import WEIGHTS
from probes.diagnose.codes import make_finding
from probes.hardware import Severity

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "findings"
# Made by the service when a survey itself fails (app/surveyor.py).
OTHERS = {"no-survey"}


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    pages = {page.stem for page in PAGES.glob("*.md")} - {"index"}
    assert pages == set(WEIGHTS) | OTHERS


def test_the_index_names_every_page_with_its_weight() -> None:
    index = (PAGES / "index.md").read_text("utf-8")
    for code, weight in WEIGHTS.items():
        [row] = [line for line in index.splitlines() if f"[{code}]({code}.md)" in line]
        assert f"| {weight.severity} |" in row
        assert ("yes" in row.split("|")[3]) == weight.blocking


@pytest.mark.parametrize("code", sorted(WEIGHTS))
def test_a_page_says_what_it_means_how_it_is_seen_and_what_to_do(code: str) -> None:
    text = (PAGES / f"{code}.md").read_text("utf-8")
    assert text.startswith(f"# {code}\n")
    for heading in ("## What it means", "## How crosspoint sees it", "## What to do", "## Sources"):
        assert heading in text
    assert re.search(r"https?://", text.split("## Sources")[1])


def test_every_code_is_built_by_a_test() -> None:
    tests = "".join(
        path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_codes.py"
    )
    assert [code for code in WEIGHTS if f'"{code}"' not in tests] == []


def test_every_code_is_made_somewhere_and_only_known_ones_are() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "probes" / "diagnose").glob("*.py"))
    made = set(re.findall(r"make_finding\(\s*\"([a-z0-9-]+)\"", sources))
    composed = {"torch-without-cuda", "torch-without-rocm", "torch-without-xpu", "torch-without-mps"}
    composed |= {"gpu-memory-full", "gpu-memory-taken"}
    assert made | composed == set(WEIGHTS)


def test_codes_are_kebab_case_and_what_blocks_is_no_remark() -> None:
    for code, weight in WEIGHTS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
        assert not (weight.blocking and weight.severity is Severity.INFO)


def test_an_unknown_code_cannot_be_made() -> None:
    with pytest.raises(KeyError):
        make_finding("no-such-code", "machine", "message", "fix")
