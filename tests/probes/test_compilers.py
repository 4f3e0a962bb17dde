"""torch.compile is offered only where a C++ compiler and Python's headers are."""

from pathlib import Path

from probes.compilers import why_not_compile


def a_machine(folder: Path, compiler: str = "g++") -> dict[str, str]:
    (folder / compiler).write_text("#!/bin/sh\n")
    (folder / compiler).chmod(0o755)
    (folder / "Python.h").touch()
    return {"PATH": str(folder)}


def test_a_compiler_and_headers_are_all_it_takes(tmp_path: Path) -> None:
    environment = a_machine(tmp_path, "my-c++")
    assert why_not_compile({**environment, "CXX": "my-c++"}, tmp_path) is None


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    environment = a_machine(tmp_path)
    assert "C++ compiler" in (why_not_compile({**environment, "CXX": "other-c++"}, tmp_path) or "")
    assert "C++ compiler" in (why_not_compile({"PATH": str(tmp_path / "nowhere")}, tmp_path) or "")


def test_without_pythons_headers_it_says_so(tmp_path: Path) -> None:
    environment = {**a_machine(tmp_path, "my-c++"), "CXX": "my-c++"}
    assert "Python.h" in (why_not_compile(environment, tmp_path / "nowhere") or "")
