"""How many lessons a store keeps, of whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from app.lessons import lessons_of
from app.store import Store
from app.store.lessons import KEPT_LESSONS, LessonRow
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_measurement
from tests.app.advisor.machine import a_profile

PROFILE = a_profile()
LEARNED = Workload(parse_model("mnist-mlp"), 32)


def a_row(batch_size: int) -> LessonRow:
    (row,) = lessons_of(PROFILE, PROFILE.networks[0].trace, LEARNED, [a_measurement(ONE, batch_size, 0.5)])
    return row


def rows(batch_sizes: Iterable[int]) -> list[LessonRow]:
    return [a_row(batch_size) for batch_size in batch_sizes]


def keep(folder: Path, *lessons: tuple[str, list[LessonRow]], read: str) -> list[LessonRow]:
    """Each by a machine's fingerprint, one after the other; what is then read of one of them."""

    async def session() -> list[LessonRow]:
        store = Store(folder)
        try:
            for fingerprint, each in lessons:
                await store.keep_lessons(fingerprint, each)
            return await store.lessons(read)
        finally:
            await store.close()

    return asyncio.run(session())


def test_lessons_are_kept_within_bounds_and_the_latest_of_a_plan_counts(tmp_path: Path) -> None:
    many, again = rows(range(1, KEPT_LESSONS + 50)), replace(a_row(KEPT_LESSONS), seconds=7.0)
    kept = keep(tmp_path, ("f", many), ("f", [again]), read="f")
    assert len(kept) <= KEPT_LESSONS
    assert [row.seconds for row in kept if row.batch_size == KEPT_LESSONS] == [7.0]


def test_a_machine_that_measures_much_leaves_what_those_that_share_its_store_learned(tmp_path: Path) -> None:
    many = rows(range(1, KEPT_LESSONS + 50))
    assert [row.batch_size for row in keep(tmp_path, ("theirs", rows([1])), ("mine", many), read="theirs")] == [1]


def test_one_model_asked_about_again_and_again_leaves_what_others_taught(tmp_path: Path) -> None:
    """A later measurement takes an earlier one's place with a number of its own."""
    asked = ("f", rows(range(2, KEPT_LESSONS - 10)))
    assert 1 in {row.batch_size for row in keep(tmp_path, ("f", rows([1])), asked, asked, asked, read="f")}
