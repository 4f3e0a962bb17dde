import pytest

from benchmarks import page_faults


def test_every_block_has_its_steps_and_its_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_faults, "SECONDS", 0.01)
    blocks = page_faults.measure("mlp-tiny", "inference", 4)
    assert tuple(watch for watch, _, _ in blocks) == page_faults.WATCHED
    assert all(seconds > 0 and faults >= 0 for _, seconds, faults in blocks)
