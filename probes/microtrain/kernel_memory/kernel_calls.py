"""Operations whose kernels may take memory inside while they run, with their arguments: which are worth asking, and how
they are called at another batch size.

A convolution on a CPU copies its image and weights into blocks of channels, a recurrent layer keeps its gates, a sum of
bf16 and fp32 casts an operand first; no tensor of the step shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

from probes.context import ENCODER_LAYER
from probes.microtrain.traces.operation_costs import FIRST_FEEDFORWARD, bytes_of, tensors_in
from probes.trace import Kind

aten = torch.ops.aten

_KINDS = {"convolution", "recurrent", "attention"}
_WHOLE_LAYERS = {ENCODER_LAYER, "aten._native_multi_head_attention"}
_NORM_FIRST = 8  # of an encoder's layer: which argument says so
_MASK_AT = {True: 18, False: 9}  # by whether it is an encoder's layer: which argument the mask is
_CAST_BYTES = 2  # of a number under autocast
_NAMES = {"aten._safe_softmax", *_WHOLE_LAYERS}
# Beside these, what copies an argument or its result: a batch norm's backward makes its result twice, a sum of truths
# counts in int64, upsampling changes the order of channels, rolling over several dimensions goes one after the other.
_COPYING_KINDS = {"normalization", "gather", "reduction"}
_COPYING_NAMES = {"aten.roll"}
# Of these only an argument that does not lie in order is copied: lookups, to try which takes a whole table, and what
# puts an image's numbers elsewhere (torch 2.13; tests/probes/microtrain/kernel_memory/test_unknown_kernels.py).
_MOVING = re.compile(
    r"^aten\.(embedding(_dense_backward)?|(reflection|replication)_pad[123]d(_backward)?|pixel_(un)?shuffle|flip)$"
)
# No kernel was seen to take more inside than this: a multiple of what it reads and writes, which counts where blocks
# are filled up (oneDNN's products of small matrices took six times as much), and some rooms of fixed size.
BOUND_FACTOR = 3
BOUND_BYTES = 2**15
# Of a convolution's arguments.
WEIGHT_AND_GROUPS = {aten.convolution.default: (1, 8), aten.convolution_backward.default: (2, 9)}
_STRIDE_AND_PADDING = {aten.convolution.default: (3, 4), aten.convolution_backward.default: (4, 5)}
# These take nothing inside, where their operands lie in order and are of one type: BLAS's products, what makes, draws
# or copies tensors, and what works number by number, which torch tags, but for a few. Any other kernel of torch is
# asked.
_PLAIN = re.compile(
    r"^(addmm|mm|bmm|baddbmm|addbmm|addmv|mv|dot|vdot|addr|_grouped_mm|_int_mm|_scaled_mm|unsafe_(split|chunk)\w*)$"
    r"|^(_?to_copy|copy|clone|cat|stack|fill|zero|repeat|constant_pad_nd|arange|linspace|eye|tril|triu|scalar_tensor)$"
    r"|^(lift_fresh_copy|(new_)?(zeros|ones|full|empty)(_like)?|(select|slice|diagonal)_(backward|scatter))$"
    r"|^(rand|randn|randint|normal|uniform|bernoulli|exponential|native_dropout|_foreach_\w+)(_like)?$"
    r"|^(hardtanh|leaky_relu|elu|softplus|log_sigmoid|hardswish|hardsigmoid|mish|glu|_prelu_kernel)(_forward|_backward)?$"
)
# Of those nobody knows they are no surprise: a matrix exponential keeps a dozen matrices.
UNKNOWN_FACTOR = 8
# Of those nobody knows these compute far more than they move, and nothing counts how much: a decomposition of two
# thousand rows takes a second.
_HEAVY = re.compile(r"linalg|cholesky|^_?lu_|^(geqrf|orgqr|ormqr|triangular_solve|_pdist_forward)")
CHANNEL_BLOCK = 16  # oneDNN's blocked formats (oneDNN docs, "Understanding Memory Formats": nChw16c)
# In bf16 operands are filled up to tiles (OIhw16i64o2i), where a processor multiplies these, and of a product of few
# rows or columns there are two copies at most (Intel AMX, torch 2.13: 64 times the weights of two outputs).
TILE, TILE_COPIES = 64, 2


class Shape(NamedTuple):
    """A tensor argument without its numbers."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]  # dimensions from the widest stride to the closest
    dtype: torch.dtype
    weight: bool = False  # autocast keeps its copies of these
    expanded: tuple[bool, ...] = ()  # by dimension: one number stands for all along it


