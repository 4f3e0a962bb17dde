"""Layers as a device runs them, in more of the ways that people write them than tests of the ways themselves have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from probes.microtrain.traces.device_ways import KEPT, RECURRENT, as_on_device
from probes.microtrain.traces.recording import Record, Recorder

Run = Callable[[Any, Tensor], Tensor]
ATTENTION, RECURRENT_LAYER = "crosspoint.scaled_dot_product_attention", "crosspoint._cudnn_rnn"
STEPS, BATCH, INPUTS, HIDDEN = 7, 3, 6, 10


def stepped(
    make: Callable[[], nn.Module], run: Run, *shape: int, autocast: bool = False
) -> tuple[nn.Module, list[Record]]:
    """A module that has its gradients, and what a step dispatched."""
    with FakeTensorMode(), as_on_device():
        module, data = make(), torch.randn(*shape, requires_grad=True)
        with Recorder() as recorder, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            torch.autograd.backward(run(module, data).float().sum())
    return module, recorder.records


def records_of(make: Callable[[], nn.Module], run: Run, *shape: int, autocast: bool = False) -> list[Record]:
    return stepped(make, run, *shape, autocast=autocast)[1]


def both_ways(records: list[Record], name: str) -> tuple[Record, Record]:
    """Of an operation that is there once each way."""
    (forward,) = (record for record in records if record.name == name)
    (backward,) = (record for record in records if record.name == f"{name}_backward")
    return forward, backward


def names(records: list[Record]) -> list[str]:
    return [record.name for record in records]


def attend(_: nn.Module, query: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, query, query, dropout_p=0.1, is_causal=True)


def first(layer: nn.Module, data: Tensor) -> Tensor:
    output: Tensor = layer(data)[0]
    return output


# Attention


def test_attention_to_fewer_and_wider_values_is_counted_as_torch_does() -> None:
    query, key, value = (2, 4, 24, 16), (2, 4, 9, 16), (2, 4, 9, 20)

    def run(_: nn.Module, data: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(data, data[:, :, :9], torch.randn(value), dropout_p=0.1)

    forward, backward = both_ways(records_of(nn.Identity, run, *query), ATTENTION)
    assert forward.flops == sdpa_flop_count(query, key, value)  # type: ignore[no-untyped-call]
    given = (2, 4, 24, 20)
    assert backward.flops == sdpa_backward_flop_count(given, query, key, value)  # type: ignore[no-untyped-call]


def test_attention_moves_what_it_reads_and_gives() -> None:
    size = 4 * 2 * 4 * 24 * 16
    forward, backward = both_ways(records_of(nn.Identity, attend, 2, 4, 24, 16), ATTENTION)
    sums = 4 * 2 * 4 * 24
    assert (forward.read_bytes, forward.written_bytes) == (3 * size, size + sums)
    assert (backward.read_bytes, backward.written_bytes) == (
        4 * size + 4 + sums,
        3 * size,
    )  # a sum's gradient is one number


def test_a_mask_is_read() -> None:
    def run(_: nn.Module, data: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(data, data, data, attn_mask=torch.zeros(24, 24))

    plain, masked = (
        both_ways(records_of(nn.Identity, each, 2, 4, 24, 16), ATTENTION)[0].read_bytes for each in (attend, run)
    )
    assert masked - plain == 4 * 24 * 24


def test_multihead_attention_attends_at_once_and_under_autocast_in_bf16() -> None:
    def run(layer: nn.Module, data: Tensor) -> Tensor:
        output: Tensor = layer(data, data, data, need_weights=False)[0]
        return output

    records = records_of(lambda: nn.MultiheadAttention(16, 4, dropout=0.1), run, 7, 3, 16, autocast=True)
    forward, backward = both_ways(records, ATTENTION)
    assert {forward.dtype, backward.dtype} == {"bfloat16"}
    assert not {"aten.bmm", "aten._softmax", "aten.native_dropout"} & set(names(records))


def test_multihead_attention_that_gives_its_weights_has_to_compute_them() -> None:
    def run(layer: nn.Module, data: Tensor) -> Tensor:
        output: Tensor = layer(data, data, data)[0]
        return output

    records = records_of(lambda: nn.MultiheadAttention(16, 4, dropout=0.1), run, 7, 3, 16)
    assert names(records).count("aten.bmm") == 2 + 4
    assert names(records).count("aten.native_dropout") == 1
    assert ATTENTION not in names(records)


def test_a_learned_bias_of_the_scores_is_trained() -> None:
    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1, 4, 24, 24))

        def forward(self, query: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(query, query, query, attn_mask=self.bias)

    module, _ = stepped(Biased, lambda layer, data: layer(data), 2, 4, 24, 16)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_under_autocast_attention_to_normalized_queries_is_in_bf16() -> None:
    def run(norm: nn.Module, data: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(norm(data), norm(data), data)

    forward, _ = both_ways(records_of(lambda: nn.LayerNorm(16), run, 2, 4, 24, 16, autocast=True), ATTENTION)
    assert forward.dtype == "bfloat16"


# Recurrent layers


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_recurrent_layer_is_one_call_each_way(
    kind: Callable[..., nn.RNNBase], gates: int, layers: int, both: bool, batch_first: bool, bias: bool
) -> None:
    dropout = 0.1 if layers > 1 else 0.0  # between layers

    def make() -> nn.Module:
        return kind(INPUTS, HIDDEN, layers, bias=bias, batch_first=batch_first, bidirectional=both, dropout=dropout)

    directions = 2 if both else 1
    inputs = [INPUTS, *[HIDDEN * directions] * (layers - 1)]
    numbers = sum(directions * gates * HIDDEN * (width + HIDDEN) for width in inputs)
    shape = (BATCH, STEPS, INPUTS) if batch_first else (STEPS, BATCH, INPUTS)
    records = records_of(make, first, *shape)
    forward, backward = both_ways(records, RECURRENT_LAYER)
    assert (forward.kind, backward.kind) == ("recurrent", "recurrent")
    assert forward.flops == 2 * STEPS * BATCH * numbers
    assert backward.flops == 2 * forward.flops
    assert forward.grain == backward.grain == STEPS * layers * directions
    assert not {"aten.mm", "aten.addmm", "aten.tanh", "aten.native_dropout"} & set(names(records))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_what_a_recurrent_layer_gives_has_the_shapes_that_it_has(kind: Callable[..., nn.RNNBase]) -> None:
    def shapes(output: Any) -> Any:
        return [shapes(each) for each in output] if isinstance(output, tuple) else tuple(output.shape)

    layer = kind(INPUTS, HIDDEN, 2, batch_first=True, bidirectional=True)
    real = shapes(layer(torch.randn(BATCH, STEPS, INPUTS)))
    with FakeTensorMode(), as_on_device():
        fake = kind(INPUTS, HIDDEN, 2, batch_first=True, bidirectional=True)
        assert shapes(fake(torch.randn(BATCH, STEPS, INPUTS))) == real


def test_the_cells_of_a_projected_layer_are_wider_than_its_states() -> None:
    with FakeTensorMode(), as_on_device():
        output, (state, cell) = nn.LSTM(INPUTS, HIDDEN, proj_size=4)(torch.randn(STEPS, BATCH, INPUTS))
    assert (output.shape[-1], state.shape[-1]) == (4, 4)
    assert cell.shape[-1] == HIDDEN


def test_a_sequence_without_a_batch_is_a_batch_of_one() -> None:
    forward, _ = both_ways(records_of(lambda: nn.GRU(INPUTS, HIDDEN), first, STEPS, INPUTS), RECURRENT_LAYER)
    assert forward.flops == 2 * STEPS * 3 * HIDDEN * (INPUTS + HIDDEN)
    assert forward.grain == STEPS


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_loss_of_the_last_state_alone_comes_back_too(kind: Callable[..., nn.RNNBase]) -> None:
    def last(layer: nn.Module, data: Tensor) -> Tensor:
        states = layer(data)[1]
        state: Tensor = states[0] if isinstance(states, tuple) else states
        return state[-1]

    module, records = stepped(lambda: kind(INPUTS, HIDDEN), last, STEPS, BATCH, INPUTS)
    both_ways(records, RECURRENT_LAYER)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_what_a_decoder_starts_from_is_trained() -> None:
    class Bridged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.bridge = nn.GRU(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
            self.decoder = nn.GRU(INPUTS, HIDDEN)

        def forward(self, data: Tensor) -> Tensor:
            _, state = self.encoder(data)
            output: Tensor = self.decoder(data, self.bridge(state))[0]
            return output

    module, _ = stepped(Bridged, lambda layer, data: layer(data), STEPS, BATCH, INPUTS)
    assert [name for name, parameter in module.named_parameters() if parameter.grad is None] == []


def test_what_the_backward_needs_is_written_and_read_again() -> None:
    forward, backward = both_ways(
        records_of(lambda: nn.LSTM(INPUTS, HIDDEN), first, STEPS, BATCH, INPUTS), RECURRENT_LAYER
    )
    kept = 4 * KEPT * STEPS * BATCH * HIDDEN
    assert forward.written_bytes >= kept + 4 * STEPS * BATCH * HIDDEN
    assert backward.read_bytes >= kept


def test_a_frozen_layer_passes_its_gradient_on() -> None:
    module, records = stepped(lambda: nn.GRU(INPUTS, HIDDEN).requires_grad_(False), first, STEPS, BATCH, INPUTS)
    both_ways(records, RECURRENT_LAYER)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_under_autocast_recurrent_layers_are_not_in_fp32() -> None:
    records = records_of(lambda: nn.LSTM(INPUTS, HIDDEN), first, STEPS, BATCH, INPUTS, autocast=True)
    forward, backward = both_ways(records, RECURRENT_LAYER)
    assert "float32" not in (forward.dtype, backward.dtype)


def test_without_a_gradient_there_is_no_backward() -> None:
    with FakeTensorMode(), as_on_device():
        layer, data = nn.LSTM(INPUTS, HIDDEN), torch.randn(STEPS, BATCH, INPUTS)
        with Recorder() as recorder, torch.no_grad():
            layer(data)
    found = names(recorder.records)
    assert found.count(RECURRENT_LAYER) == 1
    assert f"{RECURRENT_LAYER}_backward" not in found


# Dropout


def test_dropout_that_drops_nothing_is_nothing() -> None:
    with FakeTensorMode(), as_on_device() as ways:
        data = torch.randn(3, 5)
        assert functional.dropout(data, 0.0) is data
        assert functional.dropout(data, 0.5, training=False) is data
        assert not ways.taken
        assert functional.dropout(data, 0.5).shape == data.shape
        assert ways.taken


def test_dropout_within_an_encoder_layer_is_drawn_at_once() -> None:
    records = records_of(
        lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1), lambda layer, data: layer(data), 7, 3, 16
    )
    assert names(records).count("aten.native_dropout") == names(records).count("aten.native_dropout_backward") == 3
    assert "aten.bernoulli_" not in names(records)
    both_ways(records, ATTENTION)


# Autocast


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (lambda data: functional.layer_norm(data, (8,)), "aten.native_layer_norm"),
        (lambda data: functional.group_norm(data, 2), "aten.native_group_norm"),
        (lambda data: functional.softmax(data, -1), "aten._softmax"),
        (lambda data: functional.log_softmax(input=data, dim=-1), "aten._log_softmax"),
        (nn.Softmax(-1), "aten._softmax"),
    ],
)
def test_under_autocast_what_loses_digits_is_in_fp32(run: Callable[[Tensor], Tensor], name: str) -> None:
    records = records_of(lambda: nn.Linear(8, 8), lambda layer, data: run(layer(data)), 4, 8, autocast=True)
    assert {record.dtype for record in records if record.name.startswith(name)} == {"float32"}
    assert {record.dtype for record in records if record.kind == "matmul"} == {"bfloat16"}


@pytest.mark.parametrize("run", [lambda data: data.softmax(-1), lambda data: torch.softmax(data, -1)])
def test_under_autocast_softmax_by_its_other_names_is_in_fp32(run: Callable[[Tensor], Tensor]) -> None:
    records = records_of(lambda: nn.Linear(8, 8), lambda layer, data: run(layer(data)), 4, 8, autocast=True)
    assert {record.dtype for record in records if record.name == "aten._softmax"} == {"float32"}


def test_without_autocast_nothing_is_cast() -> None:
    with FakeTensorMode(), as_on_device() as ways:
        assert functional.layer_norm(torch.randn(4, 8).bfloat16(), (8,)).dtype is torch.bfloat16
    assert not ways.taken


def test_who_asks_for_autocast_hears_of_the_cpus() -> None:
    assert not torch.is_autocast_enabled()
    with FakeTensorMode(), as_on_device():
        assert not torch.is_autocast_enabled()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.is_autocast_enabled()
            assert not torch.is_autocast_enabled("cuda")


# What stays


def _patched() -> list[Any]:
    own = [functional.scaled_dot_product_attention, functional.dropout, torch.is_autocast_enabled]
    narrow = torch.ones(2, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        powers = narrow.exp().dtype
    return [*own, powers, *(getattr(torch._VF, kind) for kind in RECURRENT)]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_everything_is_put_back_even_if_two_were_inside_each_other(failure: type[BaseException]) -> None:
    before = _patched()

    def fail() -> None:
        with as_on_device(), as_on_device():
            assert all(a is not b for a, b in zip(_patched(), before, strict=True))
            raise failure

    with pytest.raises(failure):
        fail()
    assert all(a == b for a, b in zip(_patched(), before, strict=True))


def test_real_layers_have_their_numbers_after_a_fake_step() -> None:
    torch.manual_seed(0)
    layer, data = nn.LSTM(INPUTS, HIDDEN), torch.randn(STEPS, BATCH, INPUTS)
    query = torch.randn(2, 4, 24, 16)
    before = layer(data)[0], functional.scaled_dot_product_attention(query, query, query)
    records_of(lambda: nn.LSTM(INPUTS, HIDDEN), first, STEPS, BATCH, INPUTS)
    records_of(nn.Identity, attend, 2, 4, 24, 16)
    after = layer(data)[0], functional.scaled_dot_product_attention(query, query, query)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
