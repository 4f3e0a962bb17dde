"""What ran out of memory counts until more is free, or a later step disproves it; what ran, while as much is free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Request, recommend
from app.advisor.recommendation import Option
from probes.measurement import Measurement, MemoryPeak
from probes.workload.description import ModelDescription, Workload
from tests.app.advisor.build import GB, ONE, a_measurement, a_survey
from tests.app.advisor.test_tried import GPU, not_run, of_the_card, option_of, predicted


def test_what_ran_out_of_memory_is_tried_again_where_more_is_free() -> None:
    """A colleague's job filled the machine then."""
    failed = replace(not_run(ONE, 16, "out-of-memory"), available_bytes=4 * GB)
    assert option_of(predicted([failed], survey=a_survey(usable_bytes=4 * GB)), ONE).fits is False
    assert option_of(predicted([failed], survey=a_survey(usable_bytes=int(4.2 * GB))), ONE).fits is False
    later = option_of(predicted([failed], survey=a_survey(usable_bytes=8 * GB)), ONE)
    assert later.fits
    assert later.max_batch_size is not None
    assert later.max_batch_size >= 16
    unknown = replace(failed, available_bytes=None)
    assert option_of(predicted([unknown], survey=a_survey(usable_bytes=8 * GB)), ONE).fits is False


def test_what_ran_out_of_memory_later_is_told_its_measured_time_where_more_is_free() -> None:
    rows = [a_measurement(ONE, 16, 1.0), replace(not_run(ONE, 16, "out-of-memory"), available_bytes=GB)]
    assert untraced(rows, GB).fits is False
    later = untraced(rows, 20 * GB)
    assert (later.fits, later.basis) == (True, "measured")


def untraced(rows: list[Measurement], free: int, batch_size: int = 16) -> Option:
    """Of one's own Python that no trace follows."""
    workload = Workload(ModelDescription("python", "own:model", {}), batch_size)
    return option_of(recommend(a_survey(usable_bytes=free), None, None, rows, Request(workload)), ONE)


def ran_out(batch_size: int, available_bytes: int | None = 10 * GB, data: str = "pageable") -> Measurement:
    return replace(not_run(ONE, batch_size, "out-of-memory"), available_bytes=available_bytes, data=data)


def ran_in(held_bytes: int, batch_size: int = 64, **changes: Any) -> Measurement:
    return a_measurement(ONE, batch_size, 1.0, memory=MemoryPeak(process_bytes=held_bytes), **changes)


@pytest.mark.parametrize("ran", [ran_in(3 * GB), a_measurement(ONE, 64, 1.0)])
def test_what_ran_out_of_memory_at_fewer_samples_than_ran_since_did_so_beside_a_neighbour(ran: Measurement) -> None:
    rows = [ran_out(16), ran]
    assert [untraced(rows, 10 * GB, size).fits for size in (16, 64, 100)] == [True, True, None]
    of_the_largest = untraced(rows, 10 * GB, 100)
    assert (of_the_largest.why_not, of_the_largest.max_batch_size) == (None, None)
    traced = [option_of(predicted(given, 100, survey=a_survey(usable_bytes=10 * GB)), ONE) for given in (rows, [ran])]
    assert traced[0] == traced[1]
    assert traced[0].fits


def test_what_needs_more_than_is_free_now_disproves_nothing_that_ran_out_of_as_much() -> None:
    rows = [ran_out(16, 2 * GB), ran_in(3 * GB)]
    assert [untraced(rows, 2 * GB, size).fits for size in (8, 16, 32, 64)] == [None, False, False, False]
    assert untraced(rows, 4 * GB, 32).fits
    in_more_than_is_free = a_measurement(ONE, 64, 1.0, memory=MemoryPeak(), available_bytes=20 * GB)
    assert untraced([ran_out(16, 2 * GB), in_more_than_is_free], 2 * GB, 32).fits is False


def test_what_took_less_than_there_was_disproves_it_however_little_is_free_now() -> None:
    rows = [ran_out(16), ran_in(3 * GB)]
    assert [untraced(rows, 2 * GB, size).fits for size in (16, 32, 64)] == [None, None, False]


def test_a_single_first_step_disproves_nothing() -> None:
    """The second one finds the optimizer's state beside it."""
    rows = [ran_out(16), ran_in(3 * GB, steps=1)]
    assert rows[1].is_first_step
    assert untraced(rows, 10 * GB, 16).fits is False


def test_of_what_ran_and_ran_out_of_memory_on_a_cpu_the_later_counts_however_either_was_fed() -> None:
    """Its batches are there whatever is asked."""
    ran, failed = ran_in(3 * GB), ran_out(64, data="pinned")
    assert [untraced([failed, ran], 10 * GB, size).fits for size in (64, 100)] == [True, None]
    assert [untraced([ran, failed], 10 * GB, size).fits for size in (64, 100)] == [False, False]


def test_what_ran_out_of_memory_later_at_fewer_samples_counts() -> None:
    rows = [ran_in(3 * GB), ran_out(16)]
    told = untraced(rows, 10 * GB, 100)
    assert (told.fits, told.max_batch_size) == (False, 15)
    assert "A smaller batch may fit." in (told.why_not or "")


def test_without_a_trace_too_what_ran_out_of_memory_is_tried_again_where_more_is_free() -> None:
    failed = replace(not_run(ONE, 16, "out-of-memory"), available_bytes=GB)
    assert untraced([failed], GB).fits is False
    assert untraced([failed], 20 * GB).fits is None


def test_without_a_trace_too_what_ran_does_not_fit_into_less_than_it_took() -> None:
    row = a_measurement(ONE, 16, 1.0, memory=MemoryPeak(process_bytes=4 * GB))
    fitting, outgrown = untraced([row], 5 * GB), untraced([row], 3 * GB)
    assert (fitting.fits, fitting.memory.available_bytes) == (True, 5 * GB)
    assert outgrown.fits is False
    assert "it took 4.0 GB, and 3.0 GB are free on cpu" in (outgrown.why_not or "")


def test_what_ran_on_a_card_from_pinned_memory_disproves_what_ran_out_of_memory_fed_otherwise() -> None:
    failed = not_run(GPU, 64, "out-of-memory")
    ran = a_measurement(GPU, 64, 0.01, data="pinned")
    assert of_the_card([failed, ran], 64, "pageable").fits
    assert of_the_card([replace(failed, data="pinned"), replace(ran, data="pageable")], 64, "pinned").fits is False


def test_a_batch_that_ran_and_has_room_fits_whatever_a_smaller_one_took() -> None:
    """Kernels and a heap may take less at a larger batch."""
    rows = [ran_in(105 * GB // 100, 200), ran_in(95 * GB // 100, 450)]
    assert [untraced(rows, GB, size).fits for size in (200, 300, 450)] == [False, False, True]
    assert untraced(rows, GB, 450).max_batch_size == 450
    assert untraced(rows, GB, 450).fits_up_to == 199


def test_of_two_measurements_of_one_batch_the_later_says_whether_it_fits() -> None:
    more, less = ran_in(105 * GB // 100), ran_in(95 * GB // 100)
    assert untraced([more, less], GB, 64).fits is True
    assert untraced([less, more], GB, 64).fits is False
