"""Weights that are no tensors: quantized modules (torch.ao.quantization) pack theirs into objects of the library that
multiplies by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, disable_fake_tensor_cache, unset_fake_temporarily
from torch.utils._mode_utils import no_dispatch


def packed_weights(module: nn.Module) -> list[torch.Tensor]:
    """Those of a module and its parts, unpacked; each object's once. What does not say what it holds has none."""
    held = (value for part in module.modules() for value in vars(part).values())
    objects = {hash(value): value for value in held if isinstance(value, torch.ScriptObject)}
    with unset_fake_temporarily(), no_dispatch():
        return [tensor for each in objects.values() for tensor in _unpacked(each)]


def _unpacked(packed: torch.ScriptObject) -> Iterator[torch.Tensor]:
    """As it would be saved."""
    try:
        state = packed.__getstate__()
    except (AttributeError, NotImplementedError, RuntimeError):
        return
    waiting = [state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.ScriptObject):
            yield from _unpacked(value)
        elif isinstance(value, list | tuple):
            waiting += value


def packed_flops(operation: OpOverload, args: Sequence[Any], result: Any) -> int:
    """Of a linear layer or a convolution with packed weights, whatever is fused into it: (input, weights, …). 0 of all
    else."""
    if operation.namespace != "quantized" or len(args) < 2 or not isinstance(args[1], torch.ScriptObject):
        return 0
    name = operation._overloadpacket.__name__
    if name.startswith("linear"):
        return int(2 * args[0].numel() * result.shape[-1])
    if not name.startswith("conv"):
        return 0
    with unset_fake_temporarily(), no_dispatch():
        weight = args[1].unpack()[0]  # type: ignore[attr-defined]
    places = args[0] if "transpose" in name else result
    return int(2 * places.numel() * weight[0].numel())


def beside_the_cache(args: Sequence[Any]) -> AbstractContextManager[Any]:
    """Around an operation: torch's fake tensors remember what they gave by their arguments, and to compare two of these
    objects raises."""
    fake = next((arg for arg in args if isinstance(arg, FakeTensor)), None)
    if fake is None or not any(isinstance(arg, torch.ScriptObject) for arg in args):
        return nullcontext()
    return disable_fake_tensor_cache(fake.fake_mode)
