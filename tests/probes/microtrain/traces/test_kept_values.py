"""A step begins with what the one before it made and something keeps: each value until another takes its place, or for
good. Memory counts it, whoever keeps it."""

from pathlib import Path
from typing import Any

import pytest

from probes.microtrain.models import build_model
from probes.microtrain.traces.primed_stepper import PrimedStepper
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model

WIDTH = 1000
ROW = 4 * WIDTH  # bytes
PROGRAM = f"""
import torch
from torch import nn

WIDTH = {WIDTH}


class Made(nn.Module):
    # four rows for a sample: the batch's own, a value, and twice as many of what is made of it
    def forward(self, x):
        value = torch.sigmoid(x)
        wide = torch.cat([value, value], 1)
        return self.keep(value).sum(1) + wide.sum(1)

    def keep(self, value):
        return value


class Attribute(Made):
    def keep(self, value):
        self.last = value.detach()
        return value


class Table(Made):
    # made once, and used ever after
    table = None

    def keep(self, value):
        if self.table is None:
            self.table = torch.ones(64, WIDTH).exp()
        return value + self.table[0]


class Cached(Made):
    # a mask for each size of a batch, or for each precision
    def __init__(self, key):
        super().__init__()
        self.key, self.masks = key, dict()

    def keep(self, value):
        key = self.key(value)
        if key not in self.masks:
            self.masks[key] = torch.ones(len(value), WIDTH).exp()
        return value + self.masks[key][: len(value)]


class Total(Made):
    def keep(self, value):
        self.total = value.sum()
        return value


class Carried(Made):
    # begins where the step before it ended
    state = None

    def keep(self, value):
        same = self.state is not None and len(self.state) == len(value)
        value = torch.tanh(value + self.state) if same else value
        self.state = value.detach()
        return value


def rows(size):
    return torch.randn(size, WIDTH), torch.randn(size)


def made():
    return Made(), rows

def attribute():
    return Attribute(), rows

def hook():
    # in a dict that no module has
    class Watched(Made):
        def __init__(self):
            super().__init__()
            self.inner = nn.Identity()

        def keep(self, value):
            return self.inner(value)

    model, found = Watched(), dict()
    model.inner.register_forward_hook(lambda module, args, output: found.update(last=output.detach()))
    return model, rows

def table():
    return Table(), rows

def by_size():
    return Cached(len), rows

def by_precision():
    return Cached(lambda value: (len(value), torch.is_autocast_enabled("cpu"))), rows

def total():
    return Total(), rows

def carried():
    return Carried(), rows
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_keeping.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_keeping"


def workload(own: str, function: str, **options: Any) -> Workload:
    return Workload(python_model(f"{own}:{function}"), 4, **{"mode": "inference", **options})


def peak_of(traced: Trace, batch_size: int) -> float:
    """And at any other batch it is on the same line."""
    return max(line.at(batch_size) for line in traced.activation_peaks)


@pytest.mark.parametrize(
    ("function", "rows"), [("made", 4), ("attribute", 5), ("hook", 5), ("carried", 7), ("by_size", 6)]
)
def test_what_the_step_before_kept_is_there_until_another_takes_its_place(own: str, function: str, rows: int) -> None:
    """Carried on is beside that a sum with it, and what comes of that, and with a mask a sum as well."""
    traced = trace_workload(workload(own, function), plainly=True)
    for batch_size in (1, 100):
        assert peak_of(traced, batch_size) == pytest.approx(rows * ROW * batch_size, abs=0.2 * ROW * batch_size)


def test_a_table_made_in_the_first_step_is_there_in_each_and_not_made_again(own: str) -> None:
    traced = trace_workload(workload(own, "table"), plainly=True)
    assert "aten.exp" not in {operation.name for operation in traced.operations}
    assert peak_of(traced, 1) == pytest.approx((64 + 5) * ROW, abs=0.2 * ROW)
    assert peak_of(traced, 100) == pytest.approx((64 + 5 * 100) * ROW, abs=20 * ROW)


@pytest.mark.parametrize("function", ["attribute", "table", "carried", "by_size", "by_precision"])
def test_what_steps_of_another_size_or_precision_kept_counts_where_it_is_used(own: str, function: str) -> None:
    """A step has what it has where all steps are like it: no mask that one of sixteen samples made."""
    described = workload(own, function)
    one, *others = (PrimedStepper(described, build_model(described.model)) for _ in range(4))
    for step, other in zip([(16, "fp32"), (32, "fp32"), (32, "bf16")], others, strict=True):
        alone = other.record(*step)
        for _ in range(2):
            assert one.record(*step).alive == alone.alive
    assert one.record(16).alive == others[0].record(16).alive


def test_a_step_that_keeps_next_to_nothing_is_recorded_once(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []
    watch = PrimedStepper._watch

    def noted(stepper: PrimedStepper, size: int, *args: Any, **options: Any) -> Any:
        recorded.append(size)
        return watch(stepper, size, *args, **options)

    monkeypatch.setattr(PrimedStepper, "_watch", noted)
    for function, times in (("total", 1), ("attribute", 2)):
        described = workload(own, function)
        stepper = PrimedStepper(described, build_model(described.model))
        recorded.clear()
        stepper.record(16)
        stepper.record(32)
        assert recorded == [16] * times + [32] * times
