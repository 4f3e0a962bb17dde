"""What a plan took of memory at one batch tells of others, where it is more than was estimated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.recommendation import Option
from app.advisor.summary import trace_of_summary
from probes.measurement import Measurement, MemoryPeak
from probes.trace import Affine
from probes.workload.description import Plan
from tests.app.advisor.build import GB, ONE, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

PROFILE = a_profile((ONE, GPU))
SHORT = replace(a_measurement(ONE, 64, 1.0, outcome="out-of-memory", step=None), available_bytes=75 * 10**8)


def found(rows: list[Measurement], batch_size: int, free: int = 75 * 10**8, each: float = 100e6) -> Recommendation:
    """each: bytes that a sample takes. On a CPU the rest takes 0.8 GB, and a batch of 64 some 7.2."""
    workload = a_workload(batch_size)
    trace = replace(trace_of_summary(workload), activation_peaks=(Affine(0.0, each),))
    survey = a_survey(gpus=[a_gpu()], usable_bytes=free)
    return recommend(survey, PROFILE, trace, rows, Request(workload, precision="fp32"))


def option_of(answer: Recommendation, plan: Plan = ONE) -> Option:
    return next(option for option in answer.options if option.plan == plan)


def largest(rows: list[Measurement], batch_size: int = 64, **changes: float) -> int:
    told = option_of(found(rows, batch_size, **changes)).max_batch_size  # type: ignore[arg-type]
    assert told is not None
    return told


def on_cpu(gigabytes: float, batch_size: int = 64, **changes: object) -> Measurement:
    return a_measurement(ONE, batch_size, 1.0, memory=MemoryPeak(process_bytes=round(gigabytes * GB)), **changes)


def on_card(data: str = "pageable") -> Measurement:
    return a_measurement(GPU, 64, 0.01, memory=MemoryPeak(reserved_bytes=12 * GB), data=data)


def test_a_step_that_took_far_more_than_estimated_takes_more_at_larger_batches_too() -> None:
    """A card of 23 GB, of which 64 samples took 12 and the estimate tells of one."""
    told = option_of(found([on_card()], 64, each=3e6), GPU)
    assert told.max_batch_size is not None
    assert 100 < told.max_batch_size < 128
    twice = option_of(found([on_card()], 128, each=3e6), GPU)
    assert twice.fits is False
    assert twice.memory.peak_bytes is not None
    assert twice.memory.peak_bytes > 23 * GB
    assert option_of(found([], 128, each=3e6), GPU).fits


def test_a_measurement_that_confirms_its_estimate_changes_nothing_but_what_the_allocator_kept() -> None:
    """Which it gives back before it runs out. It was counted once a batch had run, and by it every other batch."""
    before = option_of(found([], 64), GPU)
    allocated = before.memory.allocated_peak_bytes
    assert allocated is not None
    kept = MemoryPeak(allocated_bytes=allocated, reserved_bytes=round(1.37 * allocated))
    after = option_of(found([a_measurement(GPU, 64, 0.01, memory=kept)], 64), GPU)
    assert after.max_batch_size == before.max_batch_size
    assert after.memory == replace(before.memory, reserved_peak_bytes=kept.reserved_bytes)


def test_what_was_fed_so_that_it_takes_more_tells_nothing() -> None:
    rows = ([], [on_card("pinned")])
    sizes = [option_of(found(given, 64, each=3e6), GPU).max_batch_size for given in rows]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("row", [on_cpu(8.0), SHORT])
def test_a_batch_that_is_said_to_fit_does_by_what_ran_as_well(row: Measurement) -> None:
    """64 samples took more than the 7.5 GB that are free, 63 take less by the estimate."""
    asked = found([row], 64)
    size = largest([row])
    assert option_of(asked).fits is False
    assert 50 < size < 62
    assert f"A batch of {size} would fit." in (option_of(asked).why_not or "")
    assert option_of(found([row], size)).fits
    assert option_of(found([row], 63)).fits is False
    assert largest([row], 8) == size


def test_a_batch_that_would_fit_is_enough() -> None:
    asked = found([on_cpu(8.0)], 64)
    (reason,) = [reason for reason in asked.reasons if reason.code == "does-not-fit"]
    (smaller,) = [remedy for remedy in reason.evidence["remedies"] if remedy["change"].startswith("a batch of")]
    assert smaller["fits"] is True


@pytest.mark.parametrize("gigabytes", [7.0, 8.0])
def test_a_first_step_tells_no_more_than_what_it_took(gigabytes: float) -> None:
    """It had no state of the optimizer beside it: less than estimated says nothing."""
    begun, whole = on_cpu(gigabytes, steps=1, startup_seconds=None), on_cpu(8.0)
    expected = [whole] if gigabytes == 8.0 else []
    assert largest([begun], free=9 * GB) == largest(expected, free=9 * GB)
    assert largest([whole, begun], free=9 * GB) == largest([whole], free=9 * GB)


def test_what_a_small_step_takes_beside_does_not_grow_with_the_batch() -> None:
    """Of a megabyte of activations nobody can tell: libraries at work may take 100 MB more than they mostly do."""
    plain = largest([], each=1e3)
    assert plain - 10**5 - 1 <= largest([on_cpu(0.893, 16)], each=1e3) < plain


def test_what_a_module_holds_beside_does_not_grow_with_the_batch() -> None:
    """64 samples that grow by a kilobyte each took half a GB more than estimated."""
    rows = [on_cpu(1.3)]
    assert option_of(found(rows, 64, each=1e3)).memory.peak_bytes == round(1.3 * GB)
    twice = option_of(found(rows, 128, each=1e3)).memory.peak_bytes
    assert twice is not None
    assert twice < 1.31 * GB
    assert largest(rows, each=1e3) > 10**6


@pytest.mark.parametrize("free", [75 * 10**8, 705 * 10**7])
def test_no_remedy_is_enough_for_what_ran_out_however_little_is_free_now(free: int) -> None:
    (reason,) = [
        reason
        for reason in found([SHORT], 64, free=free).reasons
        if reason.code == "does-not-fit" and ONE.label in reason.text
    ]
    kept = [remedy for remedy in reason.evidence["remedies"] if not remedy["change"].startswith("a batch of")]
    assert kept
    assert {remedy["fits"] for remedy in kept} == {None}
