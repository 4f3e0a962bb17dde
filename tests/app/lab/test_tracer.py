"""The process that traces is started with what its first job needs."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app import labjobs
from app.errors import LabBusy, LabError
from app.lab import Lab
from app.lab.child import Child
from app.lab.tracer import MAX_WAITING, Tracer
from app.settings import Settings
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.lab.programs import ECHO, HANGING, READY, program, serving
from tests.app.lab.test_child import is_gone
from tests.installing import install

ARGUMENTS = serving('say(event="result", job=job["job"], result={"arguments": sys.argv[1:]})')
LAYERS = {"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}
BERT = {"huggingface": {"model_type": "bert"}, "task": "text-classification", "sequence_length": 8}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes another's place does so at once."""
    monkeypatch.setattr("app.lab.tracer.SUCCESSION_SECONDS", 0.0)


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


# What it was asked in this process, how it was started, and who it is.
HISTORY = program(
    READY,
    "asked = []",
    "for line in sys.stdin:",
    "    job = json.loads(line)",
    "    asked.append(job['kind'])",
    "    told = dict(pid=os.getpid(), asked=asked, arguments=sys.argv[1:])",
    "    say(event='result', job=job['job'], result=told)",
)


async def asked_until_another(tracer: Tracer, job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first answer of this process, and that of the one which takes its place."""
    first = found = await tracer.run(job)
    while found["pid"] == first["pid"]:
        await asyncio.sleep(0.01)
        found = await tracer.run(job)
    return first, found


def test_after_so_many_traces_another_process_takes_the_place_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 2)

    async def use() -> list[int]:
        tracer = Tracer(60.0, set(), HISTORY, lambda: None)
        first, second = await asked_until_another(tracer, {"kind": "trace"})
        assert len(first["asked"]) == 1
        await tracer.close()
        return [first["pid"], second["pid"]]

    one, two = asyncio.run(use())
    assert is_gone(one)
    assert is_gone(two)


def test_what_was_installed_anew_is_imported_by_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("app.lab.tracer.PACKAGES", ("made_up_torch",))
    monkeypatch.syspath_prepend(str(tmp_path))

    async def use() -> list[list[str]]:
        tracer = Tracer(60.0, set(), HISTORY, lambda: None)
        asked = []
        for version in (None, "1", "1", "22"):
            if version is not None:
                install(tmp_path, "made_up_torch", version)
            asked.append((await tracer.run({"kind": "trace"}))["asked"])
        await tracer.close()
        return asked

    assert [len(jobs) for jobs in asyncio.run(use())] == [1, 1, 1, 1]


def test_the_process_stays_while_nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("app.lab.tracer.PACKAGES", ("made_up_torch", "not_installed"))
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "made_up_torch", "1")

    async def use() -> list[str]:
        tracer = Tracer(60.0, set(), HISTORY, lambda: None)
        for _ in range(2):
            asked = (await tracer.run({"kind": "trace"}))["asked"]
        await tracer.close()
        return list(asked)

    assert len(asyncio.run(use())) == 2


def test_who_takes_its_place_is_as_ready_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 2)
    config = {"kind": "trace", "workload": {"model": {"kind": "huggingface"}}}

    async def use() -> dict[str, Any]:
        tracer = Tracer(60.0, set(), HISTORY, lambda: None)
        await tracer.run(config)
        await tracer.run({"kind": "prepare"})
        _, second = await asked_until_another(tracer, {"kind": "trace"})
        await tracer.close()
        return second

    second = asyncio.run(use())
    assert second["asked"][0] == "prepare"
    assert second["arguments"][:2] == ["--forks", "--configs"]


def test_where_no_other_process_can_be_had_the_first_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 1)
    here = tmp_path / "here"
    once = f"import os; os.path.exists({str(here)!r}) and os._exit(3); open({str(here)!r}, 'x').close()"
    lines = (once, *HISTORY[-1].splitlines()[2:])

    async def use() -> list[int]:
        tracer = Tracer(60.0, set(), program(*lines), lambda: None)
        pids = []
        for _ in range(3):
            pids.append((await tracer.run({"kind": "trace"}))["pid"])
            assert tracer._successor is not None
            await tracer._successor
        await tracer.close()
        return pids

    assert len(set(asyncio.run(use()))) == 1


def test_a_process_that_can_be_made_ready_for_no_config_gives_way_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where transformers cannot be imported."""
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 2)
    refusal = "event='failed', job=job['job'], code='unsupported', reason='No config can be built.'"
    answer = "say(event='result', job=job['job'], result=told)"
    lines = HISTORY[-1].splitlines()[2:-1]
    unready = program(*lines, f"    say({refusal}) if job['kind'] == 'prepare' else {answer}")

    async def use() -> None:
        tracer = Tracer(60.0, set(), unready, lambda: None)
        with pytest.raises(LabError, match="No config"):
            await tracer.run({"kind": "prepare"})
        _, second = await asked_until_another(tracer, {"kind": "trace"})
        assert "prepare" not in second["asked"]
        await tracer.close()

    asyncio.run(use())


@pytest.mark.parametrize("ends", [True, False])
def test_no_process_takes_anothers_place_beside_a_measurement_until_it_did_twice_as_many(
    monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 2)
    measuring = True

    async def use() -> None:
        nonlocal measuring
        tracer = Tracer(60.0, set(), HISTORY, lambda: None, lambda: measuring)
        await tracer.run({"kind": "trace"})
        first = await tracer.run({"kind": "trace"})
        assert tracer._successor is not None
        await asyncio.wait([tracer._successor], timeout=0.5)
        assert (await tracer.run({"kind": "trace"}))["pid"] == first["pid"]
        if ends:
            measuring = False
        else:  # others measure for ever
            assert (await tracer.run({"kind": "trace"}))["pid"] == first["pid"]
        await tracer._successor
        assert (await tracer.run({"kind": "trace"}))["pid"] != first["pid"]
        await tracer.close()

    asyncio.run(use())


def test_where_memory_is_scarce_the_first_ends_before_another_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 1)

    async def use() -> None:
        living: set[Child] = set()
        tracer = Tracer(60.0, living, HISTORY, lambda: None)
        tracer.rest_at_most(60.0)
        first = await tracer.run({"kind": "trace"})
        assert tracer._successor is not None
        await tracer._successor
        assert not tracer.warm
        assert (await tracer.run({"kind": "trace"}))["pid"] != first["pid"]
        assert len(living) <= 2
        await tracer.close()

    asyncio.run(use())


def test_the_end_comes_to_both_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.lab.tracer.MOST_JOBS", 1)

    async def use() -> None:
        living: set[Child] = set()
        tracer = Tracer(60.0, living, HISTORY, lambda: None)
        await tracer.run({"kind": "trace"})
        await tracer.close()
        assert not living

    asyncio.run(use())


def test_a_config_that_is_widened_is_one() -> None:
    async def use() -> list[str]:
        tracer = Tracer(60.0, set(), ARGUMENTS, lambda: None)
        answer = await tracer.run(labjobs.widen_job(parse_model(BERT), 0.5))
        await tracer.close()
        return list(answer["arguments"])

    assert asyncio.run(use())[:2] == ["--forks", "--configs"]


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
