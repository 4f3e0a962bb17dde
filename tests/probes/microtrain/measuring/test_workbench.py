"""A workload laid out for measuring: what its plans share, and what only the measuring holds.

torch's device `meta` holds no numbers, and is not the CPU: what is put on it is, for the bench, on a device.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from probes.microtrain.building.built import BuiltModel
from probes.microtrain.feeding import ResidentFeed, batch_bytes, tensors_in
from probes.microtrain.measuring.altered_batches import Alterations
from probes.microtrain.measuring.workbench import MAX_RING, STATES_MADE, StepRun, Workbench
from probes.microtrain.step import OPTIMIZER_FACTORIES
from probes.workload.description import OPTIMIZERS, OptimizerName, Plan, Workload
from probes.workload.models import parse_model

MODEL = parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [1024]})
META, META_BF16 = Plan("meta", "fp32"), Plan("meta", "bf16")
ONE, BF16 = Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)


def a_bench(data: str = "resident") -> Workbench:
    return Workbench(Workload(MODEL, 8, data=data), frozenset(["meta"]))  # type: ignore[arg-type]


def test_plans_of_one_batch_size_share_what_lies_on_their_device() -> None:
    bench = a_bench()
    one, other = bench.make_step(META, 8), bench.make_step(META_BF16, 8)
    assert one.feed is other.feed
    first, *spare = bench.ring(8)
    assert one.feed.held_bytes == batch_bytes(first) * (1 + len(spare))
    assert bench.spare_device_bytes("meta", 8) == batch_bytes(first) * len(spare)


def test_what_lies_there_for_another_batch_size_is_spare_until_its_plans_are_gone() -> None:
    bench = a_bench()
    small, large = bench.make_step(META, 8), bench.make_step(META, 32)
    alone = small.feed.held_bytes - batch_bytes(bench.ring(8)[0])
    assert bench.spare_device_bytes("meta", 8) == alone + large.feed.held_bytes
    del large
    gc.collect()
    assert bench.spare_device_bytes("meta", 8) == alone


def test_of_what_lies_on_a_device_a_batch_that_was_altered_is_put_there_anew_and_no_other() -> None:
    """All of them a second time may be more than there is room for."""
    bench = a_bench()
    feed = bench.feed("meta", 8)
    assert isinstance(feed, ResidentFeed)
    before = list(feed._batches)
    bench.note_alterations(8, Alterations(frozenset([0]), list(tensors_in(feed.next()))))
    assert bench._feeds[("meta", 8)] is feed
    assert [now is then for now, then in zip(feed._batches, before, strict=True)] == [False] + [True] * 7


def test_what_is_copied_to_its_device_in_each_step_goes_on_and_meets_what_was_made_anew() -> None:
    bench = a_bench("pageable")
    on_device, on_cpu = bench.feed("meta", 8), bench.feed("cpu", 8)
    ring = bench.ring(8)
    for _ in ring:  # a round
        on_device.next()
    ring[0]["inputs"].resize_(0)
    bench.note_alterations(8, Alterations(frozenset([0]), list(tensors_in(on_cpu.next()))))
    assert bench.feed("meta", 8) is on_device
    assert on_device.next()["inputs"].shape == (8, 1024)


class OnACard(torch.Tensor):
    """As a user's function may make it, for all that the bench sees."""

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor).to(*args, **kwargs)


def test_batches_lie_on_the_cpu_wherever_they_were_made() -> None:
    bench = a_bench()
    make = bench.build().make_batch
    bench.build().make_batch = lambda *asked: {k: v.as_subclass(OnACard) for k, v in make(*asked).items()}
    assert {type(tensor) for batch in bench.ring(8) for tensor in batch.values()} == {torch.Tensor}


def test_a_model_for_one_device_alone_is_moved_and_for_several_copied() -> None:
    bench = a_bench()
    assert bench.replica("meta").module is bench.build().module
    shared = a_bench()
    shared.devices = frozenset(["cpu", "meta"])
    assert shared.replica("meta").module is not shared.build().module


def test_what_is_copied_in_every_step_leaves_nothing_there() -> None:
    bench = a_bench("pageable")
    steps = [bench.make_step(META, size) for size in (8, 32)]
    assert [step.feed.held_bytes for step in steps] == [0, 0]
    assert bench.spare_device_bytes("meta", 8) == 0


@pytest.mark.parametrize(
    ("optimizer", "scale", "known"),
    [("adamw", 1.0, True), ("adamw", float("inf"), False), ("sgd", float("inf"), True)],
)
def test_a_peak_is_not_told_of_steps_that_the_scaler_skipped_before_the_optimizer_held_its_state(
    optimizer: OptimizerName, scale: float, known: bool
) -> None:
    run = StepRun(Workbench(Workload(MODEL, 8, optimizer=optimizer), frozenset(["cpu"])), Plan("cpu", "fp32", 1), 8)
    run.prepared()._scaler = torch.amp.GradScaler("cpu", init_scale=scale)  # infinite: it skips every step
    for _ in range(2):
        with run.watched():
            run(1)
    assert (run.memory().process_bytes is not None) is known


