"""Links within the documents lead somewhere: to a file that is there, and to a heading in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links(document: Path) -> Iterator[str]:
    """Those to files of this repository."""
    for target in re.findall(r"\]\(([^()\s]+)\)", document.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(document: Path) -> set[str]:
    """Of a document's headings, as they are made where it is shown."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link
