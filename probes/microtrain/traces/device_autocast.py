"""What autocast casts on a CUDA device, for a step that is traced on a CPU.

Autocast has a table for each kind of device, and a device's keeps far more in fp32 than a CPU's: powers, exponentials,
sums, upsampling, softmax, normalizations. It keeps other operations in bf16 that a CPU's does not. Inside
`casts_of_device` a CPU's autocast has a device's table.

The tables are torch's own, of torch 2.13: ATen/autocast_mode.h, which is among the include files of an installed torch,
as its macros are named here; aten/src/ATen/autocast_mode.cpp registers them. A test reads them there. Of what is cast
to half precision a CPU has nearly the same list, and keeps its own.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

HALF = (torch.bfloat16, torch.float16)
# AT_FORALL_FP32: what is narrower is cast before.
FP32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt"),
    *("sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus"),
    *("layer_norm", "native_layer_norm", "rms_norm", "group_norm"),
    *("frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity"),
    *("poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div"),
    *("l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss"),
    *("soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits"),
    *("dist", "pdist", "cdist", "renorm", "logsumexp"),
    *("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d"),
    *("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d"),
    *("_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"),
)
# AT_FORALL_FP32_SET_OPT_DTYPE: these are told their result's type, where nobody has told one.
FP32_RESULT = (
    *("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum"),
    *("linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList"),
)
# AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE: and these by another overload, which has a type as its last argument.
FP32_OVERLOAD = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
# AT_FORALL_PROMOTE: in the widest type among the arguments.
WIDEST = (
    *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot"),
    "scatter_add",
)

CPU, CUDA = "AutocastCPU", "AutocastCUDA"
Kernel = Callable[..., Any]


@contextlib.contextmanager
def casts_of_device(taken: Callable[[], None]) -> Iterator[None]:
    """taken: is called where a CPU's own autocast may have done something else. For a process that traces one model at
    a time: autocast's kernels are the process's."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's: that it has a kernel of its own, which is what this is about
            for name, kernel in _kernels(taken):
                library.impl(name, kernel, CPU, with_keyset=True)
        yield


def _kernels(taken: Callable[[], None]) -> Iterator[tuple[str, Kernel]]:
    """By an operation's name, of those that the installed torch casts on a device, or on a CPU alone."""
    on_cpu, on_device = _registered(CPU), _registered(CUDA)
    for name in on_device.intersection((*FP32, *FP32_RESULT, *FP32_OVERLOAD, *WIDEST)):
        yield name, _cast(name, taken)
    for name in on_cpu - on_device:
        yield name, _as_it_is(_operation(name), taken)


@cache
def _registered(key: str) -> frozenset[str]:
    names = (name.partition("::") for name in torch._C._dispatch_get_registrations_for_dispatch_key(key))
    return frozenset(name for namespace, _, name in names if namespace == "aten")


def _operation(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    found: OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def _cast(name: str, taken: Callable[[], None]) -> Kernel:
    plain, told, change = _operation(name), _operation(FP32_OVERLOAD.get(name, name)), _change_of(name)
    schema = plain._schema.arguments
    names = [argument.name for argument in schema]
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    autocast = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, CPU))

    def run(_: object, *arguments: Any, **named: Any) -> Any:
        given = {**dict(zip(names, arguments, strict=False)), **named}
        is_half = any(_is_half(each) for each in given.values())
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            if not is_half:
                return plain(**given)
            taken()
            return told(**change({**defaults, **given}))

    return run


def _change_of(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Of arguments by their names, one of which is in half precision."""
    if name in FP32_RESULT or name in FP32_OVERLOAD:
        return lambda given: {**given, "dtype": given.get("dtype") or torch.float32}
    return _in_fp32 if name in FP32 else _in_widest


def _in_fp32(given: dict[str, Any]) -> dict[str, Any]:
    return {name: each.float() if _is_half(each) else each for name, each in given.items()}


def _in_widest(given: dict[str, Any]) -> dict[str, Any]:
    wide = any(isinstance(each, Tensor) and each.dtype is torch.float32 for each in given.values())
    return _in_fp32(given) if wide else given


def _is_half(each: object) -> bool:
    return isinstance(each, Tensor) and each.dtype in HALF


def _as_it_is(operation: OpOverload, taken: Callable[[], None]) -> Kernel:
    """What it is made of is cast still."""

    def run(keys: Any, *arguments: Any, **named: Any) -> Any:
        taken()
        return operation.redispatch(keys.remove(getattr(torch._C.DispatchKey, CPU)), *arguments, **named)

    return run
