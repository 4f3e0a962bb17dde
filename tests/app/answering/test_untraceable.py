"""A model that can be run and not followed is refused with the advice to measure it, and that advice holds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor import Recommendation, Request
from app.advisor.plans import candidate_plans
from app.errors import LabError
from app.lab import Lab
from app.lab.child import Child
from app.service import Crosspoint
from app.settings import Settings
from probes.workload.description import Workload
from probes.workload.models import parse_model, python_model
from tests.app.advisor.build import ONE, a_measurement
from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint

# What it does depends on its numbers, and its weights are larger than what is stepped for a trace.
CODE = """
import torch
from torch import nn

class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.empty(51_000_000))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x)[x[:, 0] > 0]

def make_model():
    return Picky(), lambda batch_size: (torch.randn(batch_size, 4), torch.randint(3, (batch_size,)))
"""


def test_quick_measures_what_cannot_be_traced_and_instant_knows_it_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "picky_model.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a lock of its own
    workload = Workload(python_model("picky_model:make_model"), batch_size=4, mode="inference")

    async def ask(crosspoint: Crosspoint, effort: str) -> Recommendation:
        return await crosspoint.recommend(Request(workload, precision="fp32", effort=effort))  # type: ignore[arg-type]

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path / "data")) as crosspoint:
            with pytest.raises(LabError, match=r"aten.*Measure it instead \(effort quick\)"):
                await ask(crosspoint, "instant")
            for effort in ("quick", "instant"):
                answer = await ask(crosspoint, effort)
                assert answer.options[0].basis in ("measured", "probed")  # beside others who hold cores
                assert "not-traced" in {reason.code for reason in answer.reasons}

    asyncio.run(use())


def test_on_a_busy_machine_what_was_measured_of_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "busy_model.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    workload = Workload(python_model("busy_model:make_model"), batch_size=4, mode="inference")
    request = Request(workload, precision="fp32", effort="quick")

    @contextlib.asynccontextmanager
    async def busy(*_: object, **__: object) -> AsyncIterator[Child]:
        raise LabError("too-busy", "Others measure.")
        yield

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path / "data")) as crosspoint:
            monkeypatch.setattr(crosspoint.lab, "session", busy)
            with pytest.raises(LabError, match="Others measure"):
                await crosspoint.recommend(request)  # nothing is known of it
            survey = await crosspoint.survey()
            row = a_measurement(candidate_plans(survey, request)[0], 4, 0.01)
            await crosspoint.store.keep_measurements(survey.fingerprint, workload, [row])
            answer = await crosspoint.recommend(request)
            assert answer.options[0].basis == "measured"
            assert {"not-traced", "not-measured"} <= {reason.code for reason in answer.reasons}

    asyncio.run(use())


# Of inference a trace takes too long.
REFUSING = serving(
    "slow = job['workload']['mode'] == 'inference'",
    "code, reason = ('too-slow', 'It took long.') if slow else ('unsupported', 'Measure it (effort quick).')",
    "reason = 'No step of it runs.' if job['workload']['optimizer'] == 'adagrad' else reason",
    "say(event='failed', job=job['job'], code=code, reason=reason)",
)
REFUSED = Workload(parse_model({"layers": [{"type": "linear", "out": 3}], "input_shape": [5]}), 4)


@pytest.mark.parametrize("effort", ["instant", "quick"])
def test_where_another_machine_is_asked_about_it_is_said_that_nothing_can_be_measured_here(
    tmp_path: Path, effort: str
) -> None:
    """Who follows the advice to measure would be refused in the same words."""

    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_profile(a_profile(fingerprint="elsewhere"))
        with pytest.raises(LabError, match=r"another machine's\. Ask on that machine itself, or without the profile"):
            await crosspoint.recommend(Request(REFUSED, effort=effort, profile="made-up"))
        with pytest.raises(LabError, match=r"Measure it \(effort quick\)\.$"):
            await crosspoint.recommend(Request(REFUSED))
        overdue = replace(REFUSED, mode="inference")
        with pytest.raises(LabError, match=r"^It took long\. For this question nothing can be measured here"):
            await crosspoint.recommend(Request(overdue, effort=effort, profile="made-up"))
        never = replace(REFUSED, optimizer="adagrad")
        with pytest.raises(LabError, match=r"^No step of it runs\.$"):
            await crosspoint.recommend(Request(never, effort=effort, profile="made-up"))
        with pytest.raises(LabError, match=r"^It took long\. Or measure it instead \(effort quick\)\.$"):
            await crosspoint.recommend(Request(overdue))

    with_crosspoint(tmp_path, use, REFUSING)


@pytest.mark.parametrize(("effort", "ran_at", "retried"), [
    ("instant", None, True), ("quick", None, True), ("instant", "here", True), ("instant", "elsewhere", False),
    ("quick", "elsewhere", False),
])  # fmt: skip
def test_of_another_machine_a_late_trace_is_tried_again_unless_the_model_ran_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: str, ran_at: str | None, *, retried: bool
) -> None:
    """What ran here tells nothing of it, nor can steps run instead."""
    overdue, tries = replace(REFUSED, mode="inference"), []

    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_profile(a_profile(fingerprint="elsewhere"))
        request = Request(overdue, profile="made-up")
        with pytest.raises(LabError):
            await crosspoint.recommend(request)
        fingerprint = (await crosspoint.survey()).fingerprint if ran_at == "here" else ran_at
        if fingerprint:
            await crosspoint.store.keep_measurements(fingerprint, overdue, [a_measurement(ONE, 4, 0.01)])
        traces = crosspoint.new_trace

        async def counted(*args: Any, **options: Any) -> Any:
            tries.append(args)
            return await traces(*args, **options)

        monkeypatch.setattr(crosspoint, "new_trace", counted)
        with contextlib.suppress(LabError):
            await crosspoint.recommend(replace(request, effort=effort))  # type: ignore[arg-type]

    with_crosspoint(tmp_path, use, REFUSING)
    assert bool(tries) is retried


def test_of_a_captured_machine_it_is_said_that_it_can_only_be_read(tmp_path: Path) -> None:
    async def use() -> None:
        settings = Settings(data_dir=tmp_path / "data", sysroot=tmp_path)
        async with Crosspoint(settings, Lab(settings, REFUSING)) as crosspoint:
            with pytest.raises(LabError, match=r"can only be read\. Ask on that machine itself\.$"):
                await crosspoint.recommend(Request(REFUSED))

    asyncio.run(use())


# A user's function that never returns: whoever waits for it is told so, and its process ends as at its deadline.
STUCK = serving(
    "late = f'The trace was ended after {job[\"seconds\"]:.0f} seconds: your function had not returned. Mend it.'",
    "trace = job['kind'] == 'trace'",
    "code, reason = ('too-slow', late) if trace else ('failed', 'No model was there.')",
    "say(event='failed', job=job['job'], code=code, reason=reason)",
)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [({"effort": "instant"}, 60), ({"effort": "quick"}, 60), ({"effort": "quick", "time_limit_seconds": 3.0}, 33)],
)
def test_a_function_that_does_not_return_is_waited_for_once_and_nothing_is_advised_that_ends_the_same(
    tmp_path: Path, asked: dict[str, object], seconds: int
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        told = rf"^The trace was ended after {seconds} seconds: your function had not returned\. Mend it\.$"
        with pytest.raises(LabError, match=told):
            await crosspoint.recommend(Request(REFUSED, **asked))  # type: ignore[arg-type]

    with_crosspoint(tmp_path, use, STUCK)


def test_where_steps_are_waited_for_longer_than_the_trace_both_endings_are_told(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises(LabError, match=r"^No model was there\. Before that, .* after 60 seconds: your function"):
            await crosspoint.recommend(Request(REFUSED, effort="thorough"))

    with_crosspoint(tmp_path, use, STUCK)
