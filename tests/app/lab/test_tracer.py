"""The process that traces is started with what its first job needs."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from app import labjobs
from app.errors import LabBusy
from app.lab import Lab
from app.lab.tracer import MAX_WAITING, Tracer
from app.settings import Settings
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.lab.programs import ECHO, HANGING, serving
from tests.app.lab.test_child import is_gone

ARGUMENTS = serving('say(event="result", job=job["job"], result={"arguments": sys.argv[1:]})')
LAYERS = {"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}
BERT = {"huggingface": {"model_type": "bert"}, "task": "text-classification", "sequence_length": 8}


def arguments_for(model: Any) -> list[str]:
    async def use() -> list[str]:
        tracer = Tracer(60.0, set(), ARGUMENTS, lambda: None)
        try:
            workload = Workload(parse_model(model), 1)
            answer = await tracer.run({"kind": "trace", "workload": workload.to_json()})
        finally:
            await tracer.close()
        return list(answer["arguments"])

    return asyncio.run(use())


def test_a_config_is_traced_by_two_processes_and_a_layer_list_by_one() -> None:
    assert arguments_for(BERT)[:2] == ["--forks", "--configs"]
    assert "--forks" not in arguments_for(LAYERS)


def test_after_so_many_traces_a_fresh_process_makes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 2)

    async def use() -> list[int]:
        tracer = Tracer(60.0, set(), ECHO, lambda: None)
        asked = [(await tracer.run({"kind": "trace"}))["pid"] for _ in range(5)]
        await tracer.close()
        return asked

    one, again, two, once_more, three = asyncio.run(use())
    assert (one, two) == (again, once_more)
    assert len({one, two, three}) == 3
    assert all(is_gone(pid) for pid in (one, two, three))


def test_libraries_keep_few_kernels_of_models_that_hardly_come_again() -> None:
    """What they keep else of a thousand models is gigabytes."""
    variables = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    words = serving(f'say(event="result", job=job["job"], result={{n: os.environ[n] for n in {variables}}})')

    async def use() -> dict[str, Any]:
        tracer = Tracer(60.0, set(), words, lambda: None)
        kept = await tracer.run({"kind": "trace"})
        await tracer.close()
        return kept

    assert all(int(number) < 100 for number in asyncio.run(use()).values())


def test_a_trace_that_waits_when_the_service_ends_starts_no_process() -> None:
    """And the one that ran is told why it ended, too."""

    async def use() -> tuple[list[BaseException | dict[str, Any]], int]:
        lab = Lab(Settings(), HANGING)
        job = labjobs.trace_job(Workload(parse_model(LAYERS), 1), devices=False)
        asked = [asyncio.create_task(lab.run(job)) for _ in range(3)]
        await asyncio.sleep(0)  # until the first one's process is being started
        await lab.close()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return answers, len(lab._living)

    answers, living = asyncio.run(use())
    assert [getattr(answer, "code", None) for answer in answers] == ["ended"] * 3
    assert living == 0


def test_who_finds_too_many_waiting_is_told_to_come_back_after_as_many_usual_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0.0, 7.0)  # is looked at as each begins, and as it ends
    monkeypatch.setattr("app.lab.tracer.time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("app.lab.tracer.NEWEST_SHARE", 1.0)

    async def use() -> int:
        tracer = Tracer(60.0, set(), ECHO, lambda: None)
        await tracer.run({"kind": "trace"})
        asked = [asyncio.create_task(tracer.run({"kind": "trace"})) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(LabBusy) as caught:
            await tracer.run({"kind": "trace"})
        await asyncio.gather(*asked)
        await tracer.close()
        return caught.value.retry_after_seconds

    assert asyncio.run(use()) == 7 * MAX_WAITING
