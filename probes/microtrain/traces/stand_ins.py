"""What stands in where fake tensors, which have shapes and no numbers, cannot answer as a CPU would."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._mode_utils import no_dispatch

from probes.microtrain.traces.asking import guess, is_asked_by_a_library
from probes.microtrain.traces.known_numbers import KnownNumbers, looked_through
from probes.microtrain.traces.number_facts import Chance, Filled, Granted, Ones, Rising, Spread
from probes.microtrain.traces.operation_costs import grouped_shape
from probes.microtrain.traces.packed_weights import beside_the_cache
from probes.microtrain.traces.refused_types import check_types
from probes.microtrain.traces.shape_rules import RULES

aten = torch.ops.aten
Arguments = tuple[Any, ...]

# A recurrent layer larger than this is not run to learn its workspace: a tenth of a second on one core.
_LONGEST_RUN_FLOPS = 2e9
# Where it is not run: numbers that oneDNN keeps for each step and sample, for each hidden unit and for each input
# beyond as many. Measured over 15 shapes on x86 (torch 2.13, oneDNN 3): 15.3 to 16.3, and 6.1 to 6.3.
_NUMBERS_A_HIDDEN_UNIT = 15.5
_NUMBERS_A_FURTHER_INPUT = 6.2
# In one step: a loop of a library that samples until it is told "yes" never ends (torch.distributions.VonMises).
_MOST_DENIALS = 500


class StandIns:
    """Runs operations; where their results hang on numbers, what is known of these decides (known_numbers).

    Known are masks of what was found in the inputs, labels that are counted, and how often experts are chosen, on
    average. Any other selection raises as fake tensors do: its size decides how much work follows.
    """

    def __init__(self) -> None:
        self.known = KnownNumbers()
        self.assumed_even = False  # that experts are chosen equally often
        self.denied: list[float] = []  # how likely each was that chance would have said yes to, in order
        self._denials = 0

    def run(self, operation: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if not any(isinstance(arg, FakeTensor) for arg in looked_through(args)) and operation not in _MAKERS:
            with unset_fake_temporarily() if _is_real_view(operation) else nullcontext():
                return operation(*args, **kwargs)
        _refuse_unlike(args)
        check_types(operation, args, kwargs)
        stand_in = _STAND_INS.get(operation)
        result = stand_in(self, args, kwargs) if stand_in is not None else None
        rule = RULES.get(operation)
        result = rule(*args, **kwargs) if rule is not None else result
        if result is None:
            with beside_the_cache(args):
                result = operation(*args, **kwargs)
        self.known.follow(operation, args, kwargs, result if isinstance(result, FakeTensor) else None)
        return result

    def decides(self, operation: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> bool:
        """Whether it is run in another way than torch runs it on fake tensors, or its numbers are followed."""
        return operation in _STAND_INS or self.known.concerns(operation, args, kwargs)

    def hits(self, mask: Any) -> int | None:
        """How many entries of a mask are true. None: not known."""
        if not isinstance(mask, FakeTensor) or mask.dtype.is_floating_point:
            return None
        match self.known.of(mask):
            case Filled(value):
                return mask.numel() if value else 0
            case Ones(even=even) as ones:
                self.assumed_even |= even
                return ones.among(mask.numel())
            case Spread(total, places) if total >= places:
                return mask.numel()
        return None

    def number(self, tensor: torch.Tensor) -> float | None:
        """The one number in a tensor. None: not known."""
        match self.known.of(tensor):
            case Filled(value):
                return value
            case Granted(truth):
                return truth
            case Spread() as spread:
                self.assumed_even |= spread.even
                return spread.at(int(tensor.storage_offset()))
            case Rising() as rising:
                return rising.at(int(tensor.storage_offset()))
        return None

    def deny(self, question: torch.Tensor) -> bool | None:
        """To a library that asks for an exception to a rule. None: it has asked too often for one."""
        self._denials += 1
        if isinstance(chance := self.known.of(question), Chance):
            self.denied.append(chance.of_truth)
        return False if self._denials <= _MOST_DENIALS else None

    def remember(self, indices: Any) -> None:
        """Masks that positions were overwritten by: they select everything where they are asked again."""
        for index in indices:
            if isinstance(index, FakeTensor) and index.dtype is torch.bool and self.known.of(index) is None:
                self.known.learn(index, Filled(True))


def _refuse_unlike(args: Arguments) -> None:
    """Raises AssertionError, as fake tensors do, of operands that were not made like them: weights that nobody found to
    replace, as a teacher's in a list. A rule (shape_rules) would answer all the same, and the step go through in fp32
    and not under autocast, which casts them."""
    tensors = [arg for arg in looked_through(args) if isinstance(arg, torch.Tensor)]
    takes_real = all(each.fake_mode.allow_non_fake_inputs for each in tensors if isinstance(each, FakeTensor))
    if any(not isinstance(each, FakeTensor) and (each.is_meta or not takes_real) for each in tensors):
        raise AssertionError("a tensor that is no FakeTensor is used with some that are")


def _is_real_view(operation: OpOverload) -> bool:
    """Whether it gives a part of a real tensor's memory, which is no memory of its own for being looked at under fake
    tensors. What is lifted becomes one of these."""
    return operation.is_view and "lift" not in str(operation)


_MAKERS = {
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.rand.default,
    aten.arange.default,
    aten.arange.start,
}


def _scalar(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> bool | int | float | None:
    """`.item()`: to a library a step count of 1 (of an optimizer) and "no" (is a layer dropped?), unless more is known.
    Whole numbers are not guessed: they could be sizes. Nor are truths that a user's own code asks for: half the work
    may hang on them, or the end of a loop. Numbers with a point are where it is seen whether anything does (asking)."""
    if args[0].constant is not None:
        with no_dispatch():
            return args[0].constant.item()
    number, dtype = known.number(args[0]), args[0].dtype
    if dtype.is_floating_point and is_asked_by_a_library():
        return 1.0
    if number is None and dtype.is_floating_point:
        return guess()
    if number is None:
        return known.deny(args[0]) if dtype is torch.bool and is_asked_by_a_library() else None
    return float(number) if dtype.is_floating_point else bool(number) if dtype is torch.bool else int(number)


def _index(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    parts: list[torch.Tensor | None] = []
    for index in args[1]:
        count = known.hits(index) if index is not None and index.dtype is torch.bool else None
        parts += [index] if count is None else [index.new_zeros(count, dtype=torch.long)] * index.dim()
    return aten.index.Tensor(args[0], parts)


def _index_put(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> None:
    if is_asked_by_a_library():
        known.remember(args[1])


def _masked_select(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    hits = known.hits(args[1])
    if hits is None:
        return None
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    return args[0].new_empty(hits * shape.numel() // max(args[1].numel(), 1))


def _nonzero(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    hits = known.hits(args[0])
    if hits is None:
        return None
    places = args[0].new_empty((hits, args[0].dim()), dtype=torch.long)
    if args[0].dim() == 1 and hits == args[0].numel():
        known.known.learn(places, Rising())
    return places


def _unique(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    """Where all are equal, one is left."""
    fact = known.known.of(args[0])
    if not isinstance(fact, Filled):
        return None
    asked = [len(args) > place and args[place] for place in (1, 2)]
    value = args[0].new_empty(1)
    inverse = args[0].new_empty(args[0].shape if asked[0] else 0, dtype=torch.long)
    counts = args[0].new_empty(1 if asked[1] else 0, dtype=torch.long)
    known.known.learn(value, fact)
    known.known.learn(counts, Filled(args[0].numel()))
    return value, inverse, counts


def _ctc_loss(_: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    """(log_probs: steps, batch, classes; targets: batch, length, or all in a row): the loss of each sample, and the
    table that the backward needs. All targets are as long as the longest."""
    (steps, batch, _), targets = args[0].shape, args[1]
    length = targets.shape[1] if targets.dim() == 2 else targets.numel() // batch
    return args[0].new_empty(batch), args[0].new_empty(batch, steps, 2 * length + 1)


def _grouped(_: StandIns, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """torch's own stand-in takes bf16 only; CPUs take more."""
    return args[0].new_empty(grouped_shape(*args, **kwargs))


