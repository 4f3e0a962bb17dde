"""What a device runs in place of what a trace of the CPU's step says.

torch dispatches the same operations on a device, but for those that each has kernels of its own for: attention and
recurrent layers, batch norms, dropout in one kernel, and an optimizer that works on lists of all tensors (torch docs,
torch.optim, "foreach").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from probes.context import ContextOperation
from probes.trace import Affine, Operation

ATTENTION = "aten.scaled_dot_product_attention"
RECURRENT = "aten._cudnn_rnn"
LISTED = "aten._foreach_"
BACKWARD = "_backward"

# Kernels of one name in profiles and traces, whichever library computes.
_ATTENTION_MARK = "scaled_dot_product"
_SAME = {
    "aten.cudnn_batch_norm": "aten.native_batch_norm",
    "aten.cudnn_batch_norm_backward": "aten.native_batch_norm_backward",
    "crosspoint._cudnn_rnn": RECURRENT,
    "crosspoint._cudnn_rnn_backward": RECURRENT + BACKWARD,
    "aten.mkldnn_rnn_layer": RECURRENT,
    "aten.mkldnn_rnn_layer_backward": RECURRENT + BACKWARD,
}
# Of an optimizer's step for one tensor: what the step for all calls, as often as the other has it per tensor.
_IN_LISTS = {f"aten.{name}": f"{LISTED}{name.rstrip('_')}_" for name in (
    "add_", "mul_", "lerp_", "addcmul_", "addcdiv_", "div", "div_", "maximum", "neg", "pow_", "sub_", "copy_",
)} | {"aten.sqrt": f"{LISTED}sqrt"}  # fmt: skip
_LAYER = "aten.mkldnn_rnn_layer"
_NUMBERS_READ = "aten._local_scalar_dense"  # of a tensor's count of steps: twice where tensors are listed
_MASK, _DROPOUT = "aten.bernoulli_", "aten.native_dropout"
_WITH_A_MASK = ("aten.div_", "aten.mul", "aten.empty_like")


def same_kernel(operation: ContextOperation) -> ContextOperation:
    """By the name that it has in every library."""
    if _ATTENTION_MARK in operation.name:
        name = ATTENTION + (BACKWARD if BACKWARD in operation.name else "")
        return operation._replace(name=name, kind="attention", grain=0.0)
    return operation._replace(name=_SAME.get(operation.name, operation.name))


def on_device(operations: Sequence[Operation], tensors: int) -> list[Operation]:
    """Of a step that a CPU was traced to run, what a device runs. tensors: that an optimizer steps."""
    steps = [each for each in operations if each.phase == "optimizer"]
    others = [each for each in operations if each.phase != "optimizer"]
    return [*_recurrent_at_once(_dropped_at_once(others)), *_in_lists(steps, max(tensors, 1))]


def _in_lists(operations: Sequence[Operation], tensors: int) -> list[Operation]:
    """Equal names in one row: each call works on all tensors."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        groups[operation.name].append(operation)
    found: list[Operation] = []
    for name, rows in groups.items():
        executions = sum(row.count for row in rows)
        if name == _NUMBERS_READ:
            found.append(replace(rows[0], count=2 * executions))
        elif name in _IN_LISTS:
            calls = max(round(executions / tensors), 1)
            found.append(_listed(_IN_LISTS[name], rows, calls, tensors))
        else:
            found += rows
    return found


def _listed(name: str, rows: Sequence[Operation], calls: int, tensors: int) -> Operation:
    def total(member: str) -> Affine:
        lines = [(row.count, getattr(row, member)) for row in rows]
        sums = (sum(count * line[place] for count, line in lines) / calls for place in range(2))
        return Affine(*sums)

    return replace(
        rows[0],
        name=name,
        kind="elementwise",
        count=calls,
        flops=total("flops"),
        read_bytes=total("read_bytes"),
        written_bytes=total("written_bytes"),
        variant="",
        grain=float(tensors),
    )


def _dropped_at_once(operations: Sequence[Operation]) -> list[Operation]:
    """A CPU draws a mask, scales it and multiplies; a device does so in one kernel."""
    spent: Counter[tuple[str, Affine]] = Counter()
    for mask in operations:
        if mask.name == _MASK:
            spent.update({(name, mask.written_bytes): mask.count for name in _WITH_A_MASK})
    found = []
    for operation in operations:
        key = (operation.name, operation.written_bytes)
        taken = min(spent[key], operation.count) if operation.phase == "forward" else 0
        spent[key] -= taken
        if operation.count > taken:
            found.append(replace(operation, count=operation.count - taken))
    return [replace(each, name=_DROPOUT) if each.name == _MASK else each for each in found]


def _recurrent_at_once(operations: Sequence[Operation]) -> list[Operation]:
    """A CPU runs layer after layer; of each the steps wait for each other (shapes: steps first)."""
    found = []
    for operation in operations:
        if operation.name.startswith(_LAYER) and operation.shapes and operation.shapes[0]:
            steps = operation.shapes[0][0] * operation.count
            name = _SAME.get(operation.name, operation.name)  # a profile's trace may have one that nobody knows
            found.append(replace(_listed(name, [operation], 1, steps), kind="recurrent"))
        else:
            found.append(operation)
    return found
