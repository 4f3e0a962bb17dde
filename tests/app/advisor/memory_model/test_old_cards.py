"""Attention on cards that the flash kernel does not run on: its scores are counted, at least as much as there are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from app.advisor.decide import recommend
from app.advisor.memory_model.memory import estimate_memory
from app.advisor.memory_model.old_cards import without_flash
from app.advisor.request import Request
from probes.heap_peaks import HeapCurves
from probes.microtrain.traces import device_ways, traced_step
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model, python_model
from tests.app.advisor.build import a_gpu, a_survey

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 100,
}
SHARED = {"huggingface": {**LLAMA, "num_key_value_heads": 2}, "sequence_length": 256}
DROPPED = {"huggingface": {**LLAMA, "num_key_value_heads": 2, "attention_dropout": 0.1}, "sequence_length": 256}
WHOLE = {"huggingface": {**LLAMA, "num_key_value_heads": 8}, "sequence_length": 256}
FP16 = Plan("cuda:0", "fp16")
FUSED = device_ways._is_fused
OWN = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stack(nn.Module):
    def __init__(self, width, again=(), frozen=0, narrow=False):
        super().__init__()
        layers = (nn.TransformerEncoderLayer(4 * width, 4, 64, batch_first=True) for _ in range(6))
        self.layers, self.last = nn.ModuleList(layers), nn.Linear(4 * width, 2)
        self.again, self.frozen = again, frozen
        if narrow:
            self.bfloat16()

    def forward(self, x):
        x = x.to(self.last.weight.dtype)
        with torch.no_grad():
            for layer in self.layers[: self.frozen]:
                x = layer(x)
        for number, layer in enumerate(self.layers[self.frozen :]):
            x = checkpoint(layer, x, use_reentrant=False) if number in self.again else layer(x)
        return self.last(x[:, 0]).float()


def batches(width):
    return lambda n: (torch.randn(n, 512, 4 * width), torch.randint(0, 2, (n,)))


def checkpointed():
    return Stack(12, again=range(6)), batches(12)


def partly():
    return Stack(12, again=range(3)), batches(12)


def frozen():
    return Stack(12, frozen=5), batches(12)


def narrow():
    return Stack(16, narrow=True), batches(16)
"""


def encoder(width: int) -> dict[str, Any]:
    layer = {"type": "transformer_encoder_layer", "in": 4 * width, "heads": 4, "feedforward": 64}
    return {"layers": [layer, layer, {"type": "linear", "out": 2}], "input_shape": [128, 4 * width]}


