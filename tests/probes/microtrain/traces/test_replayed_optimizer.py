"""A replayed step of the optimizer is what recording it again would show."""

from dataclasses import replace
from typing import Any

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.traces import primed_stepper
from probes.microtrain.traces.primed_stepper import PrimedStepper, Recording
from probes.microtrain.traces.replayed_optimizer import ReplayedOptimizer
from probes.workload.description import OPTIMIZERS, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.tiny import IMAGE, TINY

TABLE = {
    "layers": [{"type": "embedding", "in": 50, "out": 8}, "mean", {"type": "linear", "out": 8}, "relu"]
    + [{"type": "linear", "out": 8}] * 2,
    "input_shape": [6],
}


def recordings(model: Any, optimizer: Any, *steps: tuple[int, Any]) -> list[Recording]:
    """Of one stepper, one after the other."""
    workload = Workload(parse_model(model), 4, optimizer=optimizer)
    mode = FakeTensorMode()
    built = build_fake(workload.model, mode)
    with mode:
        stepper = PrimedStepper(workload, built)
        return [stepper.record(batch_size, precision, counts=True) for batch_size, precision in steps]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [IMAGE, TINY["bert"]], ids=["layers", "bert"])
def test_a_replayed_step_equals_one_that_is_recorded_in_full(model: Any, optimizer: Any) -> None:
    *_, replayed = recordings(model, optimizer, (16, "fp32"), (32, "bf16"))
    (full,) = recordings(model, optimizer, (32, "bf16"))
    assert replayed.issued is not None
    assert full.issued is not None
    assert replace(replayed, issued=full.issued) == full
    assert replayed.issued[1:] == full.issued[1:]
    assert replayed.issued.calls == pytest.approx(full.issued.calls, rel=0.05)  # a first step has some more
    assert any(record.phase == "optimizer" for record in full.records)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [IMAGE, TABLE, TINY["bert"]], ids=["layers", "table", "bert"])
def test_one_parameter_of_each_kind_tells_what_a_step_of_all_runs(
    model: Any, optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (by_kind,) = recordings(model, optimizer, (16, "fp32"))

    def of_all(self: ReplayedOptimizer) -> None:
        self._recorder().phase = "optimizer"
        self._run()

    monkeypatch.setattr(ReplayedOptimizer, "__call__", of_all)
    monkeypatch.setattr(primed_stepper, "prime", lambda optimizer: optimizer.step())
    (plain,) = recordings(model, optimizer, (16, "fp32"))
    assert by_kind.records == plain.records
    assert by_kind.activation_bytes == plain.activation_bytes
    assert by_kind.issued is not None
    assert plain.issued is not None
    assert by_kind.issued[1:] == plain.issued[1:]
    assert by_kind.issued.calls == pytest.approx(plain.issued.calls, rel=0.02)
