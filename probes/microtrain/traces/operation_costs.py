"""What one operation computes and moves: FLOPs, bytes read, bytes written, from its arguments' shapes.

FLOPs follow torch.utils.flop_counter, which counts products (a multiply-add is two) and nothing else; what it counts
as 0 (on a CPU attention and LSTMs, products with a vector, whatever is written in place), wrongly or though it is not
computed has formulas here, and what works on whole matrices in matrix_costs. It counts products of complex numbers as
if these were real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from probes.microtrain.traces.matrix_costs import MATRIX_FORMULAS
from probes.microtrain.traces.operation_kinds import kind_of
from probes.microtrain.traces.packed_weights import packed_flops

aten = torch.ops.aten


_COMPLEX = 4  # a product of two complex numbers, and its sum, is four of real ones


def flops_of(operation: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    packet = _beside(operation)
    times = _COMPLEX if any(isinstance(arg, torch.Tensor) and arg.is_complex() for arg in args) else 1
    if (own := OWN_FORMULAS.get(str(packet))) is not None:
        return times * own(args)
    if (packed := packed_flops(operation, args, result)) > 0:
        return packed
    formula = flop_registry.get(packet)
    return 0 if formula is None else times * int(formula(*args, **kwargs, out_val=result))


@cache
def _beside(operation: OpOverload) -> Any:
    """The operation that makes a result of its own where this one writes its first argument: they compute the same."""
    packet = operation._overloadpacket
    return getattr(getattr(torch.ops, operation.namespace), packet.__name__.rstrip("_"), packet)


def grain_of(operation: OpOverload, args: tuple[Any, ...]) -> float:
    """FLOPs of each of the blocks that a kernel works through by itself; of a pool, the numbers in a window; of what
    works on lists, how many tensors these have; of a device's recurrent layers, how many steps come one after the
    other. 0 for kernels that are not known to have any of these."""
    name = str(operation._overloadpacket)
    blocks, pool = BLOCKS.get(name), POOLS.get(name)
    if name.startswith(LISTED):
        return float(len(args[0]))
    if name in TURNS:
        return float(TURNS[name](args))
    if pool is not None:
        return _window(args[pool.place], pool.dimensions)
    return flops_of(operation, args, {}, None) / blocks(args) if blocks is not None else 0.0


def _window(sides: int | Sequence[int], dimensions: int) -> float:
    """One side is that of every dimension."""
    each = [sides] if isinstance(sides, int) else list(sides)
    return float(math.prod(each * dimensions if len(each) == 1 else each))


def _attention(args: tuple[Any, ...]) -> int:
    """(query, key, value, dropout, is causal, …), the first three as batch, heads, places, width; key and value alike:
    two products over every pair that is computed."""
    query, key, value = args[0].shape, args[1].shape, args[2].shape
    return int(2 * _pairs(query, key, is_causal=_flag(args, 4)) * (query[3] + value[3]))


def _attention_backward(args: tuple[Any, ...]) -> int:
    """(output's gradient, query, key, value, output, logsumexp, dropout, is causal, …). Five products: the scores anew
    and two for each of the forward's (torch.utils.flop_counter.sdpa_backward_flop_count)."""
    query, key, value = args[1].shape, args[2].shape, args[3].shape
    return int(2 * _pairs(query, key, is_causal=_flag(args, 7)) * (3 * query[3] + 2 * value[3]))


def _device_attention(args: tuple[Any, ...]) -> int:
    """(query, key, value, …) of a device's kernels, each (…, places, width): all scores, masked or not. Heads of keys
    may be fewer than of queries, which share them (torch.utils.flop_counter refuses these)."""
    query, key, value = args[0].shape, args[1].shape, args[2].shape
    return int(2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def _device_attention_backward(args: tuple[Any, ...]) -> int:
    """(output's gradient, query, key, value, …). Five products, as on a CPU."""
    query, key, value = args[1].shape, args[2].shape, args[3].shape
    return int(2 * math.prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1]))


def _flag(args: tuple[Any, ...], place: int) -> bool:
    """False where it was left out."""
    return bool(args[place]) if len(args) > place else False


