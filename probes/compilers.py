"""Whether torch.compile has what it needs for a CPU: a C++ compiler with Python's own headers."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path


def why_not_compile(environment: Mapping[str, str] = os.environ, headers: Path | None = None) -> str | None:
    """A sentence; None where all is there.

    The compiler is the one that torch calls: `CXX`, else the system's (torch._inductor.config.cpp.cxx); what torch
    writes for it includes Python.h. headers: their folder; this Python's own where none is given.
    """
    compiler = environment.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler, path=environment.get("PATH")) is None:
        return "There is no C++ compiler here, and torch.compile calls one."
    folder = headers or Path(sysconfig.get_paths()["include"])
    if not (folder / "Python.h").is_file():
        return "Python's headers are not installed here, and what torch.compile writes includes Python.h."
    return None