def own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    (tmp_path / "stacks_of_attention.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Workload(python_model(f"stacks_of_attention:{name}"), 4)


def traced(document: dict[str, Any], mode: Any = "training") -> Trace:
    return trace_workload(Workload(parse_model(document), 4, mode), devices=True)


@pytest.fixture(scope="module", autouse=True)
def without_a_host_s_heap() -> Iterator[None]:
    """What a host holds beyond a step's tensors and what its kernels take inside are nothing of a card's, and half of
    a trace's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced_step, "heap_curves", lambda step: HeapCurves())
        patch.setattr(traced_step, "kernel_peaks", lambda pair, one, other: ())
        patch.setattr(traced_step, "kernel_allocations", lambda pair, one, other: {})
        yield


@pytest.fixture(scope="module")
def shared(without_a_host_s_heap: None) -> Trace:
    return traced(SHARED)


def fused_before_flash(query: Any, key: Any, value: Any, mask: Any, causal: Any) -> bool:
    """By the memory-efficient kernel alone. bf16 under autocast stands for fp16."""
    if query.dtype is torch.bfloat16 and not torch.is_autocast_enabled("cpu"):
        return False
    narrow = query.dtype in device_ways.HALF and (query.shape[-1] % 8 or value.shape[-1] % 8)
    return FUSED(query, key, value, mask, causal) and query.shape[1] == key.shape[1] and not narrow


def highest(trace: Trace, batch_size: int, precision: str = "fp16") -> float:
    return max(line.at(batch_size) for line in trace.peaks_under(precision))


@pytest.mark.parametrize(
    ("document", "mode"),
    [
        (SHARED, "training"),
        (SHARED, "inference"),
        (DROPPED, "training"),
        (encoder(12), "training"),
        (encoder(12), "inference"),
        (encoder(10), "training"),
    ],
)
def test_it_is_told_as_much_as_such_a_card_takes_and_not_much_more(
    document: dict[str, Any], mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = without_flash(traced(document, mode).on(cpu=False))
    monkeypatch.setattr(device_ways, "_is_fused", fused_before_flash)
    really = traced(document, mode).on(cpu=False)
    assert not [each for each in really.autocast_operations if each.kind == "attention"]
    for batch_size in (1, 16, 300):
        assert highest(really, batch_size) <= highest(told, batch_size) <= 1.5 * highest(really, batch_size)
    assert told.activation_peaks == really.activation_peaks  # in fp32 flash runs nowhere
    assert told.allocations == really.allocations
    assert not told.autocast_allocations


@pytest.mark.parametrize(
    ("name", "precision"), [("checkpointed", "fp16"), ("partly", "fp16"), ("frozen", "fp16"), ("narrow", "fp32")]
)
def test_what_is_computed_again_or_has_no_gradients_is_not_kept_and_bf16_always_is(
    name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = own(name, tmp_path, monkeypatch)
    told = without_flash(trace_workload(workload, devices=True).on(cpu=False))
    monkeypatch.setattr(device_ways, "_is_fused", fused_before_flash)
    really = trace_workload(workload, devices=True).on(cpu=False)
    for batch_size in (1, 16, 300):
        highest_there = highest(really, batch_size, precision)
        assert highest_there <= highest(told, batch_size, precision) <= 1.5 * highest_there


def test_what_the_memory_efficient_kernel_takes_is_told_as_on_any_card() -> None:
    for document in (WHOLE, encoder(16)):
        trace = traced(document).on(cpu=False)
        assert without_flash(trace) is trace


@pytest.mark.parametrize(
    ("card", "more"),
    [
        ({"compute_capability": "7.5"}, True),
        ({"compute_capability": "7.0"}, True),
        ({"compute_capability": "8.0"}, False),
        ({"compute_capability": "12.0"}, False),
        ({"compute_capability": None}, False),
        ({"compute_capability": "7.5", "gfx_target": "gfx942"}, False),
    ],
)
def test_cards_are_told_apart(shared: Trace, card: dict[str, Any], more: bool) -> None:
    def peak(precision: Any, **facts: Any) -> int:
        survey = a_survey(gpus=(a_gpu(**facts),))
        return estimate_memory(survey, None, shared, (), Plan("cuda:0", precision)).allocated(16)

    newer = {"compute_capability": "9.0"}
    assert (peak("fp16", **card) > 1.5 * peak("fp16", **newer)) is more
    assert peak("fp32", **card) == peak("fp32", **newer)
    nobodys = estimate_memory(None, None, shared, (), FP16)
    assert nobodys.allocated(16) == peak("fp16", **newer)


def test_what_saves_memory_is_told_as_such_a_card_takes_it(shared: Trace) -> None:
    """In fp32 these heads have all scores on any card, and in fp16 on this one as well."""
    survey = a_survey(gpus=(a_gpu(compute_capability="7.5", memory_free_bytes=10**6),))
    request = Request(Workload(parse_model(SHARED), 16), precision="fp32", devices=("cuda",))
    reasons = recommend(survey, None, shared, [], request).reasons
    (reason,) = [reason for reason in reasons if reason.code == "does-not-fit"]
    saved = {remedy["change"]: remedy["saves_bytes"] for remedy in reason.evidence["remedies"]}
    plain, halved = (estimate_memory(survey, None, shared, (), plan).allocated(16) for plan in (Plan("cuda:0"), FP16))
    assert saved.get("fp16", 0) == pytest.approx(max(plain - halved, 0), abs=2)
