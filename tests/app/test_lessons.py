"""What one model took here helps to tell what a like one will take: kept, found again, priced by today's profile."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from app.advisor import recommend
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.lessons import MOST_WORKLOADS, REMEMBERED, lesson_of, lessons_of
from app.service import Crosspoint
from app.settings import Settings
from app.store import Store
from app.store.lessons import LessonRow
from app.store.store import FILE_NAME
from probes.hardware import Load
from probes.measurement import Measurement, Timing
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, TWO, a_measurement
from tests.app.advisor.machine import GPU, a_profile

T = TypeVar("T")
PROFILE = a_profile()
# Times too long: by more than two runs here differ, and by less than the ten times beyond which nothing is learned.
SLOW = 2.5


pytestmark = pytest.mark.usefixtures("own_lock")


def with_crosspoint(folder: Path, use: Callable[[Crosspoint], Awaitable[T]], **settings: Any) -> T:
    async def session() -> T:
        async with Crosspoint(Settings(data_dir=folder, grace_seconds=60, **settings)) as crosspoint:
            return await use(crosspoint)

    return asyncio.run(session())


def dense(*sizes: int) -> Workload:
    layers: list[Any] = []
    for size in sizes[1:]:
        layers += [{"type": "linear", "out": size}, "relu"]
    return Workload(parse_model({"layers": layers[:-1], "input_shape": [sizes[0]]}), 32)


LSTM = {"type": "lstm", "hidden": 64, "layers": 2, "output": "last"}
TOKENS = {
    "layers": [{"type": "embedding", "in": 500, "out": 64}, LSTM, {"type": "linear", "out": 2}],
    "input_shape": [48],
}
LEARNED, LIKE, UNLIKE = (
    dense(256, 768, 768, 10),
    dense(256, 640, 896, 16),
    Workload(parse_model(TOKENS), 32, mode="inference"),
)


async def a_slow_profile(
    crosspoint: Crosspoint, created_at: str = "2026-11-21T09:00:00Z", times: float = SLOW
) -> Profile:
    """This machine's, by its fingerprint, and several times slower than any."""
    survey = await crosspoint.survey()
    profile = a_profile(fingerprint=survey.fingerprint)
    points = tuple(replace(point, seconds=_longer(point.seconds, times)) for point in profile.points)
    networks = tuple(replace(point, seconds=_longer(point.seconds, times)) for point in profile.networks)
    made = replace(profile, points=points, networks=networks, created_at=created_at)
    await crosspoint.store.keep_profile(made)
    return made


def _longer(timing: Timing, times: float) -> Timing:
    return Timing.from_samples([sample * times for sample in timing.samples])


async def measure(crosspoint: Crosspoint, workload: Workload) -> Measurement:
    """As it would be on a machine where nobody else is."""
    (row,) = await crosspoint.measure(Request(workload), seconds=1.0, plans=[ONE])
    return replace(row, others_cores=None)


async def quickest(crosspoint: Crosspoint, *workloads: Workload) -> list[Measurement]:
    """Of each the run that was disturbed least, of some that took turns."""
    rounds = [[await measure(crosspoint, workload) for workload in workloads] for _ in range(3)]
    return [min(rows, key=seconds_of) for rows in zip(*rounds, strict=True)]


def seconds_of(row: Measurement) -> float:
    assert row.step is not None
    return row.step.median


async def told(crosspoint: Crosspoint, workload: Workload) -> tuple[float, Recommendation]:
    """The time of one thread, as if nobody else were on the machine, and the whole answer."""
    survey = replace(await crosspoint.survey(), load=Load())
    profile, trace = await crosspoint.profile(survey), await crosspoint.trace(workload)
    experience = await crosspoint.lessons.like(survey, profile, trace, workload)
    answer = recommend(survey, profile, trace, [], Request(workload, precision="fp32"), experience)
    option = next(option for option in answer.options if option.plan.key == ONE.key)
    assert option.step_seconds is not None
    assert option.basis == "predicted"
    return option.step_seconds.median, answer


