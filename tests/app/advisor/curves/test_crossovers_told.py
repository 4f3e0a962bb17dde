"""Which crossovers an answer tells, from what was measured and from what was predicted."""

from __future__ import annotations

import math
from dataclasses import replace

from app.advisor import Request, recommend
from probes.measurement import Overheads
from probes.workload.description import Plan
from tests.app.advisor.answered import answer
from tests.app.advisor.build import (
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
