"""Which copy of a package is installed now: what was read of it, or imported, before an upgrade holds no more."""

from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[str, int, int, int]


def stamp_of(package: str) -> Stamp | None:
    """Where its first file is, with what changes as that is written anew, or anything is installed beside it; None
    where it is not installed. Some tenths of a millisecond: the package is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    first = Path(spec.origin)
    try:
        told, beside = first.stat(), first.parent.parent.stat()  # its metadata are written last, in a folder there
    except OSError:
        return None
    return spec.origin, told.st_ino, told.st_mtime_ns, beside.st_mtime_ns
