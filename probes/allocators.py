"""Memory allocators that are installed beside the C library's own and could be loaded in its place."""

from __future__ import annotations

import re

from probes.reading import Root, Unreadable

# Where a loader looks without being told (ld.so(8)), and Debian's folder for each architecture below them.
_FOLDERS = ("/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib")
_MULTIARCH = re.compile(r"^[a-z0-9_]+-linux-gnu[a-z0-9_]*$")
# With a version: the bare name belongs to a package for building. The profiler's and the debugging builds are slower.
_LIBRARY = re.compile(r"^lib(tcmalloc|tcmalloc_minimal|jemalloc)\.so\.\d+$")


def read_allocators(root: Root) -> tuple[str, ...]:
    """Names that LD_PRELOAD takes, such as `libtcmalloc_minimal.so.4`, in the order of the alphabet."""
    names: set[str] = set()
    for folder in _FOLDERS:
        entries = _list(root, folder)
        names.update(entries)
        for entry in entries:
            if _MULTIARCH.match(entry):
                names.update(_list(root, f"{folder}/{entry}"))
    return find_allocators(names)


def find_allocators(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if _LIBRARY.match(name)))


def _list(root: Root, folder: str) -> list[str]:
    try:
        return root.list(folder)
    except Unreadable:
        return []