# ATen's kernel (FlashAttentionKernel.cpp) takes so many keys at a time.
KEYS_AT_ONCE = 512


def _queries_at_once(queries: int) -> int:
    """The same of queries."""
    return 32 if queries < 192 else 64 if queries < 768 else 256


def _pairs(query: Sequence[int], key: Sequence[int], *, is_causal: bool) -> int:
    """How many scores are computed. Where no place sees later ones, blocks of keys are left out that come after a whole
    block of queries, so none of up to KEYS_AT_ONCE; torch.utils.flop_counter counts them all."""
    batch, heads, queries, _ = query
    keys = key[2]
    if not is_causal or keys <= KEYS_AT_ONCE:
        return batch * heads * queries * keys
    rows = _queries_at_once(queries)
    scores = 0
    for first in range(0, queries, rows):
        seen = -(-min(first + rows, keys) // KEYS_AT_ONCE) * KEYS_AT_ONCE
        scores += min(rows, queries - first) * min(seen, keys)
    return batch * heads * scores


def _attention_blocks(query: Sequence[int]) -> int:
    """Of queries, of all heads and samples."""
    batch, heads, queries, _ = query
    return max(1, batch * heads * -(-queries // _queries_at_once(queries)))


def _convolution_backward(args: tuple[Any, ...]) -> int:
    """(output's gradient, input, weight, …, transposed, output padding, groups, output mask): as much as the forward
    for each of the gradients of input and weight that is asked for.

    torch.utils.flop_counter counts the weight's as if there were no groups: EfficientNet-B0 fifteen times too much.
    """
    gradient, image, weight, transposed, mask = args[0], args[1], args[2], args[7], args[10]
    places = image if transposed else gradient
    return int(2 * places.numel() * weight[0].numel() * (mask[0] + mask[1]))


def _recurrent(args: tuple[Any, ...]) -> int:
    """input: steps, batch, inputs; weights: gates * hidden by inputs, gates * hidden by hidden."""
    steps, batch = args[0].shape[0], args[0].shape[1]
    return int(2 * steps * batch * (args[1].numel() + args[2].numel()))


def _recurrent_backward(args: tuple[Any, ...]) -> int:
    """Twice the forward: with respect to the inputs and to the weights."""
    return 2 * _recurrent(args)


def _cudnn_recurrent(args: tuple[Any, ...]) -> int:
    """(input: steps, batch, inputs or batch first, or packed: places, inputs; weights of all layers and directions, …):
    two products a step."""
    places = math.prod(args[0].shape[:-1])
    return int(2 * places * sum(weight.numel() for weight in args[1] if weight.dim() == 2))


def _cudnn_recurrent_backward(args: tuple[Any, ...]) -> int:
    return 2 * _cudnn_recurrent(args)


def _cudnn_turns(args: tuple[Any, ...], place: int) -> int:
    """Steps that come one after the other, of all layers and directions. place: of the number of layers; then follow
    whether the batch comes first, dropout, whether it trains, whether there are two directions, and of packed samples
    how many each step has."""
    packed = args[place + 5]
    steps = len(packed) if packed else args[0].shape[1 if args[place + 1] else 0]
    return int(steps * args[place] * (2 if args[place + 4] else 1))


def _product(left: int, right: int) -> Callable[[tuple[Any, ...]], int]:
    """left, right: places of the matrices, or batches of them, among the arguments."""
    return lambda args: int(2 * args[left].numel() * args[right].shape[-1])


def _with_vector(matrix: int) -> Callable[[tuple[Any, ...]], int]:
    """Each number of the matrix, or of another vector, meets one of the vector. matrix: its place."""
    return lambda args: int(2 * args[matrix].numel())


def _outer(args: tuple[Any, ...]) -> int:
    """(what it is added to, two vectors)."""
    return int(2 * args[1].numel() * args[2].numel())


def grouped_shape(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None = None, *_: Any, **__: Any
) -> list[int]:
    """What torch._grouped_mm returns: products of groups of rows (or columns, or of what is summed over) that end at
    offsets (torch docs, nn.functional.grouped_mm)."""
    if a.dim() == 2 and b.dim() == 2:
        return [offsets.shape[0] if offsets is not None else 1, a.shape[0], b.shape[1]]
    return [*a.shape[:-1], b.shape[-1]] if a.dim() == 2 or b.dim() == 3 else [a.shape[-2], b.shape[-1]]


def _grouped(args: tuple[Any, ...]) -> int:
    """Each row meets one group's matrix only, so no dimension counts twice."""
    a, b = args[0].shape, args[1].shape
    return int(2 * a.numel() * b[-1]) if len(a) == 2 or len(b) == 3 else int(2 * a[-2] * a[-1] * b[-1])


def _over_time(args: tuple[Any, ...]) -> int:
    """conv_tbc(input: steps, batch, inputs; weight: places, inputs, outputs; bias; padding)."""
    steps = args[0].shape[0] + 2 * (args[3] if len(args) > 3 else 0) - args[1].shape[0] + 1
    return int(2 * steps * args[0].shape[1] * args[1].numel())


def _with_rows(matrix: int, other: int) -> Callable[[tuple[Any, ...]], int]:
    """By a matrix whose rows are the outputs, however its numbers are packed. matrix, other: their places."""
    return lambda args: int(2 * args[matrix].numel() * args[other].shape[0])


def _native_attention(args: tuple[Any, ...]) -> int:
    """_native_multi_head_attention(query, key, value, embed_dim, …): four projections, two products over pairs."""
    batch, steps, width = args[0].shape
    return int(2 * batch * steps * 4 * width * width + 4 * batch * steps * steps * width)


# The first of both linear layers' weights among an encoder layer's arguments (torch.nn.TransformerEncoderLayer).
FIRST_FEEDFORWARD = 14


def _native_encoder(args: tuple[Any, ...]) -> int:
    """_transformer_encoder_layer_fwd(src, embed_dim, …): attention, then two linear layers, between which there are as
    many features as the first has rows. Masks come after the weights, and one of padding is a matrix as well."""
    batch, steps, width = args[0].shape
    return _native_attention(args) + int(2 * batch * steps * 2 * width * args[FIRST_FEEDFORWARD].shape[0])


OWN_FORMULAS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten._scaled_dot_product_flash_attention": _device_attention,
    "aten._scaled_dot_product_efficient_attention": _device_attention,
    "aten._scaled_dot_product_cudnn_attention": _device_attention,
    "aten._scaled_dot_product_flash_attention_backward": _device_attention_backward,
    "aten._scaled_dot_product_efficient_attention_backward": _device_attention_backward,
    "aten._scaled_dot_product_cudnn_attention_backward": _device_attention_backward,
    "aten.convolution_backward": _convolution_backward,
    "aten._grouped_mm": _grouped,
    "aten._int_mm": _product(0, 1),
    "aten.addbmm": _product(1, 2),
    "aten._addmm_activation": _product(1, 2),
    "aten._weight_int8pack_mm": _with_rows(0, 1),
    "aten._weight_int4pack_mm_for_cpu": _with_rows(0, 1),
    "aten._dyn_quant_matmul_4bit": lambda args: int(2 * args[0].numel() * args[4]),
    "aten.conv_tbc": _over_time,
    "aten.mv": _with_vector(0),
    "aten.addmv": _with_vector(1),
    "aten.dot": _with_vector(0),
    "aten.vdot": _with_vector(0),
    "aten.addr": _outer,
    "crosspoint.scaled_dot_product_attention": _device_attention,
    "crosspoint.scaled_dot_product_attention_backward": _device_attention_backward,
    "crosspoint._cudnn_rnn": _cudnn_recurrent,
    "crosspoint._cudnn_rnn_backward": _cudnn_recurrent_backward,
    "aten._cudnn_rnn": _cudnn_recurrent,
    "aten._cudnn_rnn_backward": _cudnn_recurrent_backward,
    "aten.mkldnn_rnn_layer": _recurrent,
    "aten.mkldnn_rnn_layer_backward": _recurrent_backward,
    "aten._native_multi_head_attention": _native_attention,
    "aten._transformer_encoder_layer_fwd": _native_encoder,
    **MATRIX_FORMULAS,
}


# Of kernels that take their work by blocks, each with several small products: how many.
BLOCKS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": lambda args: _attention_blocks(args[0].shape),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": lambda args: _attention_blocks(args[1].shape),
}
# Of kernels whose work waits for itself: how often.
TURNS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "crosspoint._cudnn_rnn": lambda args: math.prod(args[3]),
    "crosspoint._cudnn_rnn_backward": lambda args: math.prod(args[4]),
    "aten._cudnn_rnn": lambda args: _cudnn_turns(args, 9),
    "aten._cudnn_rnn_backward": lambda args: _cudnn_turns(args, 13),
}
LISTED = "aten._foreach_"  # what an optimizer runs on all tensors of a device at once