class Call(NamedTuple):
    """An operation with its arguments; hashable. options: those given by name, and their names. bound: bytes, which
    none is known to exceed: what a trial takes says more. unfolded: bytes of a convolution's images with each place of
    its kernel for itself, of one group of channels; 0 where there is nothing to unfold. made: bytes that a whole layer
    takes inside, reckoned from its shapes; 0 of others."""

    operation: OpOverload
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    flops: int
    read_bytes: int
    bound: int
    unfolded: int
    made: int
    copies: bool  # what it takes inside goes with its arguments' sizes, and is not a library's choice
    inference: bool  # under torch.inference_mode
    autocast: bool  # what it calls inside is cast
    unknown: bool = False  # whether it takes anything inside; a first trial says so


def call_of(
    operation: OpOverload,
    kind: Kind,
    dtype: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    cost: Sequence[int],
    *,
    autocast: bool = False,
) -> Call | None:
    """cost: flops, bytes read, bytes written. autocast: what it calls inside is cast. None: this operation takes
    nothing inside that is worth asking for."""
    if any(isinstance(arg, torch.ScriptObject) for arg in args):  # weights that a library packed: not to be compared
        return None
    narrow = kind in ("matmul", "reduction") and dtype == "bfloat16"  # on copies in oneDNN's order, or in fp32
    moved, unfolded = cost[1] + cost[2], _unfolded_bytes(operation, args, cost[0])
    inference, unknown = torch.is_inference_mode_enabled(), False
    made = _whole_layer_bytes(operation, args, casts=autocast)
    if kind in _KINDS or narrow or str(operation._overloadpacket) in _NAMES:
        tiles = _tiled_bytes(args) if kind == "matmul" and narrow else 0
        blocks = _blocked_bytes(operation, args) + unfolded + 2 * made
        copies, bound = False, BOUND_FACTOR * moved + tiles + blocks + BOUND_BYTES
    elif unknown := _is_unknown(operation, kind):
        copies, bound = False, UNKNOWN_FACTOR * moved + BOUND_BYTES
    elif _copies(operation, kind, args):
        copies, bound = True, _widening(args) * moved + BOUND_BYTES
    else:
        return None
    whole = sum(tensor.numel() * tensor.itemsize for tensor in tensors_in(args))
    bound = max(bound + whole - sum(map(bytes_of, tensors_in(args))), whole)  # an expanded one may be copied whole
    options = tuple((name, _freeze(value)) for name, value in sorted(kwargs.items()))
    shape = (cost[0], cost[1], bound, unfolded, made)
    return Call(operation, _freeze(args), options, *shape, copies, inference, autocast, unknown)


@cache
def _is_unknown(operation: OpOverload, kind: Kind) -> bool:
    """Whether nothing is known of what it takes inside. Only torch's own is to be run on made-up numbers."""
    name = operation._overloadpacket.__name__
    whole = str(operation._overloadpacket)
    known = kind == "view" or kind in _COPYING_KINDS or whole in _COPYING_NAMES or _MOVING.search(whole)
    if operation.namespace != "aten" or known or _PLAIN.search(name.rstrip("_")):
        return False
    packets = (operation._overloadpacket, getattr(aten, name.rstrip("_"), operation._overloadpacket))
    overloads = (getattr(packet, each) for packet in packets for each in packet.overloads())
    return not any({torch.Tag.pointwise, torch.Tag.inplace_view} & set(each.tags) for each in overloads)


@cache
def computes_much(operation: OpOverload) -> bool:
    """For what it moves, though its FLOPs are not known."""
    return bool(_HEAVY.search(operation._overloadpacket.__name__))


def _copies(operation: OpOverload, kind: Kind, args: Sequence[Any]) -> bool:
    """Whether it may copy an argument, or more than one, on its way. Elementwise operations do where types differ, or
    the order in which numbers lie."""
    name, tensors = str(operation._overloadpacket), [tensor for tensor in tensors_in(args) if tensor.numel() > 1]
    ordered = all(tensor.is_contiguous() for tensor in tensors)
    if _MOVING.search(name):
        return not ordered
    if kind in _COPYING_KINDS or name in _COPYING_NAMES:
        return True
    return kind == "elementwise" and not (ordered and len({tensor.dtype for tensor in tensors}) < 2)


