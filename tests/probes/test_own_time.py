"""What of the machine's load is our own: this process, its children that ended and those that live."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from probes.own_time import ask_own_seconds, parse_ticks, read_own_ticks

SPIN = "n = 0\nwhile n < 3_000_000: n += 1\nprint('spun', flush=True)\ninput()"


def write_process(proc: Path, pid: int, stat: str, children: dict[int, str]) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(stat)
    for task, text in children.items():
        (proc / str(pid) / "task" / str(task)).mkdir(parents=True)
        (proc / str(pid) / "task" / str(task) / "children").write_text(text)


def stat_line(pid: int, name: str, ticks: tuple[int, int, int, int]) -> str:
    return f"{pid} ({name}) S 1 1 1 0 -1 4194560 1 2 3 4 {' '.join(map(str, ticks))} 20 0 1 0 100"


def test_a_name_with_blanks_and_brackets_moves_no_field() -> None:
    assert parse_ticks(stat_line(7, "a) b (c", (10, 20, 3, 4))) == 37


@pytest.mark.parametrize("text", ["", "7 (cat", "7 (cat) S 1 2", stat_line(7, "x", (-1, 2, 3, 4))])
def test_a_garbled_line_counts_nothing(text: str) -> None:
    assert parse_ticks(text) == 0


def test_children_of_every_thread_and_their_children_count(tmp_path: Path) -> None:
    own = os.getpid()
    before = read_own_ticks(tmp_path)
    write_process(tmp_path, own, "", {own: "70000001 ", own + 1: "70000002"})
    write_process(tmp_path, 70000001, stat_line(70000001, "python", (100, 10, 1, 1)), {70000001: "70000003"})
    write_process(tmp_path, 70000002, stat_line(70000002, "python", (200, 0, 0, 0)), {70000002: ""})
    write_process(tmp_path, 70000003, stat_line(70000003, "nvml", (1000, 0, 0, 0)), {70000003: ""})
    assert 1312 <= read_own_ticks(tmp_path) - before < 1412


def test_a_loop_of_children_ends(tmp_path: Path) -> None:
    own = os.getpid()
    write_process(tmp_path, own, "", {own: str(own)})
    assert read_own_ticks(tmp_path) >= 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_real_child_counts_while_it_lives_and_after_it_ended() -> None:
    before = read_own_ticks()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = read_own_ticks()
        child.communicate(b"\n")
    assert living > before
    assert read_own_ticks() >= living


def test_where_there_is_no_proc_a_child_counts_while_it_lives_and_after_it_ended() -> None:
    before = ask_own_seconds()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = ask_own_seconds()
        child.communicate(b"\n")
    assert living > before + 0.05
    if sys.platform != "win32":
        assert ask_own_seconds() >= living - 0.02
