"""A step traced as a device runs it. What real steps of a card dispatched is held against it in tests/benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from probes.microtrain import tracing
from probes.microtrain.traces.device_ways import Ways, as_on_device
from probes.microtrain.traces.recording import Record, Recorder
from probes.microtrain.traces.traced_step import AutocastStep
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.trace_check import check_trace
from probes.workload.description import Workload
from probes.workload.models import parse_model


def recorded(make: Callable[[], nn.Module], *shape: int, autocast: bool = False) -> tuple[list[Record], Ways]:
    """Of a step of a module that is made and run under fake tensors."""
    with FakeTensorMode(), as_on_device() as ways:
        module, data = make(), torch.randn(*shape, requires_grad=True)
        with Recorder() as recorder, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output = module(data)
            first = output[0] if isinstance(output, tuple) else output
            first.float().sum().backward()
    return recorder.records, ways


def named(records: list[Record], name: str) -> list[Record]:
    return [record for record in records if record.name == name]


class Attention(nn.Module):
    def __init__(self, heads_of_keys: int = 4) -> None:
        super().__init__()
        self.heads_of_keys = heads_of_keys

    def forward(self, query: torch.Tensor) -> torch.Tensor:
        key = query[:, : self.heads_of_keys]
        shared = self.heads_of_keys < query.shape[1]
        return functional.scaled_dot_product_attention(query, key, key, dropout_p=0.1, enable_gqa=shared)


@pytest.mark.parametrize(("heads_of_keys", "autocast"), [(4, False), (4, True), (2, True)])
def test_attention_with_dropout_is_one_operation_each_way(heads_of_keys: int, autocast: bool) -> None:
    shape = (2, 4, 24, 16)
    records, ways = recorded(lambda: Attention(heads_of_keys), *shape, autocast=autocast)
    (forward,) = named(records, "crosspoint.scaled_dot_product_attention")
    (backward,) = named(records, "crosspoint.scaled_dot_product_attention_backward")
    assert ways.taken
    assert (forward.kind, backward.kind) == ("attention", "attention")
    assert forward.flops == sdpa_flop_count(shape, shape, shape)
    assert backward.flops == sdpa_backward_flop_count(shape, shape, shape, shape)
    assert not named(records, "aten.bmm")


def multiplied(records: list[Record], phase: int) -> int:
    """Flops of matrix multiplications, of the first forward ones or of those after them."""
    products = [record.flops for record in records if record.kind == "matmul"]
    return sum(products[:2] if phase == 0 else products[2:])


def test_heads_that_share_keys_are_taken_apart_in_fp32() -> None:
    """No kernel of a card's takes them so: the scores are made, and kept for the backward."""
    shape = (2, 4, 24, 16)
    records, ways = recorded(lambda: Attention(2), *shape)
    assert ways.taken
    assert not named(records, "crosspoint.scaled_dot_product_attention")
    assert multiplied(records, 0) == sdpa_flop_count(shape, shape, shape)
    assert max(record.written_bytes for record in records) >= 4 * 2 * 4 * 24 * 24


# (width of keys, of values, under autocast, with a mask, one kernel): fp32 and masks are for the memory-efficient one,
# which takes 16 bytes at a time.
WIDTHS = [
    (26, 26, False, False, False),
    (10, 10, False, True, False),
    (28, 28, False, False, True),
    (28, 28, False, True, True),
    (28, 26, False, False, False),
    (26, 26, True, False, True),
    (28, 28, True, True, False),
    (32, 32, True, True, True),
    (26, 24, True, False, False),
    (512, 512, True, False, True),
    (258, 258, True, False, False),
]


@pytest.mark.parametrize(("width", "values", "autocast", "masked", "fused"), WIDTHS)
def test_which_widths_of_heads_a_kernel_takes(
    width: int, values: int, autocast: bool, masked: bool, fused: bool
) -> None:
    records, _ = recorded(lambda: Wide(values, masked), 2, 4, 24, width, autocast=autocast)
    assert bool(named(records, "crosspoint.scaled_dot_product_attention")) is fused
    assert bool(named(records, "aten._safe_softmax")) is not fused


