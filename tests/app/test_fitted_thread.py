"""Whoever waits for a profile's fit leaves the threads to others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.advisor.request import Request
from app.advisor.time_model import predicted
from app.advisor.time_model.predicted import fit_all_plans, is_fitted
from app.fitted_thread import in_fitted_thread
from app.service import Crosspoint
from tests.app.advisor.machine import a_profile
from tests.app.opened import with_crosspoint
from tests.app.serving import PATIENCE_SECONDS
from tests.app.test_service import IRIS

THREADS = 3


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - a thread sets no event of the loop
        await asyncio.sleep(0.001)


def with_few_threads() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))


def test_a_profile_is_fitted_once_all_of_its_plans_are() -> None:
    profile = a_profile()
    assert not is_fitted(profile)
    fit_all_plans(profile)
    assert is_fitted(profile)


def test_questions_about_a_profile_that_is_not_fitted_leave_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, begun, may_end = predicted._make_model, threading.Event(), threading.Event()

    def make_late(*arguments: Any) -> Any:
        begun.set()
        may_end.wait()
        return make(*arguments)

    monkeypatch.setattr(predicted, "_make_model", make_late)

    async def use(crosspoint: Crosspoint) -> None:
        with_few_threads()
        software = (await crosspoint.survey()).software
        version = software.torch.version if software.torch else None
        profile = a_profile(fingerprint="of another machine")
        await crosspoint.store.keep_trace(IRIS, version or "unknown", profile.networks[0].trace)
        await crosspoint.store.keep_profile(profile)
        request = Request(IRIS, profile=profile.name)
        asked = [asyncio.create_task(crosspoint.recommend(request)) for _ in range(2 * THREADS)]
        try:
            await until(begun.is_set)
            for _ in range(20):  # what the others look up, they have by then
                await crosspoint.store.profile_heads()
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "another's"), PATIENCE_SECONDS) == "another's"
        finally:
            may_end.set()
        assert len({answer.verdict for answer in await asyncio.gather(*asked)}) == 1

    with_crosspoint(tmp_path, use)


def test_who_leaves_while_a_profile_is_fitted_gives_the_turn_on_with_the_thread() -> None:
    profile, may_end, ran = a_profile(), threading.Event(), list[str]()

    def work(name: str) -> None:
        ran.append(name)
        may_end.wait()

    async def use() -> None:
        left = asyncio.create_task(in_fitted_thread(profile, work, "left"))
        await until(lambda: ran == ["left"])
        next_one = asyncio.create_task(in_fitted_thread(profile, work, "next"))
        left.cancel()
        try:
            await asyncio.wait([left])
            await asyncio.to_thread(str)
            assert left.cancelled()
            assert ran == ["left"]
        finally:
            may_end.set()
        await next_one
        assert ran == ["left", "next"]

    asyncio.run(use())
