"""Which crossovers an answer tells, from what was measured and from what was predicted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.recommendation import Crossover
from app.advisor.summary import trace_of_summary
from probes.measurement import Measurement, Overheads
from probes.profile import Profile
from probes.trace import Affine
from probes.workload.description import DATA, Data, Plan
from tests.app.advisor.answered import answer
from tests.app.advisor.build import (
    GB,
    ONE,
    TWO,
    a_gpu,
    a_measurement,
    a_summary,
    a_survey,
    a_workload,
)
from tests.app.advisor.machine import GPU, a_profile, true_seconds


def test_the_crossover_between_one_thread_and_two_is_found_from_measurements() -> None:
    rows = [
        a_measurement(plan, batch, t)
        for plan, line in (
            (ONE, (0.001, 0.001)),
            (TWO, (0.008, 0.0005)),
        )
        for batch in (1, 32, 64)
        if (t := line[0] + line[1] * batch)
    ]
    found = answer(rows, batch_size=32)
    (crossover,) = [c for c in found.crossovers if (c.start, c.to) == (ONE, TWO)]
    assert crossover.kind == "at"
    assert crossover.low is not None
    assert crossover.batch_size is not None
    assert crossover.low <= 14 <= crossover.batch_size <= 20
    assert crossover.basis == "probed"
    assert found.recommended == TWO


def test_a_gpu_beside_the_cpu_is_compared_for_every_way_of_feeding_it() -> None:
    gpu = Plan("cuda:0", "fp32")
    rows = [
        *[a_measurement(TWO, batch, 0.002 * batch, startup_seconds=0.1) for batch in (1, 64)],
        *[
            a_measurement(
                gpu,
                batch,
                0.020 + 0.0001 * batch,
                startup_seconds=3.1,
                overheads=Overheads(0.0001 * batch, 0.01, 0.0, 0.01, 0.5),
            )
            for batch in (1, 64)
        ],
    ]
    request = Request(a_workload(batch_size=64), precision="fp32")
    found = recommend(a_survey(gpus=[a_gpu()]), None, None, rows, request)
    assert found.recommended == gpu
    crossovers = {c.data: c for c in found.crossovers if (c.start, c.to) == (TWO, gpu)}
    assert crossovers["pageable"].kind == "at"
    assert crossovers["pageable"].batch_size is not None
    assert 10 <= crossovers["pageable"].batch_size <= 13
    assert crossovers["pageable"].break_even_steps == math.ceil(3.0 / (0.128 - 0.0264))
    assert "cuda:0 in fp32" in found.verdict


def test_the_crossover_that_is_predicted_is_where_the_truth_crosses() -> None:
    model = a_summary(parameters=1000, flops_per_sample=1e7, activation_bytes_per_sample=1e5, operations=40)
    workload = replace(a_workload(), model=model)
    found = recommend(a_survey(gpus=[a_gpu()]), a_profile((ONE, TWO, GPU)), None, [], Request(workload, "fp32"))
    truth = next(b for b in range(1, 5000) if true_seconds(TWO, workload, b) < true_seconds(ONE, workload, b))
    (threads,) = [c for c in found.crossovers if (c.start, c.to) == (ONE, TWO)]
    assert threads.kind == "at"
    assert threads.low is not None
    assert threads.high is not None
    assert threads.batch_size is not None
    assert threads.low / 1.5 <= truth <= threads.high
    assert threads.batch_size / 1.5 <= truth <= threads.batch_size * 1.5
    device = [c for c in found.crossovers if c.to == GPU]
    assert {c.data for c in device} == {"resident", "pageable", "pinned"}
    assert all(c.launch_bound_until is not None for c in device)
    assert all(c.break_even_steps is None for c in device)


def to_the_card(found: Recommendation) -> dict[str, Crossover]:
    """By how it is fed, from one thread."""
    return {row.data: row for row in found.crossovers if (row.start, row.to) == (ONE, GPU)}


@pytest.mark.parametrize("profile", [None, a_profile((ONE, GPU))], ids=["not calibrated", "calibrated"])
def test_a_way_of_feeding_that_was_measured_crosses_where_it_was_measured_whichever_is_asked_for(
    profile: Profile | None,
) -> None:
    steps = {"pageable": 0.0005, "resident": 0.0001}
    rows = [a_measurement(ONE, batch, 0.002 * batch) for batch in (8, 32, 128)]
    for data, slope in steps.items():
        rows += [a_measurement(GPU, batch, 0.02 + slope * batch, data=data) for batch in (8, 32, 128)]
    survey = a_survey(gpus=[a_gpu()], usable_bytes=200 * GB)
    told, *others = (
        to_the_card(recommend(survey, profile, None, rows, Request(a_workload(32, data=asked), "fp32")))
        for asked in DATA
    )
    assert others == [told, told]
    assert told.keys() == (set(steps) if profile is None else set(DATA))
    for data, slope in steps.items():
        assert told[data].basis == "probed"
        # Between two batches that ran a step on a device follows the predicted curve, a CPU's a line.
        assert told[data].medians_cross_at == pytest.approx(0.02 / (0.002 - slope), abs=1 if profile is None else 2)


@pytest.mark.parametrize("asked", DATA)
def test_what_a_cpu_took_is_measured_whichever_way_is_asked_for(asked: Data) -> None:
    steps = ((ONE, 8, 0.1), (GPU, 8, 0.5), (ONE, 32, 0.4), (GPU, 32, 1.0))
    rows = [a_measurement(plan, batch, seconds) for plan, batch, seconds in steps]
    rows.append(a_measurement(GPU, 33, 1.0, outcome="out-of-memory", step=None))  # so that 32 is the largest
    request = Request(a_workload(32, data=asked), "fp32")
    told = to_the_card(recommend(a_survey(gpus=[a_gpu()]), None, None, rows, request))
    assert (told["pageable"].kind, told["pageable"].basis) == ("never", "measured")


def test_a_plan_that_did_not_run_crosses_at_one_batch_too_whichever_way_is_asked_for() -> None:
    """What another plan on its card took corrects it, fed in that way."""
    halved = replace(GPU, precision="fp16")
    profile = a_profile((ONE, GPU))
    points = [*profile.points, *(replace(point, plan=halved) for point in profile.points if point.plan == GPU)]
    networks = [*profile.networks, *(replace(row, plan=halved) for row in profile.networks if row.plan == GPU)]
    profile = replace(profile, points=tuple(points), networks=tuple(networks))
    rows = [a_measurement(GPU, 32, seconds, data=data) for data, seconds in (("pageable", 0.3), ("resident", 0.05))]
    survey = a_survey(gpus=[a_gpu(compute_capability="7.5")], usable_bytes=200 * GB)
    told, *others = (
        [
            row
            for row in recommend(survey, profile, None, rows, Request(a_workload(32, data=asked))).crossovers
            if row.start.precision == "fp32" and row.start.is_cpu and row.to == halved
        ]
        for asked in DATA
    )
    assert {row.data for row in told} == set(DATA)
    assert others == [told, told]


@pytest.mark.parametrize("asked", DATA)
@pytest.mark.parametrize(
    "rows",
    [[], [a_measurement(GPU, 256, 1.0, data="pinned", outcome="out-of-memory", step=None)]],
    ids=["estimated", "ran out of memory"],
)
def test_a_way_of_feeding_is_looked_at_as_far_as_it_fits_whichever_is_asked_for(
    asked: Data, rows: list[Measurement]
) -> None:
    """From pinned memory the card is sent the next batch as well."""
    survey = a_survey(gpus=[a_gpu(memory_free_bytes=2 * GB)], usable_bytes=200 * GB)
    plain = trace_of_summary(a_workload())
    trace = replace(plain, input_bytes=Affine(0.0, 1e6), activation_peaks=(Affine(0.0, 1e6),))

    def told(data: Data) -> Recommendation:
        return recommend(survey, a_profile((ONE, GPU)), trace, rows, Request(a_workload(16, data=data), "fp32"))

    looked_at = {data: row.looked_at for data, row in to_the_card(told(asked)).items()}
    assert looked_at.keys() == set(DATA)
    for data in DATA:
        (option,) = (option for option in told(data).options if option.plan == GPU)
        assert looked_at[data] == (1, option.max_batch_size)
    assert looked_at["pinned"][1] < looked_at["pageable"][1] == looked_at["resident"][1]


def test_a_batch_for_which_there_was_no_pinned_memory_is_left_out_of_that_way_alone_whichever_is_asked_for() -> None:
    rows = [a_measurement(ONE, batch, 0.002 * batch, startup_seconds=0.1) for batch in (16, 64)]
    rows += [a_measurement(GPU, batch, 0.01 + 0.0005 * batch, startup_seconds=3.1) for batch in (16, 64)]
    reason = "The host has no pinned memory for it."
    rows.append(a_measurement(GPU, 64, 1.0, data="pinned", outcome="failed", reason=reason, step=None))
    survey = a_survey(gpus=[a_gpu()], usable_bytes=200 * GB)
    told, *others = (
        to_the_card(recommend(survey, a_profile((ONE, GPU)), None, rows, Request(a_workload(64, data=asked), "fp32")))
        for asked in DATA
    )
    assert others == [told, told]
    assert {data: row.break_even_steps is None for data, row in told.items()} == {
        "resident": False,
        "pageable": False,
        "pinned": True,
    }


def test_cards_that_are_unlike_cross_though_one_lacks_the_recommended_precision() -> None:
    older = a_gpu(name="Tesla V100-SXM2-32GB", compute_capability="7.0")
    newer = a_gpu(id="GPU-2", torch_device="cuda:1")
    best = Plan("cuda:1", "bf16")
    times = ((GPU, 0.03), (replace(GPU, precision="fp16"), 0.02), (Plan("cuda:1"), 0.015), (best, 0.005))
    rows = [a_measurement(plan, batch, seconds * batch) for plan, seconds in times for batch in (8, 16)]
    found = recommend(a_survey(gpus=[older, newer]), None, None, rows, Request(a_workload(16), devices=("cuda",)))
    assert found.recommended == best
    pairs = [(row.start, row.to) for row in found.crossovers if row.start.device != row.to.device]
    assert pairs == [(replace(GPU, precision="fp16"), best)]
