"""What stands in where fake tensors, which have shapes and no numbers, cannot answer as a CPU would."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch

from probes.microtrain.operation_costs import grouped_shape

aten = torch.ops.aten
Arguments = tuple[Any, ...]

# A recurrent layer larger than this is not run to learn its workspace: a tenth of a second on one core.
_LONGEST_RUN_FLOPS = 2e9
# Where it is not run: numbers that oneDNN keeps for each step and sample, for each hidden unit and for each input
# beyond as many. Measured over 15 shapes on x86 (torch 2.13, oneDNN 3): 15.3 to 16.3, and 6.1 to 6.3.
_NUMBERS_A_HIDDEN_UNIT = 15.5
_NUMBERS_A_FURTHER_INPUT = 6.2


class StandIns:
    """Runs operations; a mask whose entries are known to be mostly true selects everything, which is what it does.

    Known are: answers to "is this label to be counted?" (`labels >= 0`, `labels != -100`), masks that positions were
    overwritten by, and where the token is that every sample ends with. Any other selection raises as fake tensors do:
    its size decides how much work follows.
    """

    def __init__(self) -> None:
        self._masks: set[int] = set()
        self._ends: set[int] = set()  # masks that are true once in each row
        self._values: dict[int, int] = {}  # tensors of which every entry is this number

    def run(self, operation: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if not any(isinstance(arg, FakeTensor) for arg in args):
            return operation(*args, **kwargs)
        stand_in = _STAND_INS.get(operation)
        result = stand_in(self, args, kwargs) if stand_in is not None else None
        result = operation(*args, **kwargs) if result is None else result
        if self._marks(operation, args):
            self._masks.add(_identity(result))
        self._follow(operation, args, result)
        return result

    @staticmethod
    def decides(operation: OpOverload) -> bool:
        """Whether it is run in another way than torch runs it on fake tensors."""
        return operation in _STAND_INS

    def _follow(self, operation: OpOverload, args: Arguments, result: Any) -> None:
        """What is known of a result because it is known of what it was made from."""
        if operation is aten.eq.Scalar and getattr(args[0], ENDS_WITH, None) == args[1]:
            self._ends.add(_identity(result))
        elif operation is aten.sum.dim_IntList and args[1] in ([1], [-1]) and args[0].dim() == 2:
            if (hits := self.hits(args[0])) is not None:
                self._values[_identity(result)] = hits // args[0].shape[0]
        elif operation in _EXTREMES and (value := self.value_of(args[0])) is not None:
            self._values[_identity(result)] = value

    def _marks(self, operation: OpOverload, args: Arguments) -> bool:
        """Whether the result is a mask of whole numbers that count, or made of such masks."""
        if operation in _COMPARISONS:
            in_question = operation is aten.ne.Scalar or args[1] <= 0  # `>= vocabulary` asks for what is wrong
            return in_question and not args[0].dtype.is_floating_point
        return operation in _CONJUNCTIONS and all(self.knows(arg) for arg in args if isinstance(arg, torch.Tensor))

    def knows(self, mask: torch.Tensor) -> bool:
        return isinstance(mask, FakeTensor) and mask.dtype is torch.bool and _identity(mask) in self._masks

    def hits(self, mask: torch.Tensor) -> int | None:
        """How many entries of a mask are true. None: not known."""
        return mask.numel() if self.knows(mask) else mask.shape[0] if self.ends(mask) else None

    def ends(self, mask: torch.Tensor) -> bool:
        """Whether the mask is true at the end of each row and nowhere else."""
        return isinstance(mask, FakeTensor) and mask.dtype is torch.bool and _identity(mask) in self._ends

    def value_of(self, tensor: torch.Tensor) -> int | None:
        whole = isinstance(tensor, FakeTensor) and tensor.dtype is torch.int64
        return self._values.get(_identity(tensor)) if whole else None

    def remember(self, indices: Any) -> None:
        self._masks |= {_identity(i) for i in indices if i is not None and i.dtype is torch.bool}


_COMPARISONS = {aten.ge.Scalar, aten.gt.Scalar, aten.ne.Scalar}
_EXTREMES = {aten.max.default, aten.min.default}
ENDS_WITH = "ends_with"  # attribute of token ids: what each sample ends with, and has nowhere else
_CONJUNCTIONS = {aten.bitwise_and.Tensor, aten.logical_and.default, aten.all.default, aten.all.dim}


def _identity(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _scalar(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> bool | int | float | None:
    """`.item()`: a step count of 1 for an optimizer, "no" to a question (is a layer dropped? is a label out of range?)
    unless a known mask says yes. Whole numbers are not guessed: they could be sizes."""
    if args[0].dtype is torch.bool:
        return known.knows(args[0])
    return 1.0 if args[0].dtype.is_floating_point else known.value_of(args[0])


def _index(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    parts: list[torch.Tensor | None] = []
    for index in args[1]:
        count = None if index is None else known.hits(index)
        parts += [index] if count is None else [index.new_zeros(count, dtype=torch.long)] * index.dim()
    return aten.index.Tensor(args[0], parts)


def _index_put(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> None:
    known.remember(args[1])


def _masked_select(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    if not known.knows(args[1]):
        return None
    return args[0].new_empty(torch.broadcast_shapes(args[0].shape, args[1].shape).numel())


def _nonzero(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    if not known.knows(args[0]):
        return None
    return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.long)


def _unique(known: StandIns, args: Arguments, _kwargs: dict[str, Any]) -> Any:
    """Where all are equal, one is left."""
    if known.value_of(args[0]) is None:
        return None
    return args[0].new_empty(1), args[0].new_empty(0), args[0].new_empty(0)


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
