"""What a user's own code does depends on numbers where it asks for them: nothing is guessed for it."""

from pathlib import Path

import pytest

from probes.microtrain.tracing import BATCH_PAIRS, LIGHT_BATCH_PAIRS, Untraceable, trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model

PROGRAM = """
import torch
from torch import nn
from torch.distributions import VonMises


class Gated(nn.Module):
    def __init__(self, spare=0):
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.spare = nn.Parameter(torch.empty(spare))

    def forward(self, x):
        if (x > -100).all():
            x = self.layer(x)
        return self.head(x)


class Halting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        done = torch.zeros(len(x), dtype=torch.bool)
        while not done.all():
            x = self.layer(x).tanh()
            done = done | (torch.rand(len(x)) < 0.5)
        return self.head(x)


class Settling(Gated):
    # a loop ends by a number with a point
    def forward(self, x):
        z = x
        for _ in range(50):
            z, before = 0.5 * self.layer(z).tanh(), z
            if (z - before).norm().item() < 0.1 * len(x):
                break
        return self.head(z)


class Counted(Gated):
    # and by whole numbers
    def forward(self, x):
        left = torch.randint(1, 4, (len(x),))
        for _ in range(50):
            if not (left > 0).any():
                break
            x, left = self.layer(x).tanh(), left - 1
        return self.head(x)


class Chosen(Gated):
    # rows of one label
    def forward(self, x):
        return self.head(x), self.layer(x[torch.randint(2, (len(x),)) != 0])


class Masked(Gated):
    # places are written by a mask, which is asked again
    def forward(self, x):
        mask = torch.rand(len(x)) < 0.15
        x = x.clone()
        x[mask] = 0.0
        return self.head(x), self.layer(x[mask])


class Noting(Gated):
    # keeps a figure of it, and the least one
    best = 0.0

    def forward(self, x):
        if (norm := x.norm().item()) < self.best:
            self.best = norm
        return self.head(self.layer(x))


class Sized(Gated):
    # a number says how wide it is, within bounds, or how long it goes on
    def forward(self, x):
        width = int(min(max(x.norm().item(), 1.0), 8.0))
        x[:, :width].tanh()
        for _ in range(min(int(x.norm().item()), 3)):
            x = self.layer(x)
        return self.head(x)


class Compared(Gated):
    def forward(self, x):
        if x[:1].norm().item() < x[1:].norm().item():
            x = self.layer(x)
        return self.head(x)


class Leaving(Gated):
    # leaves once a sum that began at nought is large
    def forward(self, x):
        total = torch.zeros(())
        for _ in range(3):
            x = self.layer(x)
            total += x.square().mean()
            if total.item() > 0:
                break
        return self.head(x)


class Missing(Gated):
    # half of the rows have a number that is none
    def forward(self, x):
        return self.head(self.layer(x[~x.isnan().any(-1)]))


class Careful(Gated):
    # stops where something went wrong
    def forward(self, x):
        x = self.layer(x)
        if torch.isnan(x).any() or torch.isinf(x.sum()) or not torch.isfinite(x).all():
            raise ValueError("the weights have run away")
        return self.head(x)


class Endless(Gated):
    def forward(self, x):
        for _ in range(int(x.norm().item())):
            x = self.layer(x)
        return self.head(x)


class Angular(Gated):
    # torch's own code samples again until all are accepted
    def forward(self, x):
        mean, spread = self.layer(x).chunk(2, -1)
        angles = VonMises(mean, nn.functional.softplus(spread) + 0.1).sample()
        return self.head(torch.cat([angles.cos(), angles.sin()], -1))


def of_both(output, batch):
    return nn.functional.cross_entropy(output[0], batch[1]) + output[1].sum()


def rows(size):
    return torch.randn(size, 8), torch.randint(3, (size,))

def half_missing(size):
    x = torch.randn(size, 8)
    x[::2, 0] = float("nan")
    return x

def summed(output, batch):
    return output.sum()

def missing():
    return Missing(), half_missing, summed

def missing_of_a_large_one():
    return Missing(51_000_000), half_missing, summed

def careful():
    return Careful(), rows

def careful_of_a_large_one():
    return Careful(51_000_000), rows

def settling():
    return Settling(), rows

def counted():
    return Counted(), rows

def chosen():
    return Chosen(), rows, of_both

def masked():
    return Masked(), rows, of_both

def gated():
    return Gated(), rows

def noting():
    return Noting(51_000_000), rows

def sized():
    return Sized(), rows

def compared():
    return Compared(), rows

def leaving():
    return Leaving(), rows

def endless():
    return Endless(), rows

def angular():
    return Angular(), rows

def angular_of_a_large_one():
    return Angular(51_000_000), rows

def large():
    return Gated(51_000_000), rows

def halting():
    return Halting(), rows

def of_transformers():
    # asks whether a layer is dropped
    from transformers import BartConfig, BartForConditionalGeneration
    sizes = {"d_model": 16, "max_position_embeddings": 32, "vocab_size": 50, "pad_token_id": 1, "eos_token_id": 2}
    for half in ("encoder", "decoder"):
        sizes |= {f"{half}_layers": 1, f"{half}_attention_heads": 2, f"{half}_ffn_dim": 32}
    model = BartForConditionalGeneration(BartConfig(**sizes))
    return model, lambda size: {name: torch.randint(3, 50, (size, 8)) for name in ("input_ids", "labels")}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    (tmp_path / "own_questions.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_questions"


def trace(own: str, function: str) -> Trace:
    return trace_workload(Workload(python_model(f"{own}:{function}"), 4), plainly=True)


def test_the_way_that_real_numbers_take_is_traced(own: str) -> None:
    traced = trace(own, "gated")
    assert traced.batch_sizes == LIGHT_BATCH_PAIRS[0]
    forward = [op for op in traced.operations if op.phase == "forward"]
    assert sum(op.count * op.flops.at(10) for op in forward) == 2 * 10 * (8 * 8 + 8 * 3)


def test_a_loop_that_ends_by_its_numbers_ends(own: str) -> None:
    traced = trace(own, "halting")
    assert traced.batch_sizes == LIGHT_BATCH_PAIRS[0]
    for operation in traced.operations:
        for line in (operation.flops, operation.read_bytes, operation.written_bytes):
            assert line.per_sample >= 0 <= line.at(1)
    assert all(line.per_sample >= 0 for line in traced.activation_peaks)


@pytest.mark.parametrize("function", ["settling", "counted", "sized", "compared", "leaving", "endless"])
def test_a_loop_that_ends_by_a_number_is_run_for_it(own: str, function: str) -> None:
    assert trace(own, function).batch_sizes == LIGHT_BATCH_PAIRS[0]


def test_a_loop_of_torchs_own_that_ends_by_its_numbers_ends(own: str) -> None:
    traced = trace(own, "angular")
    assert traced.batch_sizes == LIGHT_BATCH_PAIRS[0]
    assert all(operation.count < 500 for operation in traced.operations)
    with pytest.raises(Untraceable, match=r"a truth from a tensor.*too large.*Measure it instead"):
        trace(own, "angular_of_a_large_one")


@pytest.mark.parametrize(("function", "most"), [("chosen", 0.75), ("masked", 0.4)])
def test_rows_that_a_mask_chooses_are_as_many_as_it_chooses(own: str, function: str, most: float) -> None:
    traced = trace(own, function)
    assert traced.batch_sizes == LIGHT_BATCH_PAIRS[0]
    computed = sum(op.count * op.flops.at(40) for op in traced.operations if op.phase == "forward")
    assert 2 * 40 * 8 * 3 < computed < 2 * 40 * 8 * (3 + 8 * most)


def test_rows_without_missing_numbers_are_as_many_as_there_are(own: str) -> None:
    traced = trace(own, "missing")
    assert traced.batch_sizes == LIGHT_BATCH_PAIRS[0]
    computed = sum(op.count * op.flops.at(40) for op in traced.operations if op.phase == "forward")
    assert computed == 2 * 20 * (8 * 8 + 8 * 3)
    with pytest.raises(Untraceable, match=r"too large.*Measure it instead"):
        trace(own, "missing_of_a_large_one")


def test_whether_something_went_wrong_is_looked_at_in_a_small_model_and_not_in_a_large_one(own: str) -> None:
    assert trace(own, "careful").batch_sizes == LIGHT_BATCH_PAIRS[0]
    assert trace(own, "careful_of_a_large_one").batch_sizes == BATCH_PAIRS[0]


def test_a_number_that_nothing_hangs_on_is_not_run_for(own: str) -> None:
    assert trace(own, "noting").batch_sizes == BATCH_PAIRS[0]


def test_a_model_too_large_to_be_run_for_it_is_told_what_asks(own: str) -> None:
    with pytest.raises(Untraceable, match=r"a truth from a tensor.*too large.*Measure it instead"):
        trace(own, "large")


def test_what_transformers_asks_is_answered_as_it_mostly_is(own: str) -> None:
    pytest.importorskip("transformers")
    assert trace(own, "of_transformers").batch_sizes == BATCH_PAIRS[0]  # not run for real
