"""What operations of a device's own compute, by the shapes that they are called with."""

import pytest
import torch
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from probes.microtrain.traces.operation_costs import flops_of, grain_of

aten = torch.ops.aten
KERNELS = ("flash", "efficient", "cudnn")
META = torch.device("meta")


def operation(kernel: str, *, backward: bool = False) -> torch._ops.OpOverload:
    packet = getattr(aten, f"_scaled_dot_product_{kernel}_attention{'_backward' if backward else ''}")
    found: torch._ops.OpOverload = packet.default
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_attention_is_counted_as_torch_counts_it(kernel: str) -> None:
    shape = (2, 4, 48, 16)
    query = torch.empty(shape, device=META)
    assert flops_of(operation(kernel), (query, query, query), {}, None) == sdpa_flop_count(shape, shape, shape)
    backward = flops_of(operation(kernel, backward=True), (query, query, query, query), {}, None)
    assert backward == sdpa_backward_flop_count(shape, shape, shape, shape)


@pytest.mark.parametrize("kernel", KERNELS)
def test_queries_that_share_heads_of_keys_cost_what_they_compute(kernel: str) -> None:
    query, key = torch.empty(2, 8, 48, 16, device=META), torch.empty(2, 2, 48, 16, device=META)
    same = flops_of(operation(kernel), (query, query, query), {}, None)
    assert flops_of(operation(kernel), (query, key, key), {}, None) == same
    same = flops_of(operation(kernel, backward=True), (query, query, query, query), {}, None)
    assert flops_of(operation(kernel, backward=True), (query, query, key, key), {}, None) == same


def test_a_recurrent_layer_has_its_steps_and_products() -> None:
    """Two layers, two directions, of 12 inputs and 20 hidden units, 7 steps of 3 samples."""
    lstm = torch.nn.LSTM(12, 20, num_layers=2, bidirectional=True)
    weights = list(lstm.parameters())
    sequence, state = torch.empty(7, 3, 12, device=META), torch.empty(4, 3, 20, device=META)
    shared = (2, 20, 0, 2, False, 0.0, True, True, [], None)
    arguments = (sequence, weights, 4, None, state, state, *shared)
    products = sum(weight.numel() for weight in weights if weight.dim() == 2)
    assert flops_of(aten._cudnn_rnn.default, arguments, {}, None) == 2 * 7 * 3 * products
    assert grain_of(aten._cudnn_rnn.default, arguments) == 7 * 2 * 2
    output = torch.empty(7, 3, 40, device=META)
    backward = (sequence, weights, 4, state, state, state, output, output, None, None, *shared, state, [True] * 4)
    assert flops_of(aten._cudnn_rnn_backward.default, backward, {}, None) == 2 * 2 * 7 * 3 * products
    assert grain_of(aten._cudnn_rnn_backward.default, backward) == 7 * 2 * 2


def test_where_the_batch_comes_first_the_steps_come_second() -> None:
    sequence, weight = torch.empty(3, 7, 12, device=META), torch.empty(80, 12, device=META)
    arguments = (sequence, [weight], 4, None, weight, weight, 2, 20, 0, 1, True, 0.0, True, False, [], None)
    assert grain_of(aten._cudnn_rnn.default, arguments) == 7


def test_packed_samples_lie_in_one_row_and_end_at_different_steps() -> None:
    """Three samples of 4, 2 and 1 places: 7 in all, in 4 steps."""
    sequence, weight = torch.empty(7, 12, device=META), torch.empty(80, 12, device=META)
    arguments = (sequence, [weight], 4, None, weight, weight, 2, 20, 0, 1, False, 0.0, True, False, [3, 2, 1, 1], None)
    assert flops_of(aten._cudnn_rnn.default, arguments, {}, None) == 2 * 7 * weight.numel()
    assert grain_of(aten._cudnn_rnn.default, arguments) == 4


def test_what_works_on_lists_tells_how_many_tensors_these_have() -> None:
    tensors = [torch.empty(5, device=META)] * 6
    assert grain_of(aten._foreach_mul_.Scalar, (tensors, 2.0)) == 6
