"""What operations cost where they run: timed one by one inside whole steps of micro-networks.

Alone and repeated, a light operation finds its data in a cache and its memory already mapped; between others it does
not. Part of a profile: raw points, from which the advisor prices the operations of a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

from probes.issued import Issued
from probes.reckoned import told_if_reckoned
from probes.trace import Kind
from probes.workload.description import Mode, Plan

ENCODER_LAYER = "aten._transformer_encoder_layer_fwd"
KERNEL_MEMBERS = 4  # of an operation: its first ones, which do not hang on its size
# Variant of what reads an optimizer's state that is mostly zeros.
SPARSE = "sparse"
# Whose time an operation's is: the host's, from its call to its return, or the device's, of the kernels that it queued.
Clock = Literal["host", "device"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)
STRIDED = "-strided"  # mark of a depthwise convolution's variant


class ContextOperation(NamedTuple):
    """An operation as torch dispatches it below autograd, with the sizes of one execution.

    name: torch's own, as aten.addmm. variant: what its name leaves open (variant_of, and
    probes.microtrain.traces.chosen_kernels). flops, read_bytes,
    written_bytes, grain: by the conventions of probes.trace.
    """

    name: str
    kind: Kind
    variant: str
    dtype: str
    flops: float
    read_bytes: float
    written_bytes: float
    grain: float = 0.0


class OperationCost(NamedTuple):
    """What one execution takes inside a step.

    times: how many equal ones the step runs. seconds: median over steps, scaled so that all rows add up to the median
    step; of two visits that are alike the mean. spread: half the range from the 10th to the 90th percentile, as a share
    of the median, to a hundredth and four digits, as profiles keep it.
    """

    operation: ContextOperation
    times: int
    seconds: float
    spread: float


@dataclass(frozen=True, slots=True)
class Context:
    """All operations of one network's step under one plan, of which a step is the sum, but for what lies between.

    issued: what issues them; None where it was not counted. clock: on a CPU the host's; on a device its own tells the
    operations that have kernels there, and the host's what issuing each takes. reckoned: it met slow cores alone, and
    its times are reckoned back to calm ones (probes.microtrain.quiet.calm)."""

    network: str
    batch_size: int
    mode: Mode
    plan: Plan
    costs: tuple[OperationCost, ...]
    issued: Issued | None = None
    clock: Clock = "host"
    reckoned: bool = False

    @property
    def seconds(self) -> float:
        """Of all operations of a step."""
        return sum(cost.seconds * cost.times for cost in self.costs)

    @property
    def shortest(self) -> float:
        """Seconds of the shortest operation."""
        return min((cost.seconds for cost in self.costs), default=0.0)


def contexts_to_json(contexts: Sequence[Context], place_of_plan: Callable[[Plan], int]) -> dict[str, Any]:
    """As short as can be, for it is most of a profile. `kernels` holds what operations of any size share, `operations`
    each operation once, as [place of its kernel, flops, read, written] and its grain where it has one; `steps` each
    step that ran, its operations as [place, times], or as the place alone of what ran once; a context is the places of
    its step and its plan, and what each operation of it took, in nanoseconds, with spreads in percent; its clock where
    that is not the host's, and that it is reckoned where it is."""
    operations = dict.fromkeys(cost.operation for context in contexts for cost in context.costs)
    places = {operation: place for place, operation in enumerate(operations)}
    kernels: dict[tuple[Any, ...], int] = {}
    sized: list[list[float]] = []
    for *kernel, flops, read, written, grain in operations:
        sizes = (flops, read, written, grain) if grain else (flops, read, written)
        sized.append([kernels.setdefault(tuple(kernel), len(kernels)), *map(_short, sizes)])
    steps: dict[tuple[Any, ...], int] = {}
    rows = []
    for context in contexts:
        ran = tuple(
            (places[cost.operation], cost.times) if cost.times > 1 else places[cost.operation] for cost in context.costs
        )
        step = (context.network, context.batch_size, context.mode, context.issued, ran)
        row = {
            "step": steps.setdefault(step, len(steps)),
            "plan": place_of_plan(context.plan),
            "nanoseconds": [_shifted(cost.seconds, 9) for cost in context.costs],
            "spreads": [_shifted(cost.spread, 2) for cost in context.costs],
        }
        clock = {} if context.clock == "host" else {"clock": context.clock}
        rows.append({**row, **clock, **told_if_reckoned(context)})
    members = ("network", "batch_size", "mode", "issued", "operations")
    return {
        "kernels": [list(kernel) for kernel in kernels],
        "operations": sized,
        "steps": [dict(zip(members, step, strict=True)) for step in steps],
        "contexts": rows,
    }


def _short(value: float) -> float:
    """Whole numbers without a fraction."""
    return int(value) if value == int(value) else value


def _shifted(value: float, places: int) -> float:
    """To four digits, with the decimal point so many places to the right: as a decimal, so that the same number comes
    back when it is shifted to the left (context_check)."""
    shifted = Decimal(f"{value:.4g}").scaleb(places)
    return int(shifted) if shifted == shifted.to_integral_value() else float(shifted)


# Kernels take channels by so many (vectors of 512 bits hold 16 numbers of fp32), and have ways of their own for images.
CHANNELS_AT_ONCE, MOST_IMAGE_CHANNELS = 16, 4
# From this width on a depthwise kernel is taken another way, and so it is where channels lie last (on an EPYC, Zen 5,
# torch 2.13, one thread, GFLOP/s forward and backward, fp32: 3 x 3 30 and 30, 7 x 7 110 and 6; channels last 55 and 50,
# 137 and 18).
LARGE_KERNEL = 5


def variant_of(
    name: str,
    shapes: Sequence[Sequence[int]],
    *,
    channels_last: bool = False,
    transposed: bool = False,
    dilated: bool = False,
    strided: bool = False,
) -> str:
    """Of a convolution: its dimensions, and whether it mixes channels, places or both, or reads an image, which kernels
    differ by; whether it is transposed, in groups, or dilated; of an image, and of what mixes both, whether it reads or
    makes a ragged number of channels; of a depthwise one, whether its kernel is large, whether it leaves places out and
    whether channels lie last. Of a whole encoder layer: whether its sequence is longer than wide, so that attention is
    most of it. Empty for everything else.

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
    read = shapes[place - 1][1] if len(shapes[place - 1]) > 1 else 1
    if transposed:
        what = "transposed"
    elif all(size == 1 for size in kernel):
        what = "pointwise"
    elif channels == 1 and outputs > 1 and read > 1:
        marks = {"-large": max(kernel) >= LARGE_KERNEL, STRIDED: strided, "-last": channels_last}
        what = "depthwise" + "".join(mark for mark, holds in marks.items() if holds)
    elif channels != read:
        what = "grouped"
    elif channels <= MOST_IMAGE_CHANNELS:
        what = "image-ragged" if outputs % CHANNELS_AT_ONCE else "image"
    else:
        ragged = "-ragged" if outputs % CHANNELS_AT_ONCE or channels % CHANNELS_AT_ONCE else ""
        what = f"spatial{'-dilated' if dilated else ragged}"
    return f"{len(kernel)}d-{what}"
