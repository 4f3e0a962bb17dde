"""What a context takes, on a device that a fake plays at torch's boundary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from probes.microtrain.calibration import device_memory


def test_how_long_a_device_takes_to_begin_is_told_with_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 30)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def serve(answer: Callable[[Any], object]) -> None:
        told.append(answer(None))

    device_memory._use(serve, "cpu")
    ((reserved, workspace, seconds),) = told
    assert (reserved, workspace) == (50, 30)
    assert seconds > 0
