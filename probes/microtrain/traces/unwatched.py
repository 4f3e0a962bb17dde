"""What torch writes over an operand that nobody else holds, unless a dispatch mode watches.

Autograd's engine adds gradients of a tensor that was used twice into the one that came first
(torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace). A linear layer of more than two dimensions adds its bias
into the product (aten/src/ATen/native/Linear.cpp). Attention that no kernel computes whole adds its mask into the
scores (transformers/attention.cpp, _scaled_dot_product_attention_math). Gradients of what was picked are scattered
into zeros (TensorAdvancedIndexing.cpp, FunctionsManual.cpp: areAnyTensorSubclassLike). All make a further tensor where
a mode watches, which no other step does; whoever watches by one puts it right here.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from probes.microtrain.traces.decomposing import taken_apart

aten = torch.ops.aten


class Holders(NamedTuple):
    """References to a tensor, to its storage, and of Python's to it, as a dispatch mode finds them."""

    tensor: int
    storage: int
    python: int


_OVER = {
    aten.add.Tensor: aten.add_.Tensor,
    # Of what was picked by an index, a mask, or for being the largest.
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.index_add.default: aten.index_add_.default,
    aten.index_put.default: aten.index_put_.default,
    aten.masked_scatter.default: aten.masked_scatter_.default,
}


def as_unwatched(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
    """The operation that runs in its place where no mode watches. unheld was asked before."""
    known = unheld().get(func)
    if known is None or kwargs or not _goes_over(func, args) or not _is_dense(args[0]):
        return func
    return _OVER[func] if _holders(args) in known else func


def _goes_over(func: OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether torch has it go over its first operand, if nobody else holds that."""
    if func is aten.add.Tensor:
        return _adds_gradients(*args) or _adds_bias(*args) or _adds_mask(*args)
    return _is_in_backward()


# Their formulas make sums and scatter beside the operands by themselves (FunctionsManual.cpp). What the engine then
# adds cannot be told from that, and is left beside, too.
_SUMMING = (
    *("Cholesky", "LinalgCholesky", "LinalgLstsq", "LinalgLu", "LinalgPinv", "LinalgQr", "LinalgSvd", "LuUnpack"),
    *("IndexReduce", "Logcumsumexp", "NativeGroupNorm", "ScatterReduce", "SpecialI1E", "StdMean"),
    *("TriangularSolve", "VarMean"),
)


def _is_in_backward() -> bool:
    """Of torch's own, where it goes over: what a node written in Python does is its own affair."""
    node = None if torch.is_grad_enabled() else torch._C._current_autograd_node()
    if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    return not node.name().startswith(_SUMMING)


def _adds_gradients(first: Any, second: Any) -> bool:
    return _is_in_backward() and _are_alike(first, second) and first.shape == second.shape


def _adds_bias(first: Any, second: Any) -> bool:
    return _are_alike(first, second) and second.dim() == 1 and first.dim() > 2 and first.shape[-1:] == second.shape


def _adds_mask(first: Any, second: Any) -> bool:
    """Over scores of (…, queries, keys): one for all heads or samples. Where it has one for each, as many numbers as
    there are scores, it cannot be told from a sum that torch makes of two tensors of its own."""
    if not _are_alike(first, second) or first.shape == second.shape or not first.dim() >= second.dim() >= 2:
        return False
    spread = (1,) * (first.dim() - second.dim()) + tuple(second.shape)
    fits = all(size in (1, whole) for size, whole in zip(spread, first.shape, strict=True))
    return fits and first.dim() > 2 and torch._C._current_autograd_node() is None


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


_WHOLE = (
    aten.linear.default,
    aten.scaled_dot_product_attention.default,
    aten._scaled_dot_product_attention_math.default,
)


class _Counting(TorchDispatchMode):
    """Who holds what is written over, by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[OpOverload, set[Holders]] = defaultdict(set)

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _OVER:
            self.found[func].add(_holders(args))
        elif func in _WHOLE:
            with self:
                return taken_apart(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@cache
def unheld() -> Mapping[OpOverload, Collection[Holders]]:
    """Of tensors that nobody but torch itself holds: counted where that is so, as it is torch's own affair. Empty: it
    does not tell. To be asked before a backward, inside of which it counts one less."""
    attend = torch.nn.functional.scaled_dot_product_attention
    with _disable_current_modes(), torch.inference_mode(mode=False), torch.enable_grad():
        leaf, turned = torch.ones(2, requires_grad=True), torch.ones(2, 2, 2).transpose(0, 1)
        weight, bias = torch.ones(2, 2, requires_grad=True), torch.ones(2)
        place, mask = torch.zeros(1, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
        picked = [
            leaf.gather(0, place),
            leaf.topk(1).values,
            leaf.index_select(0, place),
            leaf[place],
            leaf.masked_select(mask),
        ]
        total = torch.stack([leaf.sin(), leaf.cos()]).sum()
        # Of three dimensions none of attention's kernels takes it; dropout would draw from the caller's random numbers.
        # Whoever asks may have left it to one of them alone.
        heads, scores = torch.ones(1, 2, 2, requires_grad=True), torch.zeros(2, 2)
        try:
            with sdpa_kernel(SDPBackend.MATH), _Counting() as watch:
                for each in (total, *(part.sum() for part in picked)):
                    each.backward()
                for mode in (False, True):
                    with torch.inference_mode(mode):
                        torch.nn.functional.linear(turned, weight, bias)
                        attend(heads, heads, heads, scores)
        except AttributeError:  # another version of torch
            return {}
    return watch.found
