"""Attention on cards that the flash kernel does not run on: its scores are counted, at least as much as there are."""

from typing import Any

import pytest

from app.advisor.memory_model.memory import estimate_memory
from app.advisor.memory_model.old_cards import without_flash
from probes.microtrain.traces import device_ways
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
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


def encoder(width: int) -> dict[str, Any]:
    layer = {"type": "transformer_encoder_layer", "in": 4 * width, "heads": 4, "feedforward": 64}
    return {"layers": [layer, layer, {"type": "linear", "out": 2}], "input_shape": [128, 4 * width]}


def traced(document: dict[str, Any], mode: Any = "training") -> Trace:
    return trace_workload(Workload(parse_model(document), 4, mode), devices=True)


@pytest.fixture(scope="module")
def shared() -> Trace:
    return traced(SHARED)


def fused_before_flash(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """By the memory-efficient kernel alone."""
    narrow = query.dtype in device_ways.HALF and (query.shape[-1] % 8 or value.shape[-1] % 8)
    return FUSED(query, key, value, mask) and query.shape[1] == key.shape[1] and not narrow


def highest(trace: Trace, batch_size: int) -> float:
    return max(line.at(batch_size) for line in trace.autocast_peaks)


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