class Pool(NamedTuple):
    """Which argument is its window's sides, and of how many dimensions."""

    place: int
    dimensions: int


# Every number of a window is compared or added: of 8 images of 32 channels, 112 x 112, the largest of 3 x 3 took
# 16.9 ms, of 5 x 5 30.1, and of 2 x 2, which are as many, 11.7 (EPYC, Zen 5, fp32, one thread, torch 2.13).
POOLS: dict[str, Pool] = {
    "aten.max_pool1d": Pool(1, 1),
    "aten.max_pool2d_with_indices": Pool(1, 2),
    "aten.max_pool3d_with_indices": Pool(1, 3),
    "aten.avg_pool1d": Pool(1, 1),
    "aten.avg_pool2d": Pool(1, 2),
    "aten.avg_pool2d_backward": Pool(2, 2),
    "aten.avg_pool3d": Pool(1, 3),
    "aten.avg_pool3d_backward": Pool(2, 3),
}


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Tensors in arguments or results: bare, or in lists and tuples."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors_in(value)


def bytes_of(tensor: torch.Tensor) -> int:
    """Distinct bytes: what `expand` repeats is read once."""
    distinct = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        distinct *= size if stride else 1
    return distinct * tensor.element_size()


# Only rows that are looked up are read, not the table.
_LOOKUPS = {"aten.embedding", "aten.index", "aten.index_select", "aten.gather", "aten.take"}
# (table, rows to look up, …): as many rows are read, and summed by bags.
_BAGS = {"aten._embedding_bag", "aten._embedding_bag_forward_only"}
# Of the likelihoods only the labels' are read, as many as there are labels; a gradient of zeros is written with ones
# at the labels' places, whatever the likelihoods were.
_PICKS = {"aten.nll_loss_forward", "aten.nll_loss2d_forward"}
_PICKED = {"aten.nll_loss_backward", "aten.nll_loss2d_backward"}
# The destination is overwritten unread.
_OVERWRITES = {"aten.copy_", "aten.fill_", "aten.zero_", "aten.bernoulli_", "aten.normal_", "aten.uniform_"}


def traffic_of(operation: OpOverload, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> tuple[int, int]:
    """Bytes read, bytes written. A view moves nothing; an operation in place reads and writes its first argument."""
    if kind_of(operation) == "view":
        return 0, 0
    written = sum(bytes_of(tensor) for tensor in outputs)
    name = str(operation._overloadpacket)
    if name in _LOOKUPS:
        return sum(bytes_of(tensor) for tensor in inputs[1:]) + written, written
    if name in _BAGS:
        table, places, *others = inputs
        rows = places.numel() * bytes_of(table) // max(table.shape[0], 1)
        return rows + sum(bytes_of(tensor) for tensor in (places, *others)), written
    if name in _PICKS:
        likelihoods, *labels = inputs
        return sum(bytes_of(each) for each in labels) + labels[0].numel() * likelihoods.element_size(), written
    if name in _PICKED:
        return sum(bytes_of(tensor) for tensor in (inputs[0], *inputs[2:])), written
    sources = inputs[1:] if name in _OVERWRITES else inputs
    return sum(bytes_of(tensor) for tensor in sources), written
