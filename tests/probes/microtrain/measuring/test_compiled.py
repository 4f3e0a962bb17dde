"""Compiled plans in the real child: torch's compiler is run, its cache stays in the folder that it was given."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.compilers import why_not_compile
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain import brief
from tests.probes.microtrain.pipes import MOST_SECONDS, Pipes, started_child
from tests.probes.microtrain.test_measure import measure

WHY_NOT = why_not_compile()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

MLP = parse_model({"layers": [{"type": "linear", "out": 2}, {"type": "relu"}], "input_shape": [4]})
PLAIN, COMPILED = Plan("cpu", "fp32", 1), Plan("cpu", "fp32", 1, compiled=True)
COMPILED_BF16 = Plan("cpu", "bf16", 1, compiled=True)
WORKLOAD = Workload(MLP, 4, mode="inference")
# The instruction set is not tried out and nothing is precompiled: seconds instead of a quarter of a minute.
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


@pytest.fixture
def compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a child that is started now compiles, with two compilers at once."""
    places = {"TMPDIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for name, value in {**QUICK, **places, "TORCHINDUCTOR_COMPILE_THREADS": "2"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def child(compiling: Path) -> Iterator[Pipes]:
    with started_child(program=brief.PROGRAM) as pipes:
        yield pipes


def test_a_compiled_plan_says_what_compiling_took_and_is_compiled_once(child: Pipes, compiling: Path) -> None:
    first, bf16 = measure(child, WORKLOAD, COMPILED, COMPILED_BF16)
    assert (first.outcome, first.plan, first.reason) == ("ok", COMPILED, None)
    assert (bf16.outcome, bf16.plan, bf16.reason) == ("ok", COMPILED_BF16, None)
    assert first.startup_seconds is not None
    assert first.startup_seconds > 0
    assert any(compiling.rglob("*.so"))
    again, _ = measure(child, WORKLOAD, COMPILED, COMPILED_BF16)
    assert again.outcome == "ok"
    assert again.startup_seconds == pytest.approx(first.startup_seconds, rel=0.01)
    mixed = measure(child, WORKLOAD, PLAIN, COMPILED)
    assert [row.outcome for row in mixed] == ["ok", "unsupported"]
    assert "job of their own" in (mixed[1].reason or "")


def test_a_compiler_that_fails_costs_only_its_plan(
    compiling: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", str(_a_compiler(tmp_path, "exit 1")))
    with started_child(program=brief.PROGRAM) as child:
        (row,) = measure(child, WORKLOAD, COMPILED)
        assert row.outcome == "failed"
        assert str(tmp_path) not in (row.reason or "")
        (plain,) = measure(child, WORKLOAD, PLAIN)
        assert plain.outcome == "ok"


def test_a_compiler_that_hangs_ends_with_who_asked_for_it(
    compiling: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    os.mkfifo(called)
    monkeypatch.setenv("CXX", str(_a_compiler(tmp_path, f"echo $$ > {called}", "exec sleep 600")))
    with started_child() as child:
        child.send(job="it", kind="measure", workload=WORKLOAD.to_json(), plans=[COMPILED.to_json()], seconds=1.0)
        begun = os.open(called, os.O_RDONLY | os.O_NONBLOCK)
        while begun not in (ready := select.select([begun, child.process.stdout], [], [], MOST_SECONDS)[0]):
            assert ready, "no compiler was called"
            event = child.read()
            assert event["event"] == "progress", event
        compiler = os.pidfd_open(int(os.read(begun, 100)))
        assert child.process.stdin is not None
        child.process.stdin.close()
        ended, _, _ = select.select([compiler], [], [], MOST_SECONDS)
    os.close(begun)
    os.close(compiler)
    assert ended


def _a_compiler(folder: Path, *lines: str) -> Path:
    path = folder / "a-compiler"
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path
