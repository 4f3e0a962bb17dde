"""Models and losses that alter their batches in place, as any training loop lets them: each step meets a batch as it
was made, however often it comes round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from probes.microtrain.building.built import BuiltModel
from probes.microtrain.feeding import Batch, PageableFeed, ResidentFeed, batch_bytes
from probes.microtrain.measuring import overheads
from probes.microtrain.measuring.altered_batches import CopyingFeed, NoticingFeed, copied_at
from probes.microtrain.measuring.workbench import MAX_RING, StepRun, Workbench
from probes.workload.description import Data, Mode, Plan, Workload
from probes.workload.models import parse_model

ONE, BF16 = Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)
SIZE, WIDTH = 8, 4
Alter = Callable[[dict[str, Any]], object]


def make_batch(size: int, generator: torch.Generator | None = None) -> Batch:
    """Of each batch another number, so that none is another's."""
    number = torch.rand(1, generator=generator) + 1
    return {"x": number.expand(size, WIDTH).clone(), "y": torch.ones(size, dtype=torch.long), "note": 1}


def a_bench(alter: Alter, seen: list[Any], mode: Mode = "training", data: Data = "pageable") -> Workbench:
    """Of a model that alters its batch when it has looked at it: `seen` grows by what each step saw."""

    def forward(module: nn.Module, batch: Batch) -> Any:
        seen.append((sorted(batch), tuple(batch["x"].shape), batch["x"].flatten()[0].item(), batch["y"].max().item()))
        inputs = batch["x"] * 1.0
        alter(batch)
        return module(inputs)

    def loss(output: Any, batch: Batch) -> torch.Tensor:
        return functional.mse_loss(output, torch.zeros(SIZE, 2))

    model = parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [WIDTH]})
    bench = Workbench(Workload(model, SIZE, mode=mode, data=data), frozenset(["cpu"]))
    bench._built = BuiltModel(nn.Linear(WIDTH, 2), make_batch, forward, loss)
    return bench


def run_steps(run: StepRun, count: int = 3 * MAX_RING) -> None:
    for _ in range(2):
        with run.watched():
            run(1)
    run(count)


ALTERATIONS: dict[str, Alter] = {
    "turned": lambda batch: batch["x"].unsqueeze_(1),
    "divided": lambda batch: batch["x"].div_(255),
    "given other numbers": lambda batch: setattr(batch["x"], "data", torch.zeros(1)),
    "labels counted from none": lambda batch: batch["y"].sub_(1),
    "taken out": lambda batch: batch.pop("note"),
    "all taken out": lambda batch: batch.clear(),
    "put in": lambda batch: batch.update(more=torch.zeros(1)),
}


@pytest.mark.parametrize("data", ["pageable", "resident"])
@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_every_step_meets_its_batch_as_it_was_made(alter: Alter, mode: Mode, data: Data) -> None:
    seen: list[Any] = []
    bench = a_bench(alter, seen, mode, data)
    run_steps(StepRun(bench, ONE, SIZE))
    made = {batch["x"].flatten()[0].item() for batch in bench.ring(SIZE)}
    assert {(tuple(names), shape, label) for names, shape, _, label in seen} == {
        (("note", "x", "y"), (SIZE, WIDTH), 1),
    }
    assert {number for _, _, number, _ in seen[2:]} == made
    assert len(made) == MAX_RING


@dataclass
class Fields:
    x: torch.Tensor


def test_a_dataclass_that_is_given_another_tensor_is_noticed() -> None:
    feed = NoticingFeed(PageableFeed([Fields(torch.ones(2))], torch.device("cpu")))
    batch = feed.next()
    assert feed.alterations().places is None
    batch = feed.next()
    batch.x = batch.x / 255
    assert feed.alterations().places == frozenset()


def test_another_plan_and_another_batch_size_begin_with_copies() -> None:
    seen: list[Any] = []
    bench = a_bench(ALTERATIONS["divided"], seen)
    run_steps(StepRun(bench, ONE, SIZE))
    made = [batch["x"].clone() for batch in bench.ring(SIZE)]
    StepRun(bench, BF16, SIZE)(3 * MAX_RING)
    assert all(torch.equal(batch["x"], before) for batch, before in zip(bench.ring(SIZE), made, strict=True))
    other = bench.make_step(ONE, 2 * SIZE)
    assert isinstance(other.feed, CopyingFeed)
    assert other.feed.next()["y"] is bench.ring(2 * SIZE)[0]["y"]  # what is left alone is copied by none


@pytest.mark.parametrize(("data", "kind"), [("pageable", PageableFeed), ("resident", ResidentFeed)])
def test_batches_that_are_left_alone_are_handed_out_as_they_lie(data: Data, kind: type) -> None:
    seen: list[Any] = []
    bench = a_bench(lambda batch: None, seen, data=data)
    run = StepRun(bench, ONE, SIZE)
    run_steps(run, MAX_RING - 2)
    assert run.step is not None
    assert type(run.step.feed) is kind
    assert run.step.feed.next()["x"] is bench.ring(SIZE)[0]["x"]
    assert run.step.altered is None


def test_a_copy_is_what_a_loop_would_hold_and_the_batches_beside_it_are_spare() -> None:
    bench = a_bench(ALTERATIONS["divided"], [])
    run = StepRun(bench, ONE, SIZE)
    held, labels = sum(batch_bytes(batch) for batch in bench.ring(SIZE)), batch_bytes(bench.ring(SIZE)[0]["y"])
    assert bench.spare_bytes(SIZE) == held - batch_bytes(bench.ring(SIZE)[0])
    run_steps(run)
    assert bench.spare_bytes(SIZE) == held - labels
    resident = a_bench(ALTERATIONS["divided"], [], data="resident")
    run_steps(StepRun(resident, ONE, SIZE))
    feed = resident.feed("cpu", SIZE)
    assert resident.spare_device_bytes("cpu", SIZE) == feed.held_bytes - labels


def test_what_is_noticed_of_a_batch_goes_with_its_step() -> None:
    """A second one on a device would count in the peak of its memory."""
    feed = NoticingFeed(ResidentFeed([torch.zeros(2), torch.zeros(3)], torch.device("cpu")))
    feed.next().add_(1)
    feed.next()
    found = feed.alterations()
    assert (found.places, [tuple(tensor.shape) for tensor in found.tensors]) == (frozenset([0]), [(2,)])
    assert feed._given is None


def test_copies_are_like_what_they_are_of() -> None:
    asking = torch.zeros(2, requires_grad=True)
    packed = pack_padded_sequence(torch.zeros(2, 3, 1), torch.tensor([3, 1]), batch_first=True)
    first, (second, other) = copied_at([asking, (packed, "word")], frozenset([0, 1]))
    assert first is not asking
    assert (first.requires_grad, first.is_leaf) == (True, True)
    assert isinstance(second, PackedSequence)
    assert second.data is not packed.data
    assert other == "word"


def test_a_launch_is_timed_on_batches_as_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    seen: list[Any] = []
    bench = a_bench(ALTERATIONS["turned"], seen)
    run = StepRun(bench, ONE, SIZE)
    run_steps(run)
    seen.clear()
    assert run.step is not None
    overheads.measure_launch(run.step, bench.ring(SIZE)[0])
    assert [shape for _, shape, _, _ in seen] == [(SIZE, WIDTH)] * overheads.REPEATS
