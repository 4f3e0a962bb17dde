"""A measurement that says nothing hides none that does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.store import Store
from app.store.latest import latest_of
from probes.measurement import Measurement
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, a_measurement
from tests.app.advisor.machine import GPU
from tests.app.test_store import WORKLOAD, in_store

FULL = a_measurement(ONE, 8, 1.0)
FIRST_STEP = replace(FULL, steps=1, steady=False)
OUT_OF_MEMORY = replace(FULL, outcome="out-of-memory", step=None, steps=0)
UNSUPPORTED = replace(OUT_OF_MEMORY, outcome="unsupported")
LATE = replace(OUT_OF_MEMORY, outcome="failed", reason="One step was not done after 9 s. More time would do.")
KILLED = replace(LATE, reason="Its process ended before the step did.")
CALM = replace(FULL, slow_share=0.2, slowdown=1.5)
CROWDED = replace(FULL, slow_share=0.0, slowdown=1.0, others_cores=1.5)  # which the cores' pace does not tell
RECKONED = replace(FULL, slow_share=1.0)  # no sample met calm cores
IN_A_SPELL = replace(a_measurement(ONE, 8, 40.0, 0.9), slow_share=0.0, slowdown=1.0)  # which only its samples tell
FREE = replace(FULL, plan=Plan("cuda:0"), device_busy_fraction=0.0)
SHARED = replace(FREE, device_busy_fraction=0.98)


@pytest.mark.parametrize(
    ("taken", "counts"),
    [
        ([FULL, LATE], [FULL, LATE]),
        ([CALM, IN_A_SPELL], [CALM, IN_A_SPELL]),
        ([IN_A_SPELL, CALM], [CALM]),
        ([FULL, LATE, KILLED], [FULL, KILLED]),
        ([FULL, FIRST_STEP], [FULL]),
        ([FULL, LATE, FIRST_STEP], [FULL, LATE]),
        ([LATE, FULL], [FULL]),
        ([FULL, OUT_OF_MEMORY], [FULL, OUT_OF_MEMORY]),
        ([FULL, OUT_OF_MEMORY, LATE], [FULL, OUT_OF_MEMORY, LATE]),
        ([FULL, LATE, OUT_OF_MEMORY], [FULL, OUT_OF_MEMORY]),
        ([FULL, OUT_OF_MEMORY, FIRST_STEP], [FULL, OUT_OF_MEMORY]),
        ([OUT_OF_MEMORY, FULL], [FULL]),
        ([FULL, UNSUPPORTED], [FULL, UNSUPPORTED]),
        ([FULL, UNSUPPORTED, LATE, UNSUPPORTED], [FULL, LATE, UNSUPPORTED]),
        ([UNSUPPORTED, FULL], [FULL]),
        ([UNSUPPORTED, OUT_OF_MEMORY], [OUT_OF_MEMORY]),
        ([FREE, SHARED], [FREE, SHARED]),
        ([FREE, SHARED, SHARED], [FREE, SHARED]),
        ([FREE, SHARED, FREE], [FREE]),
        ([FIRST_STEP, FULL], [FULL]),
        ([LATE, FIRST_STEP], [FIRST_STEP]),
        ([FIRST_STEP, LATE], [FIRST_STEP, LATE]),
        ([CALM, RECKONED], [CALM, RECKONED]),
        ([CALM, RECKONED, LATE, RECKONED], [CALM, RECKONED]),
        ([CALM, RECKONED, CALM], [CALM]),
        ([CALM, RECKONED, OUT_OF_MEMORY], [CALM, RECKONED, OUT_OF_MEMORY]),
        ([RECKONED, FULL], [FULL]),
        ([CALM, CROWDED], [CALM, CROWDED]),
        ([CALM, CROWDED, CROWDED], [CALM, CROWDED]),
        ([CALM, CROWDED, CALM], [CALM]),
    ],
)
def test_what_counts_is_the_latest_that_says_something_and_the_failure_after_it(
    taken: list[Measurement], counts: list[Measurement]
) -> None:
    assert latest_of(taken) == counts
    assert latest_of([*counts, *taken]) == counts  # what is known is told once more with what is fresh


def test_each_plan_batch_and_way_of_feeding_a_device_has_its_own_in_the_order_of_time() -> None:
    on_card = [replace(FULL, plan=GPU, data=data) for data in ("pageable", "resident")]
    other = [replace(FULL, plan=TWO), replace(FULL, batch_size=16), *on_card]
    later = replace(FULL, steps=99, data="resident")  # which on a CPU is all one
    assert latest_of([FULL, *other, later]) == [*other, later]


def test_a_good_measurement_is_read_from_the_store_after_one_that_had_no_time(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        for row in (FULL, LATE, FIRST_STEP):
            await store.keep_measurements("f1", WORKLOAD, [row])
        assert await store.measurements("f1", WORKLOAD) == [FULL, LATE]
        await store.keep_measurements("f1", WORKLOAD, [OUT_OF_MEMORY])
        assert await store.measurements("f1", WORKLOAD) == [FULL, OUT_OF_MEMORY]

    in_store(tmp_path, use)
