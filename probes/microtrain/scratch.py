"""What kernels take inside while they run: asked by running them once for real, alone, watched by torch's profiler.

A convolution on a CPU copies its image and weights into blocks of channels, a recurrent layer keeps its gates; no
tensor of the step shows it. How much is the library's choice, by processor, shape and type.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.profiler import ProfilerActivity, profile
from torch.utils._mode_utils import no_dispatch

from probes.trace import Kind

aten = torch.ops.aten

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its every start to the terminal

# Beyond these a call is tried at smaller batches: a tenth of a second on one core, and no burden on memory.
MAX_FLOPS = 4e9
MAX_BYTES = 256 * 2**20
SMALLEST_BATCHES = (1, 2)
_KINDS = {"convolution", "recurrent", "attention"}
_NAMES = {"aten._safe_softmax", "aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention"}


class Shape(NamedTuple):
    """A tensor argument without its numbers."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]  # dimensions from the widest stride to the closest
    dtype: torch.dtype


class Call(NamedTuple):
    """An operation with its arguments; hashable. bound: bytes read and written, which none was seen to exceed."""

    operation: OpOverload
    arguments: tuple[Any, ...]
    flops: int
    read_bytes: int
    bound: int


def call_of(
    operation: OpOverload, kind: Kind, dtype: str, args: Sequence[Any], kwargs: dict[str, Any], cost: Sequence[int]
) -> Call | None:
    """cost: flops, bytes read, bytes written. None: this operation takes nothing inside that is worth asking for."""
    narrow = kind == "matmul" and dtype == "bfloat16"  # oneDNN's product, on copies in its own order
    if kwargs or not (kind in _KINDS or narrow or str(operation._overloadpacket) in _NAMES):
        return None
    return Call(operation, _freeze(args), cost[0], cost[1], cost[1] + cost[2])


def _freeze(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strides = value.stride()
        order = sorted(range(value.dim()), key=lambda axis: (-strides[axis], axis))
        return Shape(tuple(value.shape), tuple(order), value.dtype)
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


def scratch_at(batch_sizes: tuple[int, int], one: Call, other: Call) -> tuple[float, float]:
    """Bytes taken inside at the two batch sizes, beyond the results; one and other: the same call at them."""
    tried = _affordable(batch_sizes, one, other)
    try:
        at = [_arguments_at(batch_sizes, one.arguments, other.arguments, size) for size in tried or ()]
        seen = [measure_scratch(one.operation, arguments) for arguments in at]
    except Exception:  # noqa: BLE001 - zeros are no fit input for every operation
        seen = []
    if tried is None or not seen:
        return float(one.read_bytes), float(other.read_bytes)  # copies of what is read: nearest of all simple rules
    slope = (seen[1] - seen[0]) / (tried[1] - tried[0])
    return tuple(max(seen[0] + slope * (size - tried[0]), 0.0) for size in batch_sizes)  # type: ignore[return-value]


def _affordable(batch_sizes: tuple[int, int], one: Call, other: Call) -> tuple[int, int] | None:
    """The largest two batch sizes up to those traced at which running it is cheap."""
    small, large = batch_sizes
    while large >= SMALLEST_BATCHES[1]:
        share = large / batch_sizes[1]
        if other.flops * share <= MAX_FLOPS and other.bound * share <= MAX_BYTES:
            return small, large
        small, large = small // 2, large // 2
    return None


def _arguments_at(batch_sizes: tuple[int, int], one: Any, other: Any, size: int) -> Any:
    """Arguments between those of two batch sizes, or beyond: whole numbers grow in proportion."""
    if isinstance(one, Shape):
        sizes = _arguments_at(batch_sizes, one.sizes, other.sizes, size)
        return Shape(sizes, one.order, one.dtype)
    if isinstance(one, tuple):
        return tuple(_arguments_at(batch_sizes, a, b, size) for a, b in zip(one, other, strict=True))
    if one == other:
        return one
    return one + (other - one) * (size - batch_sizes[0]) // (batch_sizes[1] - batch_sizes[0])


@lru_cache(maxsize=1024)
def measure_scratch(operation: OpOverload, arguments: tuple[Any, ...]) -> int:
    """Most bytes that torch's allocator hands out during the call, less what is left when it ends."""
    with unset_fake_temporarily(), no_dispatch(), torch.enable_grad():  # recurrent layers: without, nothing is kept
        real = list(_thaw(arguments))
        if operation is aten.mkldnn_rnn_layer_backward.default:
            real[-1] = _workspace(real)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
            result = operation(*real)
    assert watched.profiler is not None
    assert watched.profiler.kineto_results is not None
    events = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    del result
    return peak - live


def _workspace(real: list[Any]) -> torch.Tensor:
    """What the forward of (input, 4 weights, state, cell, output, …) leaves for this backward."""
    reverse, mode, hidden, layers, biases, train, both, sizes, first = real[13:22]
    states = (*real[:7], reverse, sizes, mode, hidden, layers, biases, both, first, train)
    workspace: torch.Tensor = aten.mkldnn_rnn_layer.default(*states)[3]
    return workspace


def _thaw(value: Any) -> Any:
    if isinstance(value, Shape):
        sizes = [value.sizes[axis] for axis in value.order]
        back = sorted(range(len(sizes)), key=lambda place: value.order[place])
        return torch.zeros(sizes, dtype=value.dtype).permute(back)
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value
