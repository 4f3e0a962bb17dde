"""A user's own step is traced as it runs: its distributions and masks, its chance, its loops and its tensors."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from probes.microtrain.feeding import map_tensors, tensors_in
from probes.microtrain.models import build_model
from probes.microtrain.traces.merging import same_operations
from probes.microtrain.traces.primed_stepper import PrimedStepper
from probes.microtrain.tracing import BATCH_PAIRS, LIGHT_BATCH_PAIRS, Untraceable, trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model

PROGRAM = """
import random
import numpy as np
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence
from torch.nn.utils.rnn import pack_sequence


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.back = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x):
        mean, spread = self.net(x).chunk(2, -1)
        code = Normal(mean, spread.exp())
        seen = Bernoulli(logits=self.back(code.rsample()))
        taken = Categorical(probs=mean.softmax(-1))
        said = -taken.log_prob(taken.sample()).mean() - seen.log_prob((x > 0).float()).mean()
        return said + kl_divergence(code, Normal(torch.zeros_like(mean), torch.ones_like(spread))).mean()


class Deep(nn.Module):
    # drops layers by Python's and by numpy's chance
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(24))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            if (random.random() if number % 2 else np.random.rand()) < 0.5:
                x = layer(x)
        return x


class OneByOne(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)

    def forward(self, x):
        return torch.stack([self.net(row) for row in x])


class InParts(OneByOne):
    # a few samples at a time, as where all at once would be too many
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return torch.cat([self.net(part) for part in x.split(self.size)])


class Physical(OneByOne):
    # a loss of what the net's output does where its inputs change
    def forward(self, x):
        u = self.net(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return u.square().mean() + slope.square().mean()


class RowByRow(nn.Module):
    # fills a mask sample by sample
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 256), nn.Linear(256, 256), nn.Linear(256, 3))

    def forward(self, x):
        mask = torch.zeros(len(x), 8)
        for number in range(len(x)):
            mask[number, number % 8 :] = 1
        return self.net(x * mask)


class Tree(nn.Module):
    # holds what holds it
    def __init__(self):
        super().__init__()
        self.net, self.bank = nn.Linear(8, 8), [torch.randn(8, 50_000)]
        self.root = {"children": [], "bank": self.bank}
        self.root["children"].append({"up": self.root})

    def forward(self, x):
        return self.net(x) @ self.root["children"][0]["up"]["bank"][0]


class Searching(nn.Module):
    # a table that torch knows nothing of
    def __init__(self, straight):
        super().__init__()
        self.net, self.straight = nn.Linear(8, 8), straight
        self.bank = torch.randn(8, 50_000)
        self.again = [self.bank.t()]
        self.never = torch.randn(100)
        self.last = torch.randn(8, 8)

    def forward(self, x):
        self.last = self.net(x) + self.last[:1]
        return self.last @ self.bank if self.straight else nn.functional.linear(self.last, self.again[0])


class Causal(nn.Module):
    def __init__(self, kept=False, spare=0):
        super().__init__()
        self.spare = nn.Parameter(torch.empty(spare))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), 2)
        self.kept = nn.Transformer.generate_square_subsequent_mask(5) if kept else None
        if kept:
            self.register_buffer("mask", self.kept)

    def forward(self, x):
        made = self.kept is None
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if made else self.mask
        return self.layers(x, mask=mask)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 6), nn.Linear(6, 3)

    def forward(self, sequences):
        _, (hidden, _) = self.layer(sequences)
        return self.head(hidden[-1])


def rows(size):
    return torch.randn(size, 8), torch.randn(size, 8)

def summed(output, batch):
    return output.sum()

def distributions():
    return Encoder(), rows, lambda output, batch: output

def deep():
    return Deep(), rows

def one_by_one():
    return OneByOne(), lambda size: (torch.randn(size, 8), torch.randint(3, (size,)))

def in_parts():
    return InParts(16), lambda size: (torch.randn(size, 8), torch.randint(3, (size,)))

def physical():
    return Physical(), lambda size: {"x": torch.rand(size, 8, requires_grad=True)}

def row_by_row():
    return RowByRow(), lambda size: (torch.randn(size, 8), torch.randint(3, (size,)))

def tree():
    return Tree(), rows, summed

def searching():
    return Searching(True), rows, summed

def searching_by_a_view():
    return Searching(False), rows, summed

def causal():
    return Causal(), lambda size: (torch.randn(size, 5, 8), torch.randn(size, 5, 8))

def causal_buffer():
    return Causal(True), lambda size: (torch.randn(size, 5, 8), torch.randn(size, 5, 8))

def causal_buffer_of_a_large_one():
    return Causal(True, 51_000_000), lambda size: (torch.randn(size, 5, 8), torch.randn(size, 5, 8))

def nothing():
    return nn.Identity(), rows

