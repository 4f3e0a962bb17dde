"""How large a batch a variant holds: what its plain plan showed counts as well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.recommendation import Option
from app.advisor.summary import trace_of_summary
from probes.measurement import Measurement, MemoryPeak
from probes.trace import Affine
from tests.app.advisor.build import GB, ONE, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import a_profile

VARIED = replace(ONE, flush_denormal=True)


def ran(batch_size: int, gigabytes: float | None = None) -> Measurement:
    return a_measurement(ONE, batch_size, batch_size / 16, memory=_peak(gigabytes))


def _peak(gigabytes: float | None) -> MemoryPeak | None:
    return None if gigabytes is None else MemoryPeak(process_bytes=round(gigabytes * GB))


def options(*rows: Measurement, took: float | None = None) -> tuple[Option, Option]:
    """Of the plain plan and of a variant that paid at batch 16. took: by the variant there, in GB. By the estimate
    it is 2.4 there, a tenth for each sample, and 7.5 are free."""
    workload = a_workload(16)
    trace = replace(trace_of_summary(workload), activation_peaks=(Affine(0.0, 100e6),))
    paid = a_measurement(VARIED, 16, 0.5, control=ran(16).step, memory=_peak(took))
    known = [ran(16), *rows, paid]
    survey = a_survey(usable_bytes=75 * 10**8)
    found = recommend(survey, a_profile((ONE,)), trace, known, Request(workload, precision="fp32"))
    plain, varied = (next(each for each in found.options if each.plan == plan) for plan in (ONE, VARIED))
    return plain, varied


def test_a_variant_does_not_fit_for_having_run_before_its_plain_plan_ran_out_of_memory() -> None:
    """Each row counts in its turn, not the variant's after all of the plain plan's."""
    workload = a_workload(16)
    trace = replace(trace_of_summary(workload), activation_peaks=(Affine(0.0, 100e6),))
    monday = replace(ran(16), measured_at=1.0)
    paid = replace(a_measurement(VARIED, 16, 0.5, control=ran(16).step), measured_at=2.0)
    short = replace(SHORT, batch_size=16, measured_at=3.0)
    survey, request = a_survey(usable_bytes=75 * 10**8), Request(workload, precision="fp32")
    for rows, fit in (([monday, short, paid], False), ([monday, replace(short, measured_at=1.5), paid], True)):
        found = recommend(survey, a_profile((ONE,)), trace, rows, request)
        assert [option.fits for option in found.options if option.plan == VARIED] == [fit]


SHORT = a_measurement(ONE, 40, 1.0, outcome="out-of-memory", step=None)


@pytest.mark.parametrize("row", [SHORT, ran(40, 7.0), ran(100)], ids=["out of memory", "took more", "ran beyond"])
def test_a_variant_holds_what_its_plain_plan_was_seen_to_hold(row: Measurement) -> None:
    plain, varied = options(row)
    assert varied.max_batch_size == plain.max_batch_size
    assert varied.max_batch_size != options()[1].max_batch_size


def test_a_variant_that_took_more_is_told_to_hold_less() -> None:
    plain, varied = options(ran(16, 2.4), ran(60, 6.0), took=4.0)
    assert varied.memory.peak_bytes == 4 * GB
    assert plain.memory.peak_bytes == round(2.4 * GB)
    assert varied.max_batch_size is not None
    assert plain.max_batch_size is not None
    assert 16 < varied.max_batch_size < 60 <= plain.max_batch_size


def test_a_variant_that_took_less_fits_where_its_plain_plan_does_not() -> None:
    plain, varied = options(ran(16, 8.0), took=6.0)
    assert (plain.fits, varied.fits) == (False, True)
    assert varied.memory.peak_bytes == 6 * GB
    plain, varied = options(ran(16, 6.0), took=8.0)
    assert (plain.fits, varied.fits) == (True, False)
