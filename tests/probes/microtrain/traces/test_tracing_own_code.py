"""The user's own Python is traced as it runs: models that ask for numbers, modules out of the ordinary, real data."""

from pathlib import Path
from typing import Any

import pytest

from probes.microtrain import tracing
from probes.microtrain.models import build_model
from probes.microtrain.traces.primed_stepper import PrimedStepper
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model

PROGRAM = """
import torch
from torch import nn

class Curious(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 3)
    def forward(self, x):
        y = self.layer(x)
        return y * (y > 0).nonzero().shape[0]

def small():
    return Curious(8), lambda size: (torch.randn(size, 8), torch.randint(3, (size,)))

def large():
    return Curious(20_000_000), lambda size: (torch.randn(size, 20_000_000), torch.randint(3, (size,)))

class Scattered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return torch.zeros(x.shape).masked_scatter(x > -9, self.layer(x))

def scattered():
    return Scattered(), lambda size: (torch.randn(size, 4), torch.randn(size, 4))

class Narrow(Scattered):
    # asks for numbers under autocast alone
    def forward(self, x):
        y = self.layer(x)
        return y * (y > 0).nonzero().shape[0] if y.dtype is torch.bfloat16 else y

def narrow():
    return Narrow(), lambda size: (torch.randn(size, 4), torch.randn(size, 4))

def plain():
    return nn.Linear(4, 2), lambda size: (torch.randn(size, 4), torch.randint(2, (size,)))

class Spoken(nn.Module):
    # (batch, places) -> the loss itself, by lengths in lists as long as the batch
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(20, 9)
    def forward(self, x):
        said = self.letters(x).log_softmax(-1).transpose(0, 1)
        return nn.functional.ctc_loss(said, x[:, :4] % 8 + 1, [x.shape[1]] * len(x), [4] * len(x))

def spoken():
    return Spoken(), lambda size: (torch.randint(20, (size, 12)), torch.zeros(()))

def wrong():
    return nn.Linear(4, 2), lambda size: (torch.randn(size, 5), torch.randint(2, (size,)))

def made_for_32():
    layers = (nn.Conv2d(3, 6, 3, padding=1), nn.LayerNorm((6, 32, 32)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    rows = lambda size: (torch.randn(size, 3, 28, 28), torch.randint(3, (size,)))
    return nn.Sequential(*layers, nn.Linear(6, 3)), rows
"""


def place(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, program: str) -> None:
    """A module of the user's in the current folder."""
    (folder / f"{name}.py").write_text(program)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    place(tmp_path, monkeypatch, "own_tracing", PROGRAM)
    return "own_tracing"


def test_a_small_model_that_needs_numbers_is_run_for_them(own_code: str) -> None:
    traced = trace_workload(Workload(python_model(f"{own_code}:small"), 4))
    assert traced.parameters == 27
    assert any(op.name == "aten.nonzero" for op in traced.operations)


def test_a_large_one_is_not_run_and_says_why(own_code: str) -> None:
    with pytest.raises(Untraceable, match="too large"):
        trace_workload(Workload(python_model(f"{own_code}:large"), 4))


def test_a_model_that_needs_numbers_is_told_by_the_operation_and_advised_to_be_measured(own_code: str) -> None:
    with pytest.raises(Untraceable, match=r"aten\.\w+ gives as much.*Measure it instead"):
        trace_workload(Workload(python_model(f"{own_code}:large"), 4))


def test_lists_that_grow_with_the_batch_are_no_reason_to_fail(own_code: str) -> None:
    """What a kernel takes inside is asked at batches that the step never ran at: not of these."""
    traced = trace_workload(Workload(python_model(f"{own_code}:spoken"), 4))
    assert any(op.name == "aten._ctc_loss" for op in traced.operations)
    assert traced.heap_fresh


def test_a_step_that_fails_says_why_in_a_sentence(own_code: str) -> None:
    with pytest.raises(Untraceable, match="fails with RuntimeError"):
        trace_workload(Workload(python_model(f"{own_code}:wrong"), 4))


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_a_layer_norm_of_another_size_fails_in_a_trace_as_in_a_step(own_code: str, mode: Any) -> None:
    with pytest.raises(Untraceable, match=r"expected input with shape \[\*, 6, 32, 32\]"):
        trace_workload(Workload(python_model(f"{own_code}:made_for_32"), 4, mode))


def test_a_step_that_torch_refuses_under_autocast_says_why_and_is_traced_in_fp32(own_code: str) -> None:
    traced = trace_workload(Workload(python_model(f"{own_code}:scattered"), 4))
    assert traced.operations
    assert not traced.autocast_operations
    assert "same dtypes" in traced.autocast_refused
    assert trace_workload(Workload(python_model(f"{own_code}:plain"), 4)).autocast_refused == ""


