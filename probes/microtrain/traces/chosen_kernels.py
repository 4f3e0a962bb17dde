"""Which of an operation's kernels its arguments choose, where one takes several times as long as another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

# What torch's kernels multiply, take roots of or divide by, instead of raising it to a power (torch's source,
# aten/src/ATen/native/Pow.cpp and native/cpu/PowKernel.cpp).
_SHORT_POWERS = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, -0.5, -1.0, -2.0})


class _Choice(NamedTuple):
    """By an argument: what its kernel is called; "" is of the kernel that most networks run."""

    place: int | None  # among the positional arguments; None: it is given by name alone
    name: str
    kernel: Callable[[Any], str]


def _power(exponent: Any) -> str:
    """Of tensors, and of those numbers that have no kernel of their own: any."""
    return "short" if isinstance(exponent, int | float) and float(exponent) in _SHORT_POWERS else ""


def _norm(order: Any) -> str:
    return "" if order is None or order == 2 else "other-order"


# Median microseconds of 262,144 numbers on an EPYC, Zen 4, torch 2.13, one thread, in fp32: squares 25 and any other
# power 656; gelu 132, by tanh 438; the root of a sum of squares 32, another order 220 to 1340; a quotient 34, rounded
# down 513; distances of 512 rows to one another 3200 and 99,000 to 692,000.
_CHOICES: Mapping[str, _Choice] = {
    "aten.pow": _Choice(1, "exponent", _power),
    "aten.pow_": _Choice(1, "exponent", _power),
    "aten.gelu": _Choice(None, "approximate", lambda how: "tanh" if how == "tanh" else ""),
    "aten.gelu_": _Choice(None, "approximate", lambda how: "tanh" if how == "tanh" else ""),
    "aten.gelu_backward": _Choice(None, "approximate", lambda how: "tanh" if how == "tanh" else ""),
    "aten.linalg_vector_norm": _Choice(1, "ord", _norm),
    "aten.norm": _Choice(1, "p", _norm),
    "aten.div": _Choice(None, "rounding_mode", lambda how: "floor" if how == "floor" else ""),
    "aten.div_": _Choice(None, "rounding_mode", lambda how: "floor" if how == "floor" else ""),
    "aten._cdist_forward": _Choice(2, "p", _norm),
    "aten._cdist_backward": _Choice(3, "p", _norm),
}

# Which argument of a softmax says over which dimension, the first one's. Over fewer numbers in a row than a vector of
# 512 bits holds torch takes them one by one: log_softmax of 65,536 numbers in rows of 10 takes 973 us, in rows of 64
# 41, its gradient 469 and 28 (measured like the others).
_SOFTMAXES = {
    "aten._softmax": 1,
    "aten._log_softmax": 1,
    "aten._softmax_backward_data": 2,
    "aten._log_softmax_backward_data": 2,
}
_NUMBERS_AT_ONCE = 16


def _softmax(first: torch.Tensor, dim: int) -> str:
    is_over_rows = first.dim() > 0 and dim % first.dim() == first.dim() - 1
    return "short-rows" if is_over_rows and first.shape[-1] < _NUMBERS_AT_ONCE else ""


def chosen_kernel(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A variant (probes.context); empty where there is but one, or the one that most networks run."""
    if name in _SOFTMAXES:
        return _softmax(args[0], args[_SOFTMAXES[name]])
    choice = _CHOICES.get(name)
    if choice is None:
        return ""
    if choice.place is not None and len(args) > choice.place:
        return choice.kernel(args[choice.place])
    return choice.kernel(kwargs.get(choice.name))