def codes(answer: Recommendation) -> set[str]:
    return {reason.code for reason in answer.reasons}


def test_a_like_models_estimate_moves_towards_what_is_then_measured_and_an_unlike_ones_does_not(tmp_path: Path) -> None:
    learned, ran = with_crosspoint(tmp_path / "measured", lambda crosspoint: quickest(crosspoint, LEARNED, LIKE))

    async def use(crosspoint: Crosspoint) -> None:
        # Slower than the machine as it is in this very hour: a neighbour may hold it back by any factor.
        await a_slow_profile(crosspoint, times=1.0)
        foretold, _ = await told(crosspoint, LEARNED)
        await a_slow_profile(crosspoint, "2026-11-21T10:00:00Z", times=SLOW * seconds_of(learned) / foretold)
        like, _ = await told(crosspoint, LIKE)
        unlike, _ = await told(crosspoint, UNLIKE)
        # As of a quiet hour: what met slow cores alone, or others' work, teaches nothing.
        quiet = replace(learned, steady=True, others_cores=0.0, slow_share=None, slowdown=None)
        await keep(crosspoint, LEARNED, [quiet])
        better, answer = await told(crosspoint, LIKE)
        assert "learned-from-like-models" in codes(answer)
        assert "learned-from-like-models" in codes(await crosspoint.recommend(Request(LIKE, precision="fp32")))
        still, _ = await told(crosspoint, UNLIKE)
        assert abs(math.log(better / seconds_of(ran))) < abs(math.log(like / seconds_of(ran)))
        assert abs(math.log(still / unlike)) < 0.1 * abs(math.log(better / like))

    with_crosspoint(tmp_path, use)


