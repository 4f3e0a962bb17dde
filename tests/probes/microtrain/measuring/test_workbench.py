"""A workload laid out for measuring: what its plans share, and what only the measuring holds.

torch's device `meta` holds no numbers, and is not the CPU: what is put on it is, for the bench, on a device.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from probes.microtrain.feeding import ResidentFeed, batch_bytes, tensors_in
from probes.microtrain.measuring.altered_batches import Alterations
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.workload.description import OptimizerName, Plan, Workload
from probes.workload.models import parse_model

MODEL = parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [1024]})
META, META_BF16 = Plan("meta", "fp32"), Plan("meta", "bf16")


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
