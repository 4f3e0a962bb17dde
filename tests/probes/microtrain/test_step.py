"""What a step does, whichever plan it runs under."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from probes.microtrain.feeding import Batch, NoPinnedMemory, PinnedFeed, batch_bytes, make_feed, map_tensors
from probes.microtrain.step import OPTIMIZER_FACTORIES, UnsupportedWorkload, applied, make_step
from probes.workload.description import OPTIMIZERS, OptimizerName, Plan, Precision

CPU = torch.device("cpu")
PLAN = Plan("cpu", "fp32", 1)


class Small:
    """Two linear layers with dropout; remembers what went in."""

    def __init__(self, *layers: nn.Module) -> None:
        torch.manual_seed(0)
        self.module: nn.Module = nn.Sequential(*(layers or (nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))))
        self.seen: list[float] = []

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        self.seen.append(float(batch["inputs"][0, 0]))
        return module(batch["inputs"])

    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(output, batch["targets"])

    def batches(self, count: int = 3) -> list[Batch]:
        return [{"inputs": torch.randn(5, 4), "targets": torch.randint(3, (5,)), "name": "x"} for _ in range(count)]


def weights_of(built: Small) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in built.module.parameters()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_step_of_training_moves_every_weight(optimizer: OptimizerName, precision: Precision) -> None:
    built = Small()
    plan = Plan("cpu", precision, 1)
    step = make_step(built, built.batches(), plan, optimizer=optimizer)
    before = weights_of(built)
    with applied(plan):
        loss = step()
    assert loss.isfinite()
    assert all(not torch.equal(old, new) for old, new in zip(before, weights_of(built), strict=True))


def test_every_optimizer_has_torchs_own_defaults() -> None:
    parameter = [nn.Parameter(torch.zeros(1))]
    assert set(OPTIMIZER_FACTORIES) == set(OPTIMIZERS)
    assert OPTIMIZER_FACTORIES["adamw"](parameter).defaults == torch.optim.AdamW(parameter).defaults
    assert OPTIMIZER_FACTORIES["sgd"](parameter).defaults == torch.optim.SGD(parameter).defaults
    assert OPTIMIZER_FACTORIES["sgd-momentum"](parameter).defaults["momentum"] == 0.9


def test_gradients_do_not_pile_up() -> None:
    built = Small(nn.Linear(4, 3))
    batch = built.batches(1)
    step = make_step(built, batch, PLAN, optimizer="sgd")
    for group in step.optimizer.param_groups if step.optimizer else ():
        group["lr"] = 0.0
    step()
    first = [parameter.grad.clone() for parameter in built.module.parameters() if parameter.grad is not None]
    step()
    second = [parameter.grad for parameter in built.module.parameters() if parameter.grad is not None]
    assert len(first) == 2
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_batches_change_from_step_to_step() -> None:
    built = Small()
    step = make_step(built, built.batches(3), PLAN)
    for _ in range(6):
        step()
    assert len(set(built.seen)) == 3
    assert built.seen[:3] == built.seen[3:]


def test_the_models_call_runs_so_that_hooks_do() -> None:
    built = Small()
    called: list[str] = []
    built.module.register_forward_hook(lambda *_: called.append("forward"))
    make_step(built, built.batches(), PLAN)()
    assert called == ["forward"]


def test_the_loss_is_read_every_so_many_steps() -> None:
    built = Small()
    step = make_step(built, built.batches(), PLAN, log_every=2)
    step()
    assert step.last_loss is None
    loss = step()
    assert step.last_loss == pytest.approx(loss.item())


def test_inference_is_in_eval_mode_and_leaves_no_graph() -> None:
    built = Small()
    before = weights_of(built)
    step = make_step(built, built.batches(1), PLAN, mode="inference", log_every=1)
    first, second = step(), step()
    assert torch.equal(first, second)  # no dropout
    assert first.is_inference()
    assert all(torch.equal(old, new) for old, new in zip(before, weights_of(built), strict=True))


def test_training_is_in_train_mode() -> None:
    built = Small()
    built.module.eval()
    make_step(built, built.batches(), PLAN)
    assert built.module.training


def test_autocast_computes_in_the_plans_precision() -> None:
    built = Small()
    dtypes: list[torch.dtype] = []
    built.module.register_forward_hook(lambda _module, _inputs, output: dtypes.append(output.dtype))
    make_step(built, built.batches(), Plan("cpu", "bf16", 1))()
    assert dtypes == [torch.bfloat16]
    assert all(parameter.dtype == torch.float32 for parameter in built.module.parameters())


def test_a_model_without_weights_cannot_be_trained() -> None:
    built = Small(nn.ReLU())
    with pytest.raises(UnsupportedWorkload, match="nothing to train"):
        make_step(built, built.batches(), PLAN)


def test_threads_are_set_for_a_plan_and_put_back() -> None:
    assert torch.get_num_threads() == 1
    with applied(Plan("cpu", "fp32", 2)):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("precision", "expected"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_products_in_fp32_are_as_precise_as_the_plan_says(precision: Precision, expected: str) -> None:
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)  # type: ignore[attr-defined]
    before = [switch.fp32_precision for switch in switches]
    with applied(Plan("cuda:0", precision)):
        assert [switch.fp32_precision for switch in switches] == [expected] * 3
    assert [switch.fp32_precision for switch in switches] == before


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_model_may_ask_torch_how_precise_its_products_are(precision: Precision) -> None:
    """As transformers' CTC loss does, by `cudnn.flags`."""
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    with applied(Plan("cuda:0", precision)):
        assert [switch.allow_tf32 for switch in switches] == [precision == "tf32"] * 2
        with torch.backends.cudnn.flags(enabled=False):
            pass
    assert [switch.allow_tf32 for switch in switches] == before