class Wide(nn.Module):
    def __init__(self, values: int, masked: bool) -> None:
        super().__init__()
        self.values, self.masked = values, masked

    def forward(self, query: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(query.shape[-2], query.shape[-2], dtype=torch.bool) if self.masked else None
        return functional.scaled_dot_product_attention(query, query, query[..., : self.values], mask, 0.1)


@pytest.mark.parametrize(("queries", "width", "fused"), [(24, 26, True), (12, 26, False), (12, 32, True)])
def test_flash_takes_causal_attention_of_as_many_queries_as_keys_alone(queries: int, width: int, fused: bool) -> None:
    def attend(query: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query[..., :queries, :], query, query, is_causal=True)

    class Module(nn.Module):
        forward = staticmethod(attend)

    records, _ = recorded(Module, 2, 4, 24, width, autocast=True)
    assert bool(named(records, "crosspoint.scaled_dot_product_attention")) is fused
    assert bool(named(records, "aten._safe_softmax")) is not fused


def test_attention_by_products_keeps_in_fp32_what_torch_keeps_and_truth_values_of_what_is_dropped() -> None:
    heads, places, width = 4, 96, 10
    layer = {"type": "transformer_encoder_layer", "in": heads * width, "heads": heads, "feedforward": 8}
    device = traced(layer, {"type": "linear", "out": 2}, inputs=(places, heads * width)).on(cpu=False)
    assert not [each for each in device.operations if each.kind == "attention"]
    scores = heads * places * places
    kept = scores * (4 + 4 + 1)  # the weights, those left, and which
    assert kept < device.activation_bytes.per_sample < kept + 2 * 4 * scores


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("heads_of_keys", [4, 2])
def test_products_are_those_of_torchs_own_kernel(causal: bool, dropout: float, heads_of_keys: int) -> None:
    """But for what it drops, which is another on a device."""

    def attend(query: torch.Tensor) -> torch.Tensor:
        key = query[:, :heads_of_keys]
        options = {"is_causal": causal, "enable_gqa": heads_of_keys < 4}
        return functional.scaled_dot_product_attention(query, key, key, dropout_p=dropout, **options)

    class Module(nn.Module):
        forward = staticmethod(attend)

    shape = (2, 4, 24, 10)
    by_ways, _ = recorded(Module, *shape)
    with FakeTensorMode(), sdpa_kernel(SDPBackend.MATH), Recorder() as recorder:
        attend(torch.randn(*shape, requires_grad=True)).sum().backward()
    for kind in ("matmul", "normalization"):
        torchs = [record[1:] for record in recorder.records if record.kind == kind]
        assert [record[1:] for record in by_ways if record.kind == kind] == torchs


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("shape", [(24, 16), (8, 24, 16), (2, 2, 4, 24, 16)])
def test_attention_that_is_not_of_samples_and_heads_is_taken_apart(shape: tuple[int, ...], autocast: bool) -> None:
    """torch has them as (…, places, width), and its kernels take four."""
    records, ways = recorded(lambda: Alone(), *shape, autocast=autocast)
    assert ways.taken
    assert not named(records, "crosspoint.scaled_dot_product_attention")
    scores = prod(shape[:-1]) * 24
    assert multiplied(records, 0) == 2 * 2 * scores * 16
    assert multiplied(records, 1) == 2 * 2 * 2 * scores * 16


class Alone(nn.Module):
    def forward(self, query: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, query, query)


LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = [
    # steps x layers x directions, and numbers in all matrices
    (lambda: nn.LSTM(6, 10, 2, bidirectional=True), (7, 3, 6), 28, 2 * 40 * (6 + 10) + 2 * 40 * (20 + 10)),
    (lambda: nn.GRU(6, 10, batch_first=True), (3, 7, 6), 7, 30 * (6 + 10)),
    (lambda: nn.RNN(6, 10, nonlinearity="tanh"), (7, 3, 6), 7, 10 * (6 + 10)),
    (lambda: nn.RNN(6, 10, nonlinearity="relu"), (7, 3, 6), 7, 10 * (6 + 10)),
]


@pytest.mark.parametrize(("make", "shape", "turns", "numbers"), LAYERS)
def test_recurrent_layers_of_any_kind_are_one_call(
    make: Callable[[], nn.Module], shape: tuple[int, ...], turns: int, numbers: int
) -> None:
    records, _ = recorded(make, *shape)
    (forward,) = named(records, "crosspoint._cudnn_rnn")
    (backward,) = named(records, "crosspoint._cudnn_rnn_backward")
    assert forward.flops == 2 * 7 * 3 * numbers
    assert backward.flops == 2 * forward.flops
    assert forward.grain == backward.grain == turns


def test_dropout_draws_and_scales_at_once() -> None:
    records, ways = recorded(lambda: nn.Dropout(0.2), 3, 5)
    assert ways.taken
    assert [len(named(records, f"aten.native_dropout{way}")) for way in ("", "_backward")] == [1, 1]
    assert not named(records, "aten.bernoulli_")
    records, ways = recorded(lambda: nn.Dropout(0.2).eval(), 3, 5)
    assert not ways.taken


def test_autocast_keeps_a_normalization_in_fp32_as_a_card_does() -> None:
    records, _ = recorded(lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), 4, 8, autocast=True)
    assert {record.dtype for record in named(records, "aten.native_layer_norm")} == {"float32"}


