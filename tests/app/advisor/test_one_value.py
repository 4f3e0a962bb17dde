"""Batch norm over one value a channel: what torch refuses is not recommended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from app.advisor import recommend
from app.advisor.known import gather
from app.advisor.one_value import explain_one_value
from app.advisor.probing import choose_probe
from app.advisor.request import Request
from probes.microtrain.models import build_model
from probes.microtrain.tracing import trace_workload
from probes.trace import Affine, Trace
from probes.workload.description import Mode, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, TWO, a_measurement, a_survey
from tests.app.advisor.machine import a_profile

DENSE = {"layers": [{"type": "linear", "out": 8}, {"type": "batch_norm"}, {"type": "linear", "out": 2}],
         "input_shape": [4]}  # fmt: skip
IMAGES = {"layers": [{"type": "conv2d", "out": 8, "kernel": 3}, {"type": "batch_norm"}, {"type": "flatten"},
                     {"type": "linear", "out": 2}]}  # fmt: skip
PLACES = {**IMAGES, "input_shape": [3, 5, 5]}  # nine a channel
PLACE = {**IMAGES, "input_shape": [3, 3, 3]}  # one
PLAIN = {"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}


def traced(model: Any, mode: Mode) -> Trace:
    return trace_workload(Workload(parse_model(model), 8, mode=mode))


@pytest.mark.parametrize("model", [DENSE, PLACES, PLACE, PLAIN])
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_it_is_told_where_torch_says_so(model: Any, mode: Mode) -> None:
    trace = traced(model, mode)
    for batch_size in (1, 2):
        built = build_model(parse_model(model))
        built.module.train(mode == "training")
        try:
            with torch.no_grad():
                built.forward(built.module, built.make_batch(batch_size, None))
            refused = False
        except ValueError:
            refused = True
        assert (explain_one_value(trace, batch_size) is not None) == refused


def test_a_plan_that_ran_at_another_batch_cannot_run_at_this_one() -> None:
    workload = Workload(parse_model(DENSE), 1)
    rows = [a_measurement(ONE, 8, 0.001)]
    known = gather(a_survey(), a_profile(), traced(DENSE, "training"), rows, Request(workload))
    assert all(option.cannot_run and "batch of 2" in (option.why_not or "") for option in known.options(1))
    assert not any(option.cannot_run for option in known.options(2))


@pytest.mark.parametrize("asked", [1, 64])
def test_curves_and_crossovers_begin_at_the_smallest_batch_that_torch_takes(asked: int) -> None:
    trace = traced(DENSE, "training")
    request = Request(Workload(parse_model(DENSE), asked))
    found = recommend(a_survey(), a_profile(), trace, [], request)
    assert found.curve_batch_sizes[0] == 2
    assert found.curves
    assert found.crossovers
    assert all(row.batch_size is None or row.batch_size > 1 for row in found.crossovers)
    plain = recommend(a_survey(), a_profile(), traced(PLAIN, "training"), [], Request(Workload(parse_model(PLAIN), 1)))
    assert plain.curve_batch_sizes[0] == 1


def test_a_batch_that_torch_refuses_is_offered_to_nobody() -> None:
    """Memory for one sample is memory for none."""
    trace = replace(traced(DENSE, "training"), kernel_peaks=(), activation_peaks=(Affine(0.0, 1e9),), heap_surplus=())
    request = Request(Workload(parse_model(DENSE), 4), precision="fp32")
    for usable, largest in ((17 * 10**8, 0), (25 * 10**8, 2)):
        found = gather(a_survey(usable_bytes=usable), None, trace, [], request).options(4)
        assert {option.max_batch_size for option in found} == {largest}
        assert all(("Not even 2 samples fit" in (option.why_not or "")) is (largest == 0) for option in found)


def test_nothing_is_probed_at_a_batch_that_torch_refuses() -> None:
    workload = Workload(parse_model(DENSE), 4)
    rows = [a_measurement(plan, 4, 0.001) for plan in (ONE, TWO)]
    known = gather(a_survey(), None, traced(DENSE, "training"), rows, Request(workload))
    sizes: list[int] = []
    while probe := choose_probe(known, 1000.0, sizes):
        sizes.append(probe.batch_size)
    assert sizes
    assert 1 not in sizes