def test_a_plan_s_card_is_the_current_one_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch asks that one whether it has bf16, and one's own `cuda` means it."""
    log: list[str] = []

    @contextmanager
    def device(name: str) -> Iterator[None]:
        log.append(f"on {name}")
        yield
        log.append("back")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", device)
    with applied(Plan("cuda:1", "bf16")):
        log.append("runs")
    assert log == ["on cuda:1", "runs", "back"]
    with applied(PLAN):
        assert len(log) == 3


def test_a_feed_needs_a_batch() -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        make_feed([], CPU, "resident")


def test_a_batch_is_counted_and_changed_whatever_its_form() -> None:
    batch = {"a": torch.zeros(2, 3), "b": (torch.zeros(4, dtype=torch.int64), [torch.zeros(1)]), "c": "text"}
    assert batch_bytes(batch) == 24 + 32 + 4
    doubled = map_tensors(batch, lambda tensor: tensor + 1)
    assert doubled["b"][1][0].item() == 1
    assert doubled["c"] == "text"


class FakeStream:
    """Stands for torch.cuda.Stream; writes down what happens."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: FakeStream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    def __enter__(self) -> None:
        self.log.append(f"on {self.name}")

    def __exit__(self, *_: object) -> None:
        pass


def test_a_pinned_batch_is_copied_while_the_one_before_is_computed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    main, side = FakeStream(log, "main"), FakeStream(log, "side")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: log.append("recorded"))
    feed = PinnedFeed([torch.zeros(1), torch.ones(1)], CPU)
    assert log == ["on side"]  # the first copy has begun
    assert feed.next().item() == 0
    assert log == ["on side", "main waits for side", "recorded", "on side"]
    assert feed.next().item() == 1


def test_a_host_without_memory_to_pin_is_told_apart_from_a_card_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver says the same of both."""

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(said)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    said = "CUDA error: out of memory"
    with pytest.raises(NoPinnedMemory, match="2 batches") as caught:
        PinnedFeed([torch.zeros(1_000_000)] * 2, CPU)
    assert "8 MB of pinned memory" in str(caught.value)
    assert caught.value.__context__ is None  # its frames would hold on to what was pinned
    said = "CUDA error: device-side assert triggered"
    with pytest.raises(RuntimeError, match="device-side assert"):
        PinnedFeed([torch.zeros(1)], CPU)
