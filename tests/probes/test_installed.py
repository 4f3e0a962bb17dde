"""Which copy of a package is installed now."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.installed import stamp_of
from probes.workload import architectures
from probes.workload.architectures import transformers_version
from tests.installing import install


def test_another_copy_has_another_stamp_and_the_same_one_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    stamps = [stamp_of("made_up")]
    for version in ("1.0", "1.1"):
        install(tmp_path, "made_up", version)
        stamps += [stamp_of("made_up"), stamp_of("made_up")]
    assert stamps[0] is None
    assert stamps[1] == stamps[2] != stamps[3] == stamps[4]


def test_the_version_of_transformers_is_the_one_that_is_installed_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is measured in fresh processes is kept under it."""
    before = transformers_version()
    monkeypatch.setattr(architectures, "stamp_of", lambda _: ("another", 1, 2, 3))
    monkeypatch.setattr(architectures, "version", lambda _: "99.0")
    assert transformers_version() == "99.0"
    monkeypatch.undo()
    assert transformers_version() == before