def packed():
    lengths = lambda size: [3 + number % 3 for number in range(size)]
    return Packed(), lambda size: (
        pack_sequence([torch.randn(length, 4) for length in lengths(size)], enforce_sorted=False),
        torch.randint(3, (size,)),
    )
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    (tmp_path / "own_steps.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_steps"


def workload(own: str, function: str, **options: Any) -> Workload:
    return Workload(python_model(f"{own}:{function}"), 4, **options)


def trace(own: str, function: str, **options: Any) -> Trace:
    return trace_workload(workload(own, function, **options), plainly=True)


def test_distributions_that_check_their_parameters_are_traced_without_numbers(own: str) -> None:
    traced = trace(own, "distributions")
    assert traced.batch_sizes == BATCH_PAIRS[0]
    assert any(op.name == "aten.bernoulli" or "multinomial" in op.name for op in traced.operations)


def test_what_is_dropped_by_pythons_or_numpys_chance_is_the_same_each_time(own: str) -> None:
    described = workload(own, "deep")
    stepper = PrimedStepper(described, build_model(described.model))
    first, *others = (stepper.record(size).records for size in (4, 8, 4, 12))
    assert all(same_operations(first, other) for other in others)


def test_chance_goes_on_as_if_nothing_had_been_traced(own: str) -> None:
    random.seed(7)
    np.random.seed(7)
    expected = (random.random(), np.random.rand())
    random.seed(7)
    np.random.seed(7)
    trace(own, "deep")
    assert (random.random(), np.random.rand()) == expected


def test_work_done_sample_by_sample_is_refused_by_name(own: str) -> None:
    with pytest.raises(Untraceable, match=r"aten\.\w+ runs in this model for each sample.*Measure it instead"):
        trace(own, "one_by_one")


def test_work_done_a_few_samples_at_a_time_is_refused_by_name(own: str) -> None:
    with pytest.raises(Untraceable, match=r"aten\.\w+ runs in this model .*or for every few.*Measure it instead"):
        trace(own, "in_parts")


def test_inputs_that_have_gradients_have_them_without_numbers_too(own: str) -> None:
    assert trace(own, "physical").batch_sizes == BATCH_PAIRS[0]


def test_next_to_no_work_done_sample_by_sample_is_no_matter(own: str) -> None:
    assert any(op.name == "aten.fill_" for op in trace(own, "row_by_row").operations)


@pytest.mark.parametrize("function", ["searching", "searching_by_a_view", "tree"])
def test_a_tensor_that_torch_does_not_know_as_a_modules_lives_from_step_to_step(own: str, function: str) -> None:
    """What no operation takes does not count, nor what is computed anew."""
    traced = trace(own, function, mode="inference")
    bank = 4 * 8 * 50_000
    assert traced.buffer_bytes == bank
    assert max(line.at(1) for line in traced.activation_peaks) < bank


def test_a_causal_mask_is_known_where_it_is_made(own: str) -> None:
    """Attention is told of it in place of a mask, and makes its own where it drops."""
    traced = trace(own, "causal")
    assert traced.batch_sizes == BATCH_PAIRS[0]
    names = [op.name for op in traced.operations]
    real = PrimedStepper(workload(own, "causal"), build_model(workload(own, "causal").model)).record(4).records
    assert set(names) == {record.name for record in real}


def test_a_mask_that_nobody_knows_is_looked_at(own: str) -> None:
    assert trace(own, "causal_buffer").batch_sizes == LIGHT_BATCH_PAIRS[0]


def test_a_mask_that_nobody_knows_is_any_mask_to_a_model_too_large_to_be_run(own: str) -> None:
    assert trace(own, "causal_buffer_of_a_large_one").batch_sizes == BATCH_PAIRS[0]


@pytest.mark.parametrize("plainly", [True, False])
def test_a_step_without_operations_takes_its_batch_alone(own: str, plainly: bool) -> None:
    traced = trace_workload(workload(own, "nothing", mode="inference"), plainly=plainly, devices=True)
    assert traced.operations == ()
    assert traced.activation_peaks == (traced.input_bytes,)


def test_packed_sequences_are_one_argument(own: str) -> None:
    assert trace(own, "packed").operations


def test_how_long_packed_sequences_are_stays_where_it_is() -> None:
    packed = pack_sequence([torch.ones(2, 3), torch.ones(4, 3)], enforce_sorted=False)
    (moved, _) = map_tensors((packed, torch.ones(2)), lambda tensor: tensor.to("meta"))
    assert isinstance(moved, PackedSequence)
    assert moved.batch_sizes is packed.batch_sizes
    assert moved.data.is_meta
    assert moved.sorted_indices is not None
    assert moved.sorted_indices.is_meta
    assert all(tensor is not packed.batch_sizes for tensor in tensors_in(packed))
