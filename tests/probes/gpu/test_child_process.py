"""Real children, real signals; the programs are modules on the child's path."""

import os
from pathlib import Path

from probes.gpu.child_process import TIMEOUT, ask_child, explain_ending, find_library, parse_documents

PLENTY = 30.0


def environment(folder: Path, program: str) -> dict[str, str]:
    (folder / "a_program.py").write_text("from probes.gpu.child_process import open_channel\n" + program, "utf-8")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_what_a_child_says_is_taken_and_what_its_library_prints_is_not(tmp_path: Path) -> None:
    program = "emit = open_channel(9)\nprint('{\"from\": \"a library\"}', flush=True)\nemit({'a': 1})\n"
    answer = ask_child("a_program", "A library", PLENTY, environment(tmp_path, program))
    assert (answer.documents, answer.ending) == (({"a": 1},), None)


def test_what_was_said_before_a_hang_is_kept(tmp_path: Path) -> None:
    program = "emit = open_channel(9)\nemit({'a': 1})\nimport threading; threading.Event().wait()\n"
    for seconds in (1.5, 6.0, PLENTY):  # again where the machine is so slow that it was ended before it said anything
        answer = ask_child("a_program", "A library", seconds, environment(tmp_path, program))
        if answer.documents:
            break
    assert (answer.documents, answer.ending) == (({"a": 1},), TIMEOUT)


def test_a_crash_names_its_signal(tmp_path: Path) -> None:
    answer = ask_child("a_program", "A library", PLENTY, environment(tmp_path, "import os; os.abort()"))
    assert "A library ended its process with SIGABRT" in (answer.ending or "")


def test_a_signal_without_a_name_is_a_number() -> None:
    assert "signal 120" in explain_ending("A library", -120)


def test_an_environment_that_no_process_can_have_is_a_sentence() -> None:
    assert "could not be started" in (ask_child("a_program", "A library", 1.0, {"A": "\0"}).ending or "")


def test_lines_that_are_no_documents_are_passed_over() -> None:
    assert parse_documents('x\n[1]\n3\n{"a": 1}\n' + "[" * 100_000) == ({"a": 1},)


def test_a_library_is_found_on_the_loaders_path(tmp_path: Path) -> None:
    (tmp_path / "libx.so.1").touch()
    assert find_library(("liby.so", "libx.so.1"), {"LD_LIBRARY_PATH": f":{tmp_path}"}) == f"{tmp_path}/libx.so.1"
    assert find_library(("libx.so.1",), {}) is None
