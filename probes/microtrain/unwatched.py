"""Additions that torch writes over their first operand, unless a dispatch mode watches.

Autograd's engine adds gradients of a tensor that was used twice into the one that came first, where nobody else holds
it (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace). A linear layer of more than two dimensions adds its
bias into the product (aten/src/ATen/native/Linear.cpp). Both make a third tensor where a mode watches, which no other
step does; whoever watches by one puts it right here.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

aten = torch.ops.aten


class Holders(NamedTuple):
    """References to a tensor, to its storage, and of Python's to it, as a dispatch mode finds them."""

    tensor: int
    storage: int
    python: int


def as_unwatched(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
    """The operation that runs in its place where no mode watches. unheld was asked before."""
    if func is not aten.add.Tensor or kwargs or not unheld():
        return func
    if not (_adds_gradients(*args) or _adds_bias(*args)) or not _is_dense(args[0]):
        return func
    return aten.add_.Tensor if _holders(args) in unheld() else func


def _adds_gradients(first: Any, second: Any) -> bool:
    node = None if torch.is_grad_enabled() else torch._C._current_autograd_node()
    # What a node written in Python adds is its own affair.
    if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    return _are_alike(first, second) and first.shape == second.shape


def _adds_bias(first: Any, second: Any) -> bool:
    return _are_alike(first, second) and second.dim() == 1 and first.dim() > 2 and first.shape[-1:] == second.shape


def _are_alike(first: Any, second: Any) -> bool:
    both = isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    return both and first.dtype == second.dtype and first.layout is second.layout is torch.strided


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its numbers lie side by side, in whatever order of dimensions."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def _holders(args: tuple[Any, ...]) -> Holders:
    """Of the first; a variable of its own would hold it, too."""
    storage = torch._C._storage_Use_Count(args[0].untyped_storage()._cdata)
    return Holders(args[0]._use_count(), storage, sys.getrefcount(args[0]))


class _Additions(TorchDispatchMode):
    """Counts who holds what is added to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Holders] = set()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is aten.add.Tensor:
            self.found.add(_holders(args))
        elif func is aten.linear.default:
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@cache
def unheld() -> frozenset[Holders]:
    """Of tensors that nobody but torch itself holds: counted, as it is torch's own affair. Empty: it does not tell. To
    be asked before a backward, inside of which it counts one less."""
    with _disable_current_modes(), torch.inference_mode(mode=False), torch.enable_grad():
        leaf, turned = torch.ones(2, requires_grad=True), torch.ones(2, 2, 2).transpose(0, 1)
        weight, bias = torch.ones(2, 2, requires_grad=True), torch.ones(2)
        total = torch.stack([leaf.sin(), leaf.cos()]).sum()
        try:
            with _Additions() as watch:
                total.backward()
                torch.nn.functional.linear(turned, weight, bias)
                with torch.inference_mode():
                    torch.nn.functional.linear(turned, weight, bias)
        except AttributeError:  # another version of torch
            return frozenset()
    return frozenset(watch.found)