def test_autocast_takes_a_loss_to_fp32_as_a_card_does_and_not_its_softmax() -> None:
    records, _ = recorded(lambda: Classifier(), 4, 8, autocast=True)
    assert {record.dtype for record in named(records, "aten._log_softmax")} == {"bfloat16"}
    assert {record.dtype for record in named(records, "aten.nll_loss_forward")} == {"float32"}


def test_autocast_keeps_the_norm_of_llamas_in_fp32_as_a_card_does() -> None:
    records, _ = recorded(lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)), 4, 8, autocast=True)
    for name in ("aten.pow", "aten.mean", "aten.rsqrt"):
        assert {record.dtype for record in named(records, name)} == {"float32"}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 3)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.last(data), torch.zeros(len(data), dtype=torch.long))


def test_torchs_own_functions_come_back_whatever_happens() -> None:
    before = (functional.dropout, functional.scaled_dot_product_attention, functional.layer_norm)
    asked, lstm = torch.is_autocast_enabled, torch._VF.lstm

    def fail() -> None:
        with as_on_device():
            assert functional.dropout is not before[0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (functional.dropout, functional.scaled_dot_product_attention, functional.layer_norm) == before
    assert torch.is_autocast_enabled is asked
    assert torch._VF.lstm == lstm


def traced(*layers: object, inputs: tuple[int, ...] = (12, 6), devices: bool = True) -> Trace:
    model = parse_model({"layers": list(layers), "input_shape": list(inputs)})
    return trace_workload(Workload(model, 4), devices=devices)


GRU = {"type": "gru", "hidden": 10, "output": "last"}


def test_a_trace_holds_the_step_as_a_device_runs_it_where_it_differs() -> None:
    trace = traced(GRU, {"type": "linear", "out": 2})
    assert trace.devices
    assert trace.device is not None
    assert trace.on(cpu=True) is trace
    on_device = trace.on(cpu=False)
    assert len([each for each in on_device.operations if each.kind == "recurrent"]) == 2
    assert on_device.operation_count() < 0.5 * trace.operation_count()
    assert on_device.allocations
    assert on_device.autocast_operations
    assert (on_device.kernel_peaks, on_device.heap_fresh) == ((), ())
    assert on_device.parameter_bytes == trace.parameter_bytes


def test_a_step_that_is_the_same_on_a_device_has_one_trace() -> None:
    layers = [{"type": "linear", "out": 8}, "relu", {"type": "linear", "out": 2}]
    model = parse_model({"layers": layers, "input_shape": [6]})
    trace = trace_workload(Workload(model, 4, "inference"), devices=True)  # in training its loss is another in bf16
    assert trace.devices
    assert trace.device is None
    assert trace.on(cpu=False) is trace


def test_what_this_cpu_refuses_under_autocast_is_traced_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent layers in bf16 have no kernel on a processor without instructions for it."""
    refused = AutocastStep(refused="could not create a primitive")
    monkeypatch.setattr(tracing, "trace_autocast", lambda *_: refused)
    trace = traced(GRU, {"type": "linear", "out": 2})
    assert trace.autocast_refused
    assert not trace.autocast_operations
    on_device = trace.on(cpu=False)
    assert not on_device.autocast_refused
    assert {each.dtype for each in on_device.autocast_operations if each.kind == "recurrent"} == {"bfloat16"}


def test_nobody_pays_for_a_devices_trace_who_has_not_asked() -> None:
    trace = traced(GRU, {"type": "linear", "out": 2}, devices=False)
    assert not trace.devices
    assert trace.device is None


def test_it_survives_a_journey_and_is_looked_at_like_any() -> None:
    trace = traced(GRU, {"type": "linear", "out": 2})
    document = trace.to_json()
    assert Trace.from_json(document) == trace
    checked = check_trace(document, "traces[0]")
    assert checked.device is not None
    assert checked.device.operations == trace.on(cpu=False).operations
