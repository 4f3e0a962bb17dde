"""What a killed service leaves is removed by a later one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from app.lab.temporary_folder import CHILD, COMPILE, LEAST_AGE_SECONDS, TemporaryFolder, remove_left_folders


@pytest.mark.parametrize("prefix", [CHILD, COMPILE])
def test_what_a_killed_process_left_is_removed_and_what_another_holds_or_makes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, held = TemporaryFolder.make(prefix), TemporaryFolder.make()
    assert left is not None
    assert held is not None
    assert left._descriptor is not None
    os.close(left._descriptor)  # as the end of its process does
    (Path(left.path) / "file").touch()
    being_made, another_s = tmp_path / f"{CHILD}new", tmp_path / "crosspoint-else"
    for path in (being_made, another_s):
        path.mkdir()
    old = time.time() - LEAST_AGE_SECONDS
    for place in (left.path, held.path, another_s):
        os.utime(place, (old, old))
    remove_left_folders()
    assert sorted(tmp_path.iterdir()) == sorted([Path(held.path), being_made, another_s])
    os.utime(being_made, (old, old))  # whoever made it was killed before it had a lock
    remove_left_folders()
    assert sorted(tmp_path.iterdir()) == sorted([Path(held.path), another_s])
    held.remove()
    assert list(tmp_path.iterdir()) == [another_s]