class Host:
    """Has room for so many samples: those of all batches that are held, and as many again as `beside` in a step."""

    def __init__(self, samples: int, beside: int) -> None:
        self.samples, self.beside = samples, beside
        self.steps = 0
        self._batches: list[weakref.ref[torch.Tensor]] = []
        self.bench = Workbench(Workload(MODEL, 8, mode="inference"), frozenset(["cpu"]))
        self.bench._built = BuiltModel(nn.Linear(4, 2), self.make_batch, self.forward, lambda output, batch: output)

    def make_batch(self, size: int, generator: torch.Generator | None = None) -> torch.Tensor:
        self._take(size)
        batch = torch.rand(size, 4, generator=generator)
        self._batches.append(weakref.ref(batch))
        return batch

    def forward(self, module: nn.Module, batch: torch.Tensor) -> Any:
        self.steps += 1
        self._take(self.beside)
        return module(batch)

    def _take(self, samples: int) -> None:
        if samples + sum(len(batch) for held in self._batches if (batch := held()) is not None) > self.samples:
            raise MemoryError


@pytest.mark.parametrize(("samples", "steps"), [(12, 1), (8 * MAX_RING + 2, 2)], ids=["a second", "a step beside them"])
def test_a_step_runs_where_there_is_room_for_one_batch_and_not_for_those_that_only_measuring_holds(
    samples: int, steps: int
) -> None:
    host = Host(samples, beside=4)
    run = StepRun(host.bench, ONE, 8)
    with run.watched():
        assert run(1) > 0
    assert host.steps == steps  # once more where it had begun
    assert len(host.bench.ring(8)) == 1
    assert host.bench.spare_bytes(8) == 0  # so the peak is the step's own
    StepRun(host.bench, BF16, 8)(2)
    assert host.steps == steps + 2


def test_a_step_finds_no_batches_of_other_sizes_beside_it_where_there_is_no_room_for_them() -> None:
    host = Host(samples=100, beside=4)
    small, large = StepRun(host.bench, ONE, 8), StepRun(host.bench, ONE, 80)
    small(1)
    large(1)
    assert list(host.bench._rings) == [80]
    small(1)  # what has room for several has several again
    assert {size: len(ring) for size, ring in host.bench._rings.items()} == {8: MAX_RING}
    large(1)
    assert {size: len(ring) for size, ring in host.bench._rings.items()} == {80: 1}
    assert host.steps == 4


def test_what_has_no_room_by_itself_fails_and_is_not_tried_twice_again() -> None:
    host = Host(samples=8, beside=4)
    for plan, steps in ((ONE, 1), (BF16, 2)):
        with pytest.raises(MemoryError):
            StepRun(host.bench, plan, 8)(1)
        assert host.steps == steps
    StepRun(host.bench, ONE, 2)(1)  # others go on


def test_a_device_has_one_batch_alone_where_there_is_no_room_for_more() -> None:
    bench = Workbench(Workload(MODEL, 8, mode="inference", data="resident"), frozenset(["meta"]))
    plain = bench.build().forward

    def forward(module: nn.Module, batch: Any) -> Any:
        if bench.spare_device_bytes("meta", 8):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return plain(module, batch)

    bench.build().forward = forward
    run = StepRun(bench, META, 8)
    with run.watched():
        run(2)
    assert run.prepared().feed.held_bytes == batch_bytes(bench.ring(8)[0])


def test_what_an_optimizer_had_begun_to_keep_when_memory_ran_out_is_made_anew() -> None:
    """It would lack the rest in the next step, whichever plan's that is."""
    bench = Workbench(Workload(MODEL, 8), frozenset(["cpu"]))
    plain, errors = bench.build().forward, [MemoryError()]
    StepRun(bench, ONE, 8)(1)
    optimizer = bench.replica("cpu").optimizer
    assert optimizer is not None

    def forward(module: nn.Module, batch: Any) -> Any:
        if errors:
            for state in optimizer.state.values():
                state.popitem()
            raise errors.pop()
        return plain(module, batch)

    bench.build().forward = forward
    bench.hold_alone(8)
    with pytest.raises(MemoryError):
        StepRun(bench, ONE, 8)(1)
    StepRun(bench, BF16, 8)(1)
    assert {len(state) for state in optimizer.state.values()} == {STATES_MADE["adamw"]}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_first_step_makes_so_many_values_of_each_parameter(name: OptimizerName) -> None:
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = OPTIMIZER_FACTORIES[name]([parameter])
    before = len(optimizer.state[parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    made = len(optimizer.state[parameter]) - before
    assert made == STATES_MADE[name] if name in STATES_MADE else made <= 1  # of one none is half made
