"""What operations cost where they run: timed one by one inside whole steps of micro-networks.

Alone and repeated, a light operation finds its data in a cache and its memory already mapped; between others it does
not. Part of a profile: raw points, from which the advisor prices the operations of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from probes.issued import Issued
from probes.trace import Kind
from probes.workload.description import Mode, Plan

ENCODER_LAYER = "aten._transformer_encoder_layer_fwd"
# Variant of what reads an optimizer's state that is mostly zeros.
SPARSE = "sparse"


class ContextOperation(NamedTuple):
    """An operation as torch dispatches it below autograd, with the sizes of one execution.

    name: torch's own, as aten.addmm. variant: what its name leaves open (variant_of). flops, read_bytes,
    written_bytes: by the conventions of probes.trace.
    """

    name: str
    kind: Kind
    variant: str
    dtype: str
    flops: float
    read_bytes: float
    written_bytes: float


class OperationCost(NamedTuple):
    """What one execution takes inside a step.

    times: how many equal ones the step runs. seconds: median over executions and steps, in the faster of two visits.
    spread: half the range from the 10th to the 90th percentile, as a share of the median.
    """

    operation: ContextOperation
    times: int
    seconds: float
    spread: float


@dataclass(frozen=True, slots=True)
class Context:
    """All operations of one network's step under one plan, of which a step is the sum, but for what lies between.

    issued: what issues them; None where it was not counted."""

    network: str
    batch_size: int
    mode: Mode
    plan: Plan
    costs: tuple[OperationCost, ...]
    issued: Issued | None = None

    @property
    def seconds(self) -> float:
        """Of all operations of a step."""
        return sum(cost.seconds * cost.times for cost in self.costs)

    @property
    def shortest(self) -> float:
        """Seconds of the shortest operation."""
        return min((cost.seconds for cost in self.costs), default=0.0)


def contexts_to_json(contexts: Sequence[Context]) -> dict[str, Any]:
    """`operations` holds each operation once, for thousands run under several plans; a cost is [place there, times,
    seconds, spread]."""
    operations = list(dict.fromkeys(cost.operation for context in contexts for cost in context.costs))
    places = {operation: place for place, operation in enumerate(operations)}
    rows = [
        {
            "network": context.network,
            "batch_size": context.batch_size,
            "mode": context.mode,
            "plan": context.plan.to_json(),
            "issued": context.issued,
            "costs": [[places[cost.operation], *cost[1:]] for cost in context.costs],
        }
        for context in contexts
    ]
    return {"operations": [list(operation) for operation in operations], "contexts": rows}


# Kernels take channels by so many (vectors of 512 bits hold 16 numbers of fp32), and have ways of their own for images.
CHANNELS_AT_ONCE, MOST_IMAGE_CHANNELS = 16, 4
# From this width on a depthwise kernel is taken another way: its backward does a fifth of the FLOPs a second (measured
# on an EPYC, Zen 5, torch 2.13: 6 against 30 GFLOP/s), but where channels lie last.
LARGE_KERNEL = 5


def variant_of(name: str, shapes: Sequence[Sequence[int]], *, channels_last: bool = False) -> str:
    """Of a convolution: its dimensions, and whether it mixes channels, places or both, or reads an image, which kernels
    differ by; of an image, whether it makes a ragged number of channels; of a depthwise one, whether its kernel is
    large. Of a whole encoder layer: whether its sequence is longer than wide, so that attention is most of it. Empty
    for everything else.

    shapes: of the tensor arguments: (input, weight, …), and of a backward (gradient, input, weight, …). channels_last:
    how the first of them lies in memory.
    """
    if name == ENCODER_LAYER and shapes and len(shapes[0]) == 3:
        _, length, width = shapes[0]
        return "long" if length > width else "wide"
    if "convolution" not in name:
        return ""
    place = 2 if "backward" in name else 1
    if len(shapes) <= place or len(shapes[place]) < 3:
        return ""
    outputs, channels, *kernel = shapes[place]
    if all(size == 1 for size in kernel):
        what = "pointwise"
    elif channels == 1 and outputs > 1 and len(shapes[place - 1]) > 1 and shapes[place - 1][1] > 1:
        what = "depthwise-large" if max(kernel) >= LARGE_KERNEL and not channels_last else "depthwise"
    elif channels <= MOST_IMAGE_CHANNELS and channels == shapes[place - 1][1]:
        what = "image-ragged" if outputs % CHANNELS_AT_ONCE else "image"
    else:
        what = "spatial"
    return f"{len(kernel)}d-{what}"
