"""Two installs of one commit are the same, but for what constraints.txt says is left open."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8")
Asked = tuple[str, frozenset[str]]  # a package and its extras


def needed_by(asked: Asked) -> Iterator[Asked]:
    """Of the packages that are installed here, on this system and Python."""
    for line in requires(asked[0]) or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *asked[1])):
            yield canonicalize_name(one.name), frozenset(one.extras)


def brought_along(name: str, *extras: str) -> set[str]:
    """By their names on the index."""
    found: set[Asked] = set()
    waiting: list[Asked] = [(name, frozenset(extras))]
    while waiting:
        asked = waiting.pop()
        try:
            new = [each for each in needed_by(asked) if each not in found]
        except PackageNotFoundError:  # only benchmarks need it
            continue
        found.update(new)
        waiting += new
    return {name for name, _ in found}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere packages bring along others that are not pinned")
def test_all_that_set_up_installs_is_pinned_but_what_is_said_to_be_left_open() -> None:
    pinned = set(re.findall(r"^([a-z0-9-]+)==\S+$", CONSTRAINTS, re.MULTILINE))
    said = set(re.findall(r"[a-z-]+", " ".join(re.findall(r"^#.*$", CONSTRAINTS, re.MULTILINE))))
    of_torch = brought_along("torch")
    ours = brought_along("crosspoint", "dev", "bench")
    assert {"torch", "transformers", "anyio", "huggingface-hub", "httpcore"} <= ours & pinned
    assert not of_torch & pinned  # torch's own index has some versions of each alone
    assert ours - of_torch - pinned == {"certifi"}
    assert {"certifi", "filelock", "typing-extensions"} <= said