def test_nothing_is_learned_where_the_settings_say_so(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        await a_slow_profile(crosspoint)
        before, _ = await told(crosspoint, LIKE)
        await keep(crosspoint, LEARNED, [a_measurement(ONE, 32, 1e-3)])
        after, answer = await told(crosspoint, LIKE)
        assert after == before
        assert "learned-from-like-models" not in codes(answer)
        assert await crosspoint.store.lessons((await crosspoint.survey()).fingerprint) == []

    with_crosspoint(tmp_path, use, learning=False)


async def keep(crosspoint: Crosspoint, workload: Workload, rows: list[Measurement]) -> None:
    await crosspoint.trace(workload)
    document = {"measurements": [row.to_json() for row in rows]}
    await crosspoint.keep_measurements(await crosspoint.survey(), workload, document)


def test_a_new_calibration_prices_what_was_learned_anew(tmp_path: Path) -> None:
    """What was measured is off from the one profile, and as the other foretells."""

    async def use(crosspoint: Crosspoint) -> None:
        await a_slow_profile(crosspoint)
        await crosspoint.trace(LIKE)
        slow, _ = await told(crosspoint, LEARNED)
        await keep(crosspoint, LEARNED, [a_measurement(ONE, 32, slow / SLOW)])
        _, off = await told(crosspoint, LIKE)
        await a_slow_profile(crosspoint, "2026-11-21T10:00:00Z", times=1.0)
        _, right = await told(crosspoint, LIKE)
        factors = [next(r for r in answer.reasons if r.code == "learned-from-like-models").evidence["factor"]
                   for answer in (off, right)]  # fmt: skip
        assert factors[0] < 0.75
        assert factors[1] == pytest.approx(1.0, abs=0.15)
        fingerprint = (await crosspoint.survey()).fingerprint
        assert all("10:00:00" in row.predicted_by for row in await crosspoint.store.lessons(fingerprint))

    with_crosspoint(tmp_path, use)


def test_what_another_machine_measured_and_what_cannot_be_read_change_no_answer(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        await a_slow_profile(crosspoint)
        before, _ = await told(crosspoint, LIKE)
        trace = await crosspoint.trace(LEARNED)
        survey = await crosspoint.survey()
        rows = lessons_of(await crosspoint.profile(survey), trace, LEARNED, [a_measurement(ONE, 32, 1e-3)])
        await crosspoint.store.keep_lessons("another", rows)
        await crosspoint.store.keep_lessons(survey.fingerprint, rows)
        with sqlite3.connect(tmp_path / FILE_NAME) as connection:
            connection.execute("UPDATE lessons SET signature = '[1, 2' WHERE fingerprint != 'another'")
        connection.close()
        assert (await told(crosspoint, LIKE))[0] == before

    with_crosspoint(tmp_path, use)


@pytest.mark.parametrize("broken", ["plan", "signature", "seconds", "predicted", "batch_size"])
def test_a_row_that_is_no_lesson_is_passed_over(tmp_path: Path, broken: str) -> None:
    async def session() -> list[LessonRow]:
        store = Store(tmp_path)
        try:
            await store.keep_lessons("f", [a_row(1), a_row(2)])
            with sqlite3.connect(tmp_path / FILE_NAME) as connection:
                connection.execute(f"UPDATE lessons SET {broken} = 'rubbish' WHERE batch_size = 1")
            connection.close()
            return await store.lessons("f")
        finally:
            await store.close()

    assert [row.batch_size for row in asyncio.run(session())] == [2]


def a_trace() -> Trace:
    return a_profile().networks[0].trace


def a_row(batch_size: int) -> LessonRow:
    (row,) = lessons_of(PROFILE, PROFILE.networks[0].trace, LEARNED, [a_measurement(ONE, batch_size, 0.5)])
    return row


def test_only_plain_plans_that_ran_undisturbed_teach() -> None:
    good = a_measurement(ONE, 8, 0.5)
    assert good.step is not None
    varied = Plan("cpu", "fp32", 1, {"MALLOC_TRIM_THRESHOLD_": "1"})
    others = [
        replace(good, plan=varied),
        replace(good, outcome="failed"),
        replace(good, step=None),
        replace(good, step=replace(good.step, median=math.nan)),
        replace(good, step=replace(good.step, median=-1.0)),
        replace(good, others_cores=1.5),
        replace(good, plan=TWO, others_cores=0.5),
        replace(good, steady=False, step=Timing.from_samples([0.5])),
        replace(good, step=Timing.from_samples([0.1, 0.2, 0.5, 0.5, 0.8])),  # others held its cores, seen or not
    ]
    beside = replace(good, others_cores=1.0)  # on the other core
    found = lessons_of(a_profile(), a_trace(), LEARNED, [*others, good, beside], cores=2.0)
    assert [row.seconds for row in found] == [0.5, 0.5]
    compiled = replace(a_trace(), compiled=True)  # by its owner: its steps run other operations than were followed
    assert lessons_of(a_profile(), compiled, LEARNED, [good], cores=2.0) == []


def test_others_on_the_cores_beyond_a_containers_share_disturb_nothing(tmp_path: Path) -> None:
    """They are counted on the whole host, of which a quota leaves a part to this process."""

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        container = replace(survey, cpu=replace(survey.cpu, logical_cores=64, usable_cores=2.0))
        beside, among = (replace(a_measurement(TWO, batch, 0.5), others_cores=cores)
                         for batch, cores in ((8, 30.0), (16, 63.0)))  # fmt: skip
        await crosspoint.lessons.keep(container, a_profile(), a_trace(), LEARNED, [beside, among])
        assert [row.batch_size for row in await crosspoint.store.lessons(survey.fingerprint)] == [8]

    with_crosspoint(tmp_path, use)


def test_a_devices_step_is_foretold_once_it_was_traced_as_a_device_runs_it(tmp_path: Path) -> None:
    profile, trace = a_profile((ONE, GPU), "f"), a_trace()
    cpus, devices = lessons_of(profile, trace, LEARNED, [a_measurement(plan, 8, 0.5) for plan in (ONE, GPU)])
    assert cpus.predicted is not None
    assert (devices.predicted, devices.predicted_by) == (None, "")

    async def use(crosspoint: Crosspoint) -> None:
        version = trace.torch_version
        await crosspoint.store.keep_lessons("f", [cpus, devices])
        rows = await crosspoint.store.lessons("f")
        for known, plans in ((trace, {ONE.key}), (replace(trace, devices=True), {ONE.key, GPU.key})):
            await crosspoint.store.keep_trace(LEARNED, version, known)
            assert {lesson.plan.key for lesson in await crosspoint.lessons._priced("", profile, rows)} == plans
        assert all(row.predicted_by for row in await crosspoint.store.lessons("f"))

    with_crosspoint(tmp_path, use)


def test_a_lesson_is_priced_by_a_trace_of_its_own_processor(tmp_path: Path) -> None:
    """Machines that share a store ask for the same models; a kernel that one has another may not."""
    row = replace(a_row(8), predicted_by="an earlier profile")

    async def use(crosspoint: Crosspoint) -> None:
        store, trace = crosspoint.store, a_trace()
        await store.keep_lessons("f", [row])
        priced = []
        for cpu in ("another", "this"):
            await store.keep_trace(LEARNED, trace.torch_version, replace(trace, cpu=cpu))
            priced.append(await crosspoint.lessons._priced("this", PROFILE, await store.lessons("f")))
        assert [len(lessons) for lessons in priced] == [0, 1]

    with_crosspoint(tmp_path, use)


def test_what_was_measured_otherwise_teaches_nothing(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_lessons("f", [a_row(8)])
        assert await crosspoint.store.lessons("f")
        with sqlite3.connect(tmp_path / FILE_NAME) as connection:
            connection.execute("UPDATE lessons SET method = method + 1")
        connection.close()
        assert not await crosspoint.store.lessons("f")

    with_crosspoint(tmp_path, use)


def test_a_lesson_without_a_prediction_teaches_nothing() -> None:
    row = a_row(8)
    assert lesson_of(row) is not None
    assert lesson_of(replace(row, predicted=None)) is None
    assert lesson_of(replace(row, predicted=math.inf)) is None


def test_of_a_thousand_lessons_the_nearest_are_looked_up_once_for_batch_sizes_that_are_near(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey, profile = await crosspoint.survey(), a_profile(fingerprint="f")
        survey = replace(survey, fingerprint="f")
        models = [a_row(batch) for batch in (8, 32, 128)]
        rows = [replace(models[number % 3], workload_key=str(number // 5)) for number in range(1000)]
        await crosspoint.store.keep_lessons("f", rows)
        found = [await crosspoint.lessons.like(survey, profile, a_trace_once, replace(LIKE, batch_size=size))
                 for size in (16, 20, 30, 400)]  # fmt: skip
        assert found[0] is not None
        assert found[0].workloads == MOST_WORKLOADS
        assert found[0] is found[1] is found[2]
        assert found[3] is not found[0]
        await crosspoint.store.keep_lessons("f", [replace(a_row(8), workload_key="new")])
        again = await crosspoint.lessons.like(survey, profile, a_trace_once, replace(LIKE, batch_size=16))
        assert again is not found[0]

    a_trace_once = a_trace()
    with_crosspoint(tmp_path, use)


def test_what_is_remembered_of_lessons_is_bounded(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = replace(await crosspoint.survey(), fingerprint="f")
        await crosspoint.store.keep_lessons("f", [a_row(8)])
        profile, trace = a_profile(fingerprint="f"), a_trace()
        for number in range(REMEMBERED + 40):
            await crosspoint.lessons.like(survey, profile, trace, replace(LIKE, log_every=number + 1))
        assert len(crosspoint.lessons._known) == REMEMBERED

    with_crosspoint(tmp_path, use)