def _widening(args: Sequence[Any]) -> int:
    """How many times as wide the narrowest argument becomes where it is cast: whole numbers and truths to int64, others
    to fp32."""
    tensors = [tensor for tensor in tensors_in(args) if tensor.numel() > 1]
    return max((max(4 if t.dtype.is_floating_point else 8, t.itemsize) // t.itemsize for t in tensors), default=1)


def _blocked_bytes(operation: OpOverload, args: Sequence[Any]) -> int:
    """Weights of a convolution in fp32 with the channels of each group filled up to blocks, as oneDNN's kernels copy
    them: those of a depthwise one become 256 times as large. Of others in bf16 up to tiles, if that is more."""
    places = WEIGHT_AND_GROUPS.get(operation)
    if places is None:
        return 0
    weight, groups = args[places[0]], args[places[1]]
    channels = (weight.shape[0] // groups, weight.shape[1])
    blocked = 4 * weight.numel() * _filled(channels, CHANNEL_BLOCK)
    if weight.dtype != torch.bfloat16 or channels == (1, 1):
        return int(blocked)
    return int(max(blocked, weight.itemsize * weight.numel() * _filled(channels, TILE)) + BOUND_BYTES)


def _tiled_bytes(args: Sequence[Any]) -> int:
    """Those of a product's operands that have few rows or columns, filled up to tiles."""
    matrices = (each for each in tensors_in(args) if each.dim() >= 2 and min(each.shape[-2:]) < TILE)
    return int(sum(TILE_COPIES * each.nbytes * _filled(each.shape[-2:], TILE) for each in matrices))


def _filled(sizes: Sequence[int], block: int) -> float:
    """How many times as large what has these sizes becomes where each is filled up to blocks."""
    return prod(-(-size // block) * block / max(size, 1) for size in sizes)


def _unfolded_bytes(operation: OpOverload, args: Sequence[Any], flops: int) -> int:
    """ATen's own kernels, which run where oneDNN has none, multiply the weights with images unfolded
    (aten/src/ATen/native/ConvolutionMM2d.cpp): as many numbers as products for each of the weight's first channels."""
    if operation not in WEIGHT_AND_GROUPS:
        return 0
    weight = args[WEIGHT_AND_GROUPS[operation][0]]
    stride, padding = (args[place] for place in _STRIDE_AND_PADDING[operation])
    if all(size == 1 for size in (*weight.shape[2:], *stride)) and not any(padding):
        return 0
    return flops // 2 // max(weight.shape[0], 1) * weight.itemsize


def _whole_layer_bytes(operation: OpOverload, args: Sequence[Any], *, casts: bool) -> int:
    """What a whole layer makes inside, beyond its result, which neither its arguments nor its result show: queries,
    keys and values beside the product that they are cut from; the scores, of which a mask makes a copy (and is one byte
    a score); or what is between an encoder's two linear layers; and its input normed first. Seen to the byte in fp32,
    but for a mask of padding alone (torch 2.13; aten/src/ATen/native/transformers/attention.cpp)."""
    if not is_whole_layer(operation):
        return 0
    batch, steps, width = args[0].shape
    is_encoder = str(operation._overloadpacket) == ENCODER_LAYER
    heads, mask = args[2 if is_encoder else 4], args[_MASK_AT[is_encoder] :][:1]
    masked = any(torch.is_tensor(each) for each in mask)
    number = _CAST_BYTES if casts else args[0].itemsize
    scores, between = heads * steps, args[FIRST_FEEDFORWARD].shape[0] if is_encoder else 0
    of_scores = (number * 2 + 1 if masked else number) * scores
    a_place = max(number * 5 * width, number * 2 * width + of_scores, number * (width + between))
    if is_encoder and args[_NORM_FIRST]:
        a_place += number * width
    if casts and args[0].dtype == torch.float32:
        a_place += number * 3 * width  # its input in bf16, and what is made of it
    return int(batch * steps * a_place)


@cache
def is_whole_layer(operation: OpOverload) -> bool:
    """One that calls others inside, which are cast under autocast."""
    return str(operation._overloadpacket) in _WHOLE_LAYERS


def _freeze(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strides = value.stride()
        expanded = tuple(stride == 0 and size > 1 for stride, size in zip(strides, value.shape, strict=True))
        order = sorted(range(value.dim()), key=lambda axis: (not expanded[axis], -strides[axis], axis))
        return Shape(tuple(value.shape), tuple(order), value.dtype, isinstance(value, torch.nn.Parameter), expanded)
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


def call_at(batch_sizes: tuple[int, int], one: Call, other: Call, size: int) -> Call:
    """The call at another batch size than the two at which it was seen. Raises ValueError where a list grows with the
    batch (the lengths that CTC's loss is given)."""
    arguments = _arguments_at(batch_sizes, one.arguments, other.arguments, size)
    return one._replace(arguments=arguments, options=_arguments_at(batch_sizes, one.options, other.options, size))


def _arguments_at(batch_sizes: tuple[int, int], one: Any, other: Any, size: int) -> Any:
    """Arguments between those of two batch sizes, or beyond: whole numbers grow in proportion."""
    if isinstance(one, Shape):
        return one._replace(sizes=_arguments_at(batch_sizes, one.sizes, other.sizes, size))
    if isinstance(one, tuple):
        return tuple(_arguments_at(batch_sizes, a, b, size) for a, b in zip(one, other, strict=True))
    if one == other:
        return one
    return one + (other - one) * (size - batch_sizes[0]) // (batch_sizes[1] - batch_sizes[0])
