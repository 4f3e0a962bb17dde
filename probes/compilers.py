"""Whether torch.compile has what it needs: a compiler with Python's own headers, and for a device Triton."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

# What Triton calls where `CC` names nothing (triton/runtime/build.py).
C_COMPILERS = ("gcc", "clang")


def why_not_compile(
    device: str = "cpu", environment: Mapping[str, str] = os.environ, headers: Path | None = None
) -> str | None:
    """A sentence; None where all is there.

    For a CPU torch calls a C++ compiler: `CXX`, else the system's (torch._inductor.config.cpp.cxx). For any other
    device it asks Triton, which calls a C compiler: `CC`, else one of C_COMPILERS. What both write for it includes
    Python.h. headers: their folder; this Python's own where none is given.
    """
    lacking = _lacking_cxx(environment) if device == "cpu" else _lacking_triton() or _lacking_c(environment)
    if lacking is not None:
        return lacking
    folder = headers or Path(sysconfig.get_paths()["include"])
    if not (folder / "Python.h").is_file():
        return "Python's headers are not installed here, and what torch.compile writes includes Python.h."
    return None


def _lacking_cxx(environment: Mapping[str, str]) -> str | None:
    compiler = environment.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if _is_there(compiler, environment):
        return None
    return "There is no C++ compiler here, and torch.compile calls one."


def _lacking_triton() -> str | None:
    if importlib.util.find_spec("triton") is not None:
        return None
    return "Triton is not installed here, by which torch.compile makes kernels for a device."


def _lacking_c(environment: Mapping[str, str]) -> str | None:
    chosen = environment.get("CC")
    if any(_is_there(compiler, environment) for compiler in ((chosen,) if chosen else C_COMPILERS)):
        return None
    return "There is no C compiler here, and Triton, by which torch.compile makes kernels for a device, calls one."


def _is_there(compiler: str, environment: Mapping[str, str]) -> bool:
    return shutil.which(compiler, path=environment.get("PATH")) is not None
