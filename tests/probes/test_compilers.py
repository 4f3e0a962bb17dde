"""torch.compile is offered only where a compiler and Python's headers are, and for a device Triton."""

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from probes.compilers import why_not_compile


def a_machine(folder: Path, compiler: str = "g++") -> dict[str, str]:
    (folder / compiler).write_text("#!/bin/sh\n")
    (folder / compiler).chmod(0o755)
    (folder / "Python.h").touch()
    return {"PATH": str(folder)}


def test_a_compiler_and_headers_are_all_it_takes(tmp_path: Path) -> None:
    environment = a_machine(tmp_path, "my-c++")
    assert why_not_compile("cpu", {**environment, "CXX": "my-c++"}, tmp_path) is None


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    environment = a_machine(tmp_path)
    assert "C++ compiler" in (why_not_compile("cpu", {**environment, "CXX": "other-c++"}, tmp_path) or "")
    assert "C++ compiler" in (why_not_compile("cpu", {"PATH": str(tmp_path / "nowhere")}, tmp_path) or "")


def test_without_pythons_headers_it_says_so(tmp_path: Path) -> None:
    environment = {**a_machine(tmp_path, "my-c++"), "CXX": "my-c++"}
    assert "Python.h" in (why_not_compile("cpu", environment, tmp_path / "nowhere") or "")


@pytest.fixture
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed, whatever is so here."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_for_a_device_a_c_compiler_does(tmp_path: Path, compiler: str) -> None:
    environment = a_machine(tmp_path, compiler)
    assert why_not_compile("cuda:0", environment, tmp_path) is None
    assert "C compiler" in (why_not_compile("cuda:0", {**environment, "CC": "other-cc"}, tmp_path) or "")
    assert "C compiler" in (why_not_compile("cuda:0", {"PATH": str(tmp_path / "nowhere")}, tmp_path) or "")
    assert "Python.h" in (why_not_compile("cuda:0", environment, tmp_path / "nowhere") or "")


def test_for_a_device_triton_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Triton" in (why_not_compile("cuda:0", a_machine(tmp_path, "gcc"), tmp_path) or "")
