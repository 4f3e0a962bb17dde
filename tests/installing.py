"""Packages that are installed as pip does it: the old copy goes, another is written."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
from pathlib import Path

_SECONDS = itertools.count(1_700_000_000)  # a file system's clock may stand still from one copy to the next


def install(folder: Path, name: str, version: str) -> None:
    """A package of this version in a folder that is searched for packages, in the place of the one that is there."""
    for old in folder.glob(f"{name}*"):
        shutil.rmtree(old)
    package, metadata = folder / name, folder / f"{name}-{version}.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    now = next(_SECONDS)
    for written in (package / "__init__.py", folder):
        os.utime(written, (now, now))
    importlib.invalidate_caches()
