"""Allocators that could be loaded in place of the C library's."""

from pathlib import Path

import pytest

from probes.allocators import read_allocators
from probes.reading import Root


@pytest.mark.parametrize("folder", ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib", "lib/aarch64-linux-gnu"])
def test_libraries_are_found_where_a_loader_looks(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    for name in ("libtcmalloc_minimal.so.4", "libjemalloc.so.2", "libm.so.6"):
        (tmp_path / folder / name).write_text("")
    assert read_allocators(Root(tmp_path)) == ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")


def test_what_is_for_building_profiling_or_debugging_is_none(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    for name in ("libtcmalloc.so", "libtcmalloc_and_profiler.so.4", "libtcmalloc_debug.so.4", "libc_malloc_debug.so.0"):
        (tmp_path / "usr/lib" / name).write_text("")
    assert read_allocators(Root(tmp_path)) == ()


def test_a_machine_without_these_folders_has_none(tmp_path: Path) -> None:
    assert read_allocators(Root(tmp_path)) == ()


def test_this_machine_can_be_asked() -> None:
    found = read_allocators(Root())
    if not found:
        pytest.skip("no allocator is installed here")
    assert all(name.startswith("lib") for name in found)