def _recurrent(_: StandIns, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """With the workspace that oneDNN keeps for the backward; torch's stand-in says it is empty."""
    output, hidden, cell, workspace = aten.mkldnn_rnn_layer.default(*args, **kwargs)
    if args[-1]:  # train
        shapes = (tuple(tensor.shape) for tensor in args[:3])
        size = workspace_bytes(args[0].dtype, *shapes, *args[7:])
        workspace = args[0].new_empty(size, dtype=torch.uint8)
    return output, hidden, cell, workspace


def workspace_bytes(
    dtype: torch.dtype, inputs: tuple[int, ...], weights: tuple[int, ...], recurrent: tuple[int, ...], *options: Any
) -> int:
    """What a layer of these shapes keeps: asked by running it once for real. options: the operation's from `reverse`
    on."""
    steps, batch, _ = inputs
    hidden = recurrent[-1]
    if 2.0 * steps * batch * weights[0] * (weights[1] + hidden) > _LONGEST_RUN_FLOPS:
        numbers = _NUMBERS_A_HIDDEN_UNIT * hidden + _NUMBERS_A_FURTHER_INPUT * max(weights[1] - hidden, 0)
        return int(dtype.itemsize * steps * batch * numbers)
    return _run_for_workspace(dtype, inputs, weights, recurrent, _hashable(options))


@lru_cache(maxsize=256)
def _run_for_workspace(
    dtype: torch.dtype, inputs: tuple[int, ...], weights: tuple[int, ...], recurrent: tuple[int, ...], options: Any
) -> int:
    biases, states = (weights[0],), (inputs[1], recurrent[-1])
    with no_dispatch(), torch.enable_grad():  # without, oneDNN keeps nothing
        shapes = (inputs, weights, recurrent, biases, biases, states, states)
        tensors = [torch.zeros(shape, dtype=dtype) for shape in shapes]
        workspace = aten.mkldnn_rnn_layer.default(*tensors, *(list(o) if isinstance(o, tuple) else o for o in options))
        return int(workspace[3].numel())


def _hashable(options: Any) -> tuple[Any, ...]:
    return tuple(tuple(option) if isinstance(option, list) else option for option in options)


def _recurrent_backward(_: StandIns, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """torch's stand-in gives both biases one gradient, which autograd would have to copy."""
    gradients = list(aten.mkldnn_rnn_layer_backward.default(*args, **kwargs))
    gradients[4] = torch.empty_like(gradients[3])
    return tuple(gradients)


_STAND_INS: dict[OpOverload, Callable[[StandIns, Arguments, dict[str, Any]], Any]] = {
    aten._local_scalar_dense.default: _scalar,
    aten.index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten.index_put_.default: _index_put,
    aten.masked_select.default: _masked_select,
    aten.nonzero.default: _nonzero,
    aten.unique_consecutive.default: _unique,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._ctc_loss.default: _ctc_loss,
    aten._grouped_mm.default: _grouped,
    aten.mkldnn_rnn_layer.default: _recurrent,
    aten.mkldnn_rnn_layer_backward.default: _recurrent_backward,
}
