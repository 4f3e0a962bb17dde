"""Steps are told with their page faults, plain and watched."""

from __future__ import annotations

import pytest

from benchmarks import watched_steps


def test_every_block_has_its_steps_and_its_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_steps, "SECONDS", 0.01)
    blocks = watched_steps.measure("mlp-tiny", "inference", 4)
    assert tuple(watch for watch, _, _ in blocks) == watched_steps.WATCHED
    assert all(seconds > 0 and faults >= 0 for _, seconds, faults in blocks)
