"""Answers from made-up measurements of the four plans of a two-core machine."""

from __future__ import annotations

from typing import Any

from app.advisor import Recommendation, Request, recommend
from probes.measurement import Measurement, MemoryPeak
from tests.app.advisor.build import (
    GB,
    ONE,
    ONE_BF16,
    TWO,
    TWO_BF16,
    a_measurement,
    a_survey,
    a_workload,
)

BASE = MemoryPeak(process_bytes=2 * GB, process_base_bytes=300 * 10**6)


def measured(**seconds: float) -> list[Measurement]:
    """At batches 4 and 16, seconds being those of 16; a third of them at 4."""
    plans = {"one": ONE, "two": TWO, "one_bf16": ONE_BF16, "two_bf16": TWO_BF16}
    return [
        a_measurement(plans[name], batch, middle * share, memory=BASE, startup_seconds=0.5)
        for name, middle in seconds.items()
        for batch, share in ((4, 1 / 3), (16, 1.0))
    ]


ALL_FOUR = {"one": 1.0, "two": 0.6, "one_bf16": 2.0, "two_bf16": 1.5}


def answer(rows: list[Measurement] | None = None, **changes: Any) -> Recommendation:
    survey = changes.pop("survey", a_survey())
    return recommend(survey, None, None, rows or [], Request(a_workload(**changes)))
