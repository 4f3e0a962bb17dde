"""A plan on a device is compared with the plans of the CPU that it has to beat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.curves.over_batches import Batches, crossovers_of
from app.advisor.curves.rivals import RivalsOnCpu
from app.advisor.curves.winners import winners
from app.advisor.recommendation import Crossover
from app.advisor.time_model.step_time import PlanTime
from probes.workload.description import Plan
from tests.app.advisor.build import (
    ONE,
    ONE_BF16,
    TWO,
    TWO_BF16,
    a_gpu,
    a_measurement,
    a_summary,
    a_survey,
    a_workload,
)
from tests.app.advisor.curves.drawn import Curve, Drawn
from tests.app.advisor.machine import GPU, a_profile

ON_CPU = (ONE, TWO, ONE_BF16)


def rivals(device: Curve, best: Plan | None) -> tuple[Plan, ...]:
    """One thread is quicker than two up to a batch of 100."""
    times: dict[tuple[object, ...], PlanTime] = {
        ONE.key: Drawn(ONE, lambda batch: 1e-5 * batch),
        TWO.key: Drawn(TWO, lambda batch: 5e-4 + 5e-6 * batch),
        ONE_BF16.key: Drawn(ONE_BF16, lambda batch: 1e-4 * batch),
        GPU.key: Drawn(GPU, device),
    }
    return RivalsOnCpu(Batches(a_workload(), times, {}), ON_CPU, best).of(GPU)


def test_what_is_overtaken_last_is_a_rival_beside_the_best_at_the_batch_asked_for() -> None:
    """One thread at 202 samples, two at 306."""
    assert rivals(lambda batch: 2e-3 + 1e-7 * batch, ONE) == (ONE, TWO)
    assert rivals(lambda batch: 2e-3 + 1e-7 * batch, TWO) == (TWO,)
    assert rivals(lambda batch: 3e-4 + 1e-7 * batch, TWO) == (TWO, ONE)


def test_of_several_that_are_overtaken_within_an_octave_the_last_is_the_rival() -> None:
    """At 2048 samples both are ahead, one thread by more, and at 4096 neither is."""
    times: dict[tuple[object, ...], PlanTime] = {
        ONE.key: Drawn(ONE, lambda batch: 1.02e-6 * batch),
        TWO.key: Drawn(TWO, lambda batch: 2e-3 + 6e-8 * batch),
        GPU.key: Drawn(GPU, lambda batch: 2.2e-3),
    }
    batches = Batches(a_workload(), times, {})
    assert RivalsOnCpu(batches, (ONE, TWO), None).of(GPU) == (TWO,)
    cross_at = [row.medians_cross_at for row in crossovers_of(batches, [(ONE, GPU), (TWO, GPU)], [])]
    assert cross_at == [2157] * 3 + [3334] * 3


def test_what_no_plan_overtakes_is_the_quickest_at_the_largest_batch() -> None:
    assert rivals(lambda batch: 1.0 + batch, ONE_BF16) == (ONE_BF16, TWO)


@pytest.mark.parametrize(("best", "found"), [(ONE, ONE), (None, TWO)])
def test_where_the_device_is_always_ahead_the_best_is_the_rival_or_what_people_take_unasked(
    best: Plan | None, found: Plan
) -> None:
    assert rivals(lambda batch: 1e-9 * batch, best) == (found,)


def test_where_the_cpu_is_left_does_not_hang_on_the_batch_asked_for() -> None:
    """Two threads never are ahead of the card; one is, up to some batch, and the map says the same."""
    model = a_summary(parameters=1000, flops_per_sample=1e5, activation_bytes_per_sample=1e4, operations=40)
    survey, profile = a_survey(gpus=[a_gpu()]), a_profile((ONE, TWO, GPU))
    request = Request(replace(a_workload(), model=model), precision="fp32")

    def told(asked: int) -> tuple[Plan | None, Crossover]:
        workload = replace(request.workload, batch_size=asked)
        found = recommend(survey, profile, None, [], replace(request, workload=workload))
        (crossover,) = (row for row in found.crossovers if (row.start, row.to, row.data) == (ONE, GPU, "pageable"))
        return found.recommended, crossover

    (left, small), (taken, large) = told(4), told(2048)
    assert (left, taken) == (ONE, GPU)
    assert small.kind == large.kind == "at"
    assert small.batch_size is not None
    assert small.batch_size == large.batch_size
    below, above = winners(survey, profile, None, [], request, [small.batch_size // 2, small.batch_size * 2])
    assert (below.plan, above.plan) == (ONE, GPU)


def test_the_answer_compares_with_the_plan_of_the_cpu_that_its_verdict_names() -> None:
    steps = ((ONE, 1.5), (TWO, 1.0), (TWO_BF16, 0.5), (GPU, 0.1))
    rows = [a_measurement(plan, batch, seconds * batch / 16) for plan, seconds in steps for batch in (4, 16, 64)]
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, rows, Request(a_workload()))
    assert found.recommended == GPU
    assert "as fast as the CPU in bf16 with 2 threads" in found.verdict
    assert {row.start.label for row in found.crossovers if row.start.is_cpu and row.to == GPU} == {TWO_BF16.label}
