"""How the store's file is written, by what it lies on."""

from __future__ import annotations

import os
from pathlib import Path

from probes.reading import Root
from probes.storage import find_mount, read_kind, read_mounts


def journal_mode(folder: Path, root: Root | None = None) -> str:
    """SQLite's: `WAL`, or `DELETE` on a network. Whoever uses a write-ahead log shares memory with all others who do,
    so they have to be on one machine (sqlite.org/wal.html)."""
    root = root or Root()
    mount = find_mount(read_mounts(root), os.path.realpath(folder))
    return "DELETE" if mount is not None and read_kind(root, mount) == "network" else "WAL"
