"""What kernels refuse for the types of their operands, and torch's stand-ins on fake tensors do not look at.

Asked of the kernel itself, on operands of these types that have one number, or a few, in each dimension: what is
refused, and in which words, is torch's own in any version. That is a matter of microseconds, and of types only; it is
remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._mode_utils import no_dispatch

aten = torch.ops.aten
Arguments = tuple[Any, ...]

# Classes are told as torch.long, and not in fp32 like all else.
_OF_CLASSES = (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
# With the size that every dimension has where a kernel is asked: it has to fit all operands, whatever theirs were.
# Found by running each on real and on fake tensors (torch 2.13; tests/probes/microtrain/traces/test_refused_types.py).
_SIZES: Mapping[OpOverload, int] = {
    # Two types in one.
    aten.mm.default: 1,
    aten.addmm.default: 1,
    aten.mv.default: 1,
    aten.addmv.default: 1,
    aten.index_add.default: 1,
    aten.index_add_.default: 1,
    aten.index_put.default: 1,
    aten.index_put_.default: 1,
    aten.binary_cross_entropy.default: 1,
    aten.grid_sampler_2d.default: 2,
    aten.grid_sampler_3d.default: 3,
    **dict.fromkeys(_OF_CLASSES, 1),
    # Types that they do not compute in.
    aten._cdist_forward.default: 1,
    aten._pdist_forward.default: 2,
    aten._linalg_svd.default: 1,
    aten._softmax.default: 1,
    aten._log_softmax.default: 1,
    aten.argmax.default: 1,
    aten.argmin.default: 1,
    aten.gelu.default: 1,
    aten.max.default: 1,
    aten.min.default: 1,
    aten.mse_loss.default: 1,
    aten.relu.default: 1,
    aten.relu_.default: 1,
    # Results of a type that the place they are written to does not hold.
    aten.add_.Tensor: 1,
    aten.sub_.Tensor: 1,
    aten.mul_.Tensor: 1,
    aten.div_.Tensor: 1,
}


class _Operand(NamedTuple):
    dtype: torch.dtype
    dimensions: int


class _Number(NamedTuple):
    """1, 1.0 and True are equal and no less of three types, of which a kernel may refuse some."""

    type: type
    value: int | float


def check_types(operation: OpOverload, args: Arguments, kwargs: Mapping[str, Any]) -> None:
    """Raises RuntimeError or NotImplementedError as the operation's kernel on a CPU does."""
    plain = all(arg.dtype is torch.float32 for arg in args if isinstance(arg, torch.Tensor))
    if operation not in _SIZES or (plain and operation not in _OF_CLASSES):
        return
    refused = _refusal(operation, _described(args), tuple((name, _described(each)) for name, each in kwargs.items()))
    if refused is not None:
        raise refused[0](refused[1])


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Operand(value.dtype, value.dim())
    if isinstance(value, int | float):
        return _Number(type(value), value)
    return tuple(_described(each) for each in value) if isinstance(value, list | tuple) else value


@lru_cache(maxsize=1024)
def _refusal(operation: OpOverload, args: Any, kwargs: Any) -> tuple[type[RuntimeError], str] | None:
    size = _SIZES[operation]
    try:
        with no_dispatch(), torch.no_grad():
            operation(*_made(args, size), **{name: _made(each, size) for name, each in kwargs})
    except RuntimeError as error:
        return type(error), str(error)
    return None


def _made(value: Any, size: int) -> Any:
    if isinstance(value, _Number):
        return value.value
    if isinstance(value, _Operand):  # whole numbers may be places, of which none is out of bounds
        whole = not (value.dtype.is_floating_point or value.dtype.is_complex or value.dtype is torch.bool)
        return torch.full((size,) * value.dimensions, 0 if whole else 1, dtype=value.dtype)
    return [_made(each, size) for each in value] if isinstance(value, tuple) else value
