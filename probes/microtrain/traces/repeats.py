"""What an operation gave when it last ran on fake tensors of the same shapes: equal layers ask the same again.

Torch's own stand-in for an operation takes a tenth of a millisecond, even one that it remembers; a step has thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._C import _DisableTorchDispatch  # the guard behind torch.utils._mode_utils.no_dispatch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

Key = tuple[Any, ...]


class Made(NamedTuple):
    """How a result comes about from the arguments. source: the argument that it is, or shares its memory with; None:
    memory of its own. offset: from where the source begins, so that every time step of a sequence is alike."""

    source: int | None
    whole: bool  # the argument itself, written in place
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype = torch.float32


class Unrepeatable(Exception):
    """These arguments or results are not described by their shapes alone."""


def key_of(operation: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
    """Everything that shapes the results. None: not to be repeated. Whole numbers and truths may be known
    (probes.microtrain.traces.stand_ins), so only operations on floating-point tensors are."""
    if not _is_plain(operation) or any(isinstance(value, torch.Tensor | list | tuple) for value in kwargs.values()):
        return None
    try:
        parts = tuple(_parts(args))
        options = tuple((name, *_parts((value,))) for name, value in kwargs.items())
    except Unrepeatable:
        return None
    floating = any(part[0] in _FLOATING for part in parts)
    return (operation, parts, options) if floating else None


@cache
def _is_plain(operation: OpOverload) -> bool:
    """Whether it leaves its arguments' shapes as they are, and shapes alone decide about the results."""
    deciding = {torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    name = str(operation)
    placed = "lift" in name or "as_strided" in name  # the latter counts from the begin of the memory
    return operation.namespace == "aten" and not deciding & set(operation.tags) and not placed


_FLOATING = {torch.float32, torch.bfloat16, torch.float16, torch.float64}
_CPU = torch.device("cpu")


def _parts(values: Any) -> Iterator[tuple[Any, ...]]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if type(value) is not FakeTensor and not isinstance(value, FakeTensor):
                raise Unrepeatable
            if value.constant is not None or value.layout is not torch.strided or value.dtype.is_complex:
                raise Unrepeatable
            if value.fake_device != _CPU:
                raise Unrepeatable
            yield value.dtype, value.shape, value.stride(), value.is_inference()
        elif isinstance(value, list | tuple):
            yield list, len(value)
            yield from _parts(value)
        elif isinstance(value, torch.ScriptObject):  # which refuses to be compared
            raise Unrepeatable
        else:
            yield type(value), value  # 1 and 1.0 hash alike


def describe(args: tuple[Any, ...], result: Any) -> tuple[Made, ...] | None:
    """How the results came about; None: in another way than `make` knows."""
    results = result if isinstance(result, tuple | list) else (result,)
    made = [how for tensor in results if (how := _describe_one(args, tensor)) is not None]
    if len(made) < len(results):
        return None
    own = [_memory(tensor) for tensor, how in zip(results, made, strict=True) if how.source is None]
    in_lists = {_memory(tensor) for arg in args if isinstance(arg, list | tuple) for tensor in _fakes(arg)}
    return tuple(made) if len(set(own) - in_lists) == len(own) else None


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _describe_one(args: tuple[Any, ...], result: Any) -> Made | None:
    for place, arg in enumerate(args):
        if arg is result and isinstance(arg, FakeTensor):
            return Made(place, True)
    if not isinstance(result, FakeTensor) or result.constant is not None or result.requires_grad:
        return None
    if result.is_inference() is not torch.is_inference_mode_enabled():  # a view of a weight under inference_mode
        return None
    if result.layout is not torch.strided or result.dtype.is_complex or result.fake_device != _CPU:
        return None
    shape, offset = tuple(result.shape), int(result.storage_offset())
    for place, arg in enumerate(args):
        if isinstance(arg, torch.Tensor) and _memory(arg) == _memory(result):
            return Made(place, False, shape, result.stride(), offset - int(arg.storage_offset()), result.dtype)
    natural = offset == 0 and result.untyped_storage().nbytes() == _natural_bytes(result)
    return Made(None, False, shape, result.stride(), 0, result.dtype) if natural else None


def _natural_bytes(tensor: torch.Tensor) -> int:
    """Of memory that holds these strides and no more."""
    if not tensor.numel():
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()


def make(made: tuple[Made, ...], args: tuple[Any, ...], *, one: bool, listed: bool = False) -> Any:
    """The results anew. one: not several; listed: a list of them instead of a tuple, as pieces of a tensor are."""
    like = next(_fakes(args))
    tensors = [_make_one(result, args, like) for result in made]
    return tensors[0] if one else tensors if listed else tuple(tensors)


def _fakes(values: Any) -> Iterator[FakeTensor]:
    for value in values:
        if isinstance(value, FakeTensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _fakes(value)


def _make_one(made: Made, args: tuple[Any, ...], like: FakeTensor) -> Any:
    if made.whole:
        return args[made.source]  # type: ignore[index]
    guard = _DisableTorchDispatch()
    try:
        if made.source is None:
            inner = torch.empty_strided(made.shape, made.strides, dtype=made.dtype, device="meta")
        else:
            inner = torch.empty(0, dtype=made.dtype, device="meta")
            source = args[made.source]
            place = source.storage_offset() + made.offset
            inner.set_(source.untyped_storage(), place, made.shape, made.strides)
        return FakeTensor(like.fake_mode, inner, _CPU)
    finally:
        del guard