def test_what_only_fake_tensors_cannot_do_under_autocast_is_no_refusal(own_code: str) -> None:
    traced = trace_workload(Workload(python_model(f"{own_code}:narrow"), 4))
    assert traced.operations
    assert not traced.autocast_operations
    assert traced.autocast_refused == ""


KINDS_PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.second.weight = self.first.weight
        self.register_buffer("mean", torch.zeros(12))
        self.frozen = nn.Linear(12, 12).requires_grad_(False)

    def forward(self, batch):
        x = batch["rows"]
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            x = self.frozen(x) - self.mean
        x = Doubled.apply(self.first(x)).relu_()
        return checkpoint(lambda y: self.second(y).tanh(), x, use_reentrant=False).sum(1)


class Batches:
    def __call__(self, batch_size):
        return {"rows": torch.randn(batch_size, 12)}, torch.randn(batch_size)


def kinds():
    return Kinds(), Batches()
"""


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_a_users_unusual_module_is_traced_as_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    place(tmp_path, monkeypatch, "own_kinds", KINDS_PROGRAM)
    described = Workload(python_model("own_kinds:kinds"), 4, mode=mode)
    traced = trace_workload(described)
    real = PrimedStepper(described, build_model(described.model)).record(37).records
    moving = [record for record in real if record.kind != "view"]
    assert sum(op.count for op in traced.operations if op.kind != "view") == len(moving)
    assert traced.flops(37) == pytest.approx(sum(record.flops for record in real))
    written = sum(op.count * op.written_bytes.at(37) for op in traced.operations)
    assert written == pytest.approx(sum(record.written_bytes for record in real))


def test_a_model_that_only_fails_is_not_said_to_need_numbers(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 5)
    with pytest.raises(Untraceable, match=r"not be followed.*must have same reduction dim.*too large"):
        trace_workload(Workload(python_model(f"{own_code}:wrong"), 4))


CONTRASTIVE_PROGRAM = """
import torch
from torch import nn
from torch.nn import functional


def contrast(output, rows):
    # every sample of a batch against every other one
    return functional.cross_entropy(output @ output.T / 0.1, torch.arange(len(output)))

def small():
    return nn.Linear(512, 128), lambda size: torch.randn(size, 512), contrast

def behind_much_else():
    layers = [nn.Linear(512, 2048), *(nn.Linear(2048, 2048) for _ in range(20)), nn.Linear(2048, 16)]
    return nn.Sequential(*layers), lambda size: torch.randn(size, 512), contrast

def one_sample_less():
    return nn.Linear(512, 128), lambda size: torch.randn(size, 512), lambda output, rows: output[1:].square().mean()
"""


@pytest.fixture
def contrastive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place(tmp_path, monkeypatch, "own_contrast", CONTRASTIVE_PROGRAM)
    return "own_contrast"


def test_what_grows_with_the_square_of_the_batch_is_not_told_as_a_line(contrastive: str) -> None:
    with pytest.raises(Untraceable, match=r"aten\.\w+ in this model becomes four times as large.*Measure it instead"):
        trace_workload(Workload(python_model(f"{contrastive}:small"), 4))


@pytest.mark.parametrize("function", ["behind_much_else", "one_sample_less"])
def test_what_does_not_or_is_next_to_nothing_of_a_step_is(contrastive: str, function: str) -> None:
    assert trace_workload(Workload(python_model(f"{contrastive}:{function}"), 4), plainly=True).operations


SPARE_PROGRAM = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, spare):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 600), nn.ReLU(), nn.Linear(600, 10))
        if spare:
            self.spare = nn.Linear(700, 700)

    def forward(self, x):
        return self.body(x)


def batch(size):
    return torch.randn(size, 64), torch.randint(10, (size,))

def whole():
    return Net(False), batch

def with_spare():
    return Net(True), batch
"""


def test_a_parameter_that_gets_no_gradient_changes_the_weights_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pooler of a BERT that is asked for its last hidden state, a mask token: no step after the first has a
    gradient of it, nor the optimizer a state."""
    place(tmp_path, monkeypatch, "own_spare", SPARE_PROGRAM)
    whole, spare = (
        trace_workload(Workload(python_model(f"own_spare:{name}"), 4, optimizer="adam"))
        for name in ("whole", "with_spare")
    )
    assert spare.parameter_bytes - whole.parameter_bytes == 4 * 700 * 701
    assert (spare.gradient_bytes, spare.optimizer_bytes) == (whole.gradient_bytes, whole.optimizer_bytes)
    assert spare.allocations
    assert spare.autocast_allocations
    for batch_size in (1, 16, 1000):
        for precision in ("fp32", "bf16"):
            told = [max(line.at(batch_size) for line in trace.peaks_under(precision)) for trace in (whole, spare)]
            assert told[0] == pytest.approx(told[1])
    assert spare.heap_surplus[0].bytes == pytest.approx(whole.heap_surplus[0].bytes, rel=0.01)
    assert spare.heap_fresh
