"""A trial that compiles does so as a user's process would, in a place of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from app.answering.compiling import MOST_COMPILERS, compiling_environment


@pytest.mark.parametrize(("usable_cores", "compilers"), [(1, 1), (8, 8), (192, MOST_COMPILERS)])
def test_as_many_compilers_run_at_once_as_a_user_has(
    usable_cores: int, compilers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A price of one after the other would be too high, and what it says of too short a run untrue."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with compiling_environment(usable_cores) as found:
        assert found["TORCHINDUCTOR_COMPILE_THREADS"] == str(compilers)
        assert found["TORCH_WARM_POOL"] == "0"
        assert Path(found["TORCHINDUCTOR_CACHE_DIR"]).is_dir()
    assert list(tmp_path.iterdir()) == []


def test_for_a_device_kernels_are_made_as_a_user_s_process_makes_them_and_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Triton, in torch's own processes, whatever cache the user has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with compiling_environment(4, on_cpu=False) as found:
        assert "TORCH_WARM_POOL" not in found
        assert Path(found["TRITON_CACHE_DIR"]).parent == Path(found["TORCHINDUCTOR_CACHE_DIR"])
    assert list(tmp_path.iterdir()) == []
