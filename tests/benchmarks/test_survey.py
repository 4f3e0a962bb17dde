"""The survey's benchmark compares what it says it compares."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.large_machine import write_large_machine
from benchmarks.survey import ABSENT, Contender, command, installed, loaded, module, take_turns, write_table
from probes.survey import take_survey


def test_a_large_machine_is_what_it_says(tmp_path: Path) -> None:
    cpu = take_survey(write_large_machine(tmp_path, 96), deadline_seconds=60).cpu
    assert (cpu.name, cpu.logical_cores, cpu.physical_cores) == ("AMD EPYC 7451 24-Core Processor", 96, 48)
    assert (cpu.sockets, cpu.numa_nodes) == (2, 2)
    assert cpu.cache_bytes.l3 == 12 * (8 << 20)
    assert cpu.cache_bytes.l1i == 48 * (64 << 10)


def test_what_is_not_installed_is_said_and_not_dropped() -> None:
    figures = take_turns([installed("no tool", ["no-such-tool"]), module("no package", "no_such_package", [])], 1)
    assert [(figure.value, figure.note) for figure in figures] == [(None, ABSENT)] * 2
    table = "\n".join(write_table([{**asdict(figure), "met": figure.met} for figure in figures]))
    assert f"| no tool | {ABSENT} |" in table


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    contenders = [Contender(name, lambda name=name: order.append(name) or 0) for name in ("a", "b")]  # type: ignore[misc]
    figures = take_turns(contenders, 2)
    assert order == ["a", "b"] * 3
    assert [(figure.details or {})["runs"] for figure in figures] == [2, 2]


def test_a_tool_that_fails_says_its_code() -> None:
    [figure] = take_turns([command("fails", [sys.executable, "-c", "raise SystemExit(3)"], 60_000.0)], 1)
    assert figure.note == "ended with code 3 in 2 of 2 runs"
    assert (figure.value, figure.met) == (None, False)
    (_, _, row) = write_table([{**asdict(figure), "met": figure.met}])
    assert row == "| fails | ended with code 3 in 2 of 2 runs |  | below 60000 ms | no |"


def test_a_tool_that_failed_once_has_no_time_either() -> None:
    codes = iter([0, 7, 0])
    [figure] = take_turns([Contender("fails once", lambda: next(codes), 60_000.0)], 2)
    assert (figure.value, figure.met, figure.note) == (None, False, "ended with code 7 in 1 of 3 runs")


def test_answers_that_failed_meet_no_target() -> None:
    load = {"requests": 400, "errors": 3, "p50_seconds": 0.001, "p99_seconds": 0.002}
    figure = loaded("GET /hardware p50", load, "p50", 2.0)
    assert (figure.value, figure.met, figure.note) == (1.0, False, "3 of 400 answers failed")
    good = loaded("GET /hardware p50", {**load, "errors": 0}, "p50", 2.0)
    assert (good.met, good.note) == (True, None)
