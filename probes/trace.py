"""A trace: the tensor operations of one step of a workload, as a function of the batch size.

Made by `probes.microtrain.tracing` under fake tensors (no memory, no computing), kept by content, read by the
advisor. Quantities are affine in the batch: `[constant, per_sample]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from probes.issued import Issued

# 2: the step under autocast stands beside the step in fp32; 3: what kernels take inside; 4: at many batch sizes;
# 5: what a process holds beyond its tensors; 6: simulated with what kernels take inside; 7: what issues operations;
# 8: why a step does not run under autocast; 9: whether a depthwise convolution's channels lie last, and
# what attention works through at a time; 10: whole what one kernel computes; 11: what operations copy first;
# 12: what small steps find fresh after a while; 13: the numbers in a pool's window; 14: more of what kernels take;
# 15: what steps of few allocations find fresh, in several heaps; 16: whether a depthwise convolution leaves places out;
# 17: the step as a device runs it; 18: its losses in fp32, and what this CPU refuses; fewer simulated steps of the heap
# where there are thousands of allocations; 19: additions where a step makes them, and more of what kernels take;
# 20: masks of attention among them; 21: parameters that get no gradient; 22: dropout of whole channels, no more guesses
# at what a user's own code asks, joined masks, and lines that chance had shaken; 23: none at its numbers that are no
# truths either, causal masks, equal chance for all, attention that no one kernel of a device takes, and whose CPU;
# 24: the FLOPs of a whole encoder layer with a mask of padding, and the sizes of images that are rows of colours;
# 25: which kernel a power, a norm or a rounded quotient runs; 26: products of complex numbers, one's own model with one
# output, inputs that have gradients, and no guesses at what its code asks of infinite or missing numbers; 27: hooks on
# parameters' gradients, class numbers for models that take nothing else, and what factorizing matrices computes; 28:
# what is alive in the optimizer's step, apart from the rest; 29: attention that a device's kernels take by the width of
# its heads, memory that a step takes and its module does not own, and no layer norms of wrong sizes; 30: what autocast
# keeps in fp32 on a device, as many rows of stacked frames as there are, and how many layers chance leaves out; 31:
# batches that are dataclasses, what is refused for its types, and teachers in lists under autocast; 32: what whole
# layers take inside beyond the batches tried, and parameters that are not trained; 33: regions with autocast of their
# own in inference, the FLOPs of products with a vector and of those in place, and no steps that work in threads; 34:
# linear layers behind a transposition in inference, what a model keeps until its next step, what any kernel takes
# inside that is not known to take nothing, packed weights, and steps that are others at larger batches.
SCHEMA_VERSION = "36"
BYTES_OF_A_NUMBER = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}  # by dtype

CURVES = (
    "kernel_peaks",
    "autocast_kernel_peaks",
    "heap_surplus",
    "autocast_heap_surplus",
    "heap_fresh",
    "autocast_heap_fresh",
)  # of knots
PEAKS = ("activation_peaks", "autocast_peaks", "update_peaks")  # of lines
ISSUED = ("issued", "autocast_issued")
AUTOCAST = ("bf16", "fp16")  # precisions that are autocast, not another type of the weights

Phase = Literal["forward", "backward", "optimizer"]
# What an operation costs depends on its class. `view` costs dispatch only.
Kind = Literal[
    "matmul",
    "convolution",
    "attention",
    "recurrent",
    "normalization",
    "elementwise",
    "reduction",
    "copy",
    "gather",
    "random",
    "view",
]


class Affine(NamedTuple):
    """constant + per_sample * batch_size."""

    constant: float
    per_sample: float

    def at(self, batch_size: float) -> float:
        return self.constant + self.per_sample * batch_size


class Knot(NamedTuple):
    """A point of a curve over the batch."""

    batch_size: int
    bytes: float


@dataclass(frozen=True, slots=True)
class Operation:
    """Equal operations of one phase, merged.

    count: how often a step runs it. flops, read_bytes, written_bytes: of ONE execution. A multiply-add is two
    flops (torch.utils.flop_counter's convention). shapes: of the tensor arguments at the trace's first batch size.
    variant: what the name leaves open (probes.context). grain: flops of each of the blocks that a kernel works through
    by itself, whatever the batch, of a pool the numbers in a window, of what works on lists of tensors how many these
    have, and of a device's recurrent layers how many steps wait for each other; 0 where it has none or nobody knows.
    """

    kind: Kind
    name: str  # torch's own name, as in aten.addmm
    phase: Phase
    dtype: str
    count: int
    flops: Affine
    read_bytes: Affine
    written_bytes: Affine
    shapes: tuple[tuple[int, ...], ...] = ()
    variant: str = ""
    grain: float = 0.0


ROW_FIELDS: tuple[str, ...] = Operation.__slots__


@dataclass(frozen=True, slots=True)
class Trace:
    """One step.

    parameters: trainable scalars; frozen_parameters: the others, which no schema before 32 counted; parameter_tensors:
    how many tensors a step trains. activation_bytes: alive at the
    peak of forward and backward beyond weights, gradients and optimizer state (inputs and temporaries included), as one
    line that is close at ordinary batches; activation_peaks: one line for each moment that is the peak at some batch
    size (a large layer's gradient at small batches, the end of the forward at ordinary ones): the highest is exact.
    update_peaks: the same of the optimizer's step on a CPU, which goes from parameter to parameter, in any precision;
    empty where it was not told. input_bytes: one batch as it is put on the device. All at fp32 unless the model says
    otherwise. autocast_operations, autocast_peaks: the same step under autocast to bf16 (fp16 runs the same
    operations), casts included; empty when the step does not run under autocast. kernel_peaks, autocast_kernel_peaks:
    the peak with what the kernels of this machine's CPU take inside, at growing batch sizes, straight between them and
    beyond the last (kernels are other ones at other sizes: there are jumps); empty when not known. allocations: what
    the step asks an allocator for, in order (probes.allocations); the optimizer's own apart. heap_surplus,
    autocast_heap_surplus: what the C library's heap holds at its peak beyond the tensors alive, over a few steps, where
    the library is known; heap_fresh, autocast_heap_fresh: what a later step finds fresh of the system
    (probes.heap_peaks). issued, autocast_issued: what issues the operations; None where it was not counted.
    autocast_refused: what torch said where a step failed under autocast on the machine that traced it; empty where it
    ran or was not tried. device: the step as a device runs it, where that was asked for (devices) and differs; its
    kernels' own memory and what a CPU's heap does are not in it. cpu: a hash of what the survey told of the CPU that it
    was traced on (probes.fingerprint); empty where nobody noted it.
    """

    model_key: str
    mode: str
    optimizer: str
    batch_sizes: tuple[int, int]  # the two that were traced
    parameters: int
    parameter_tensors: int
    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: Affine
    input_bytes: Affine
    operations: tuple[Operation, ...]
    torch_version: str
    activation_peaks: tuple[Affine, ...] = ()
    update_peaks: tuple[Affine, ...] = ()
    autocast_operations: tuple[Operation, ...] = ()
    autocast_peaks: tuple[Affine, ...] = ()
    kernel_peaks: tuple[Knot, ...] = ()
    autocast_kernel_peaks: tuple[Knot, ...] = ()
    evenly_routed: bool = False  # experts were taken to be chosen equally often: nobody knows without numbers
    layers_dropped: float = 0.0  # share of those that chance may leave out that it does, on average; here all run
    allocations: str = ""
    autocast_allocations: str = ""
    heap_surplus: tuple[Knot, ...] = ()
    autocast_heap_surplus: tuple[Knot, ...] = ()
    heap_fresh: tuple[Knot, ...] = ()
    autocast_heap_fresh: tuple[Knot, ...] = ()
    issued: Issued | None = None
    autocast_issued: Issued | None = None
    autocast_refused: str = ""
    compiled: bool = False  # by its owner: the operations are those of the module beneath, which do not run one by one
    devices: bool = False
    device: Trace | None = None
    cpu: str = ""
    frozen_parameters: int = 0
    schema_version: str = SCHEMA_VERSION

    @property
    def all_parameters(self) -> int:
        """Trained or not."""
        return self.parameters + self.frozen_parameters

    def on(self, *, cpu: bool) -> Trace:
        """The step as it runs there, as far as that was traced."""
        return self if cpu or self.device is None else self.device

    def operations_under(self, precision: str) -> tuple[Operation, ...]:
        """What a step runs in this precision: under autocast for bf16 and fp16, as far as that was traced."""
        return self.autocast_operations or self.operations if precision in AUTOCAST else self.operations

    def peaks_under(self, precision: str) -> tuple[Affine, ...]:
        """Lines of the step's peak in this precision, kernels apart. Empty: not known."""
        if precision in AUTOCAST:
            return self.autocast_peaks
        return self.activation_peaks or (self.activation_bytes,)

    def kernel_peaks_under(self, precision: str) -> tuple[Knot, ...]:
        """The step's peak in this precision with what a CPU's kernels take inside. Empty: not known."""
        return self.autocast_kernel_peaks if precision in AUTOCAST else self.kernel_peaks

    def heap_surplus_under(self, precision: str) -> tuple[Knot, ...]:
        """What a CPU's heap holds beyond the tensors alive, in this precision. Empty: not known."""
        return self.autocast_heap_surplus if precision in AUTOCAST else self.heap_surplus

    def heap_fresh_under(self, precision: str) -> tuple[Knot, ...]:
        """Bytes that a step on a CPU finds fresh of the system, in this precision. Empty: not known."""
        return self.autocast_heap_fresh if precision in AUTOCAST else self.heap_fresh

    def issued_under(self, precision: str) -> Issued | None:
        """What issues a step's operations in this precision. None: not counted."""
        return self.autocast_issued or self.issued if precision in AUTOCAST else self.issued

    def flops(self, batch_size: int) -> float:
        """Floating-point operations of one step."""
        return sum(op.count * op.flops.at(batch_size) for op in self.operations)

    def operation_count(self) -> int:
        """How many operations one step dispatches."""
        return sum(op.count for op in self.operations)

    def to_json(self) -> dict[str, Any]:
        """Operations are rows in the order of Operation's fields: there are hundreds in a trace."""
        document = asdict(replace(self, operations=(), autocast_operations=(), device=None))
        document["device"] = None if self.device is None else self.device.to_json()
        for name in ("operations", "autocast_operations"):
            document[name] = [_operation_to_row(operation) for operation in getattr(self, name)]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Trace:
        """Raises KeyError, TypeError or ValueError when the document is not a trace of this schema."""
        if document.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"a trace of schema {SCHEMA_VERSION} was expected")
        values = dict(document)
        values["batch_sizes"] = tuple(values["batch_sizes"])
        for name in ("activation_bytes", "input_bytes"):
            values[name] = Affine(*values[name])
        for name in PEAKS:
            values[name] = tuple(Affine(*line) for line in values.get(name, ()))
        for name in CURVES:
            values[name] = tuple(Knot(*point) for point in values.get(name, ()))
        for name in ISSUED:
            values[name] = None if values.get(name) is None else Issued(*values[name])
        for name in ("operations", "autocast_operations"):
            values[name] = tuple(_operation_from_row(row) for row in values.get(name, ()))
        device = values.get("device")
        values["device"] = None if device is None else cls.from_json({**device, "device": None})
        return cls(**values)


def _operation_to_row(operation: Operation) -> list[Any]:
    o = operation
    lines = ([_short(number) for number in line] for line in (o.flops, o.read_bytes, o.written_bytes))
    return [o.kind, o.name, o.phase, o.dtype, o.count, *lines, o.shapes, o.variant, _short(o.grain)]


def _short(number: float) -> float:
    return int(number) if number == int(number) else number


def _operation_from_row(row: Sequence[Any] | dict[str, Any]) -> Operation:
    """Schema 1 named the fields in every row; up to schema 7 there was no variant, up to 8 no grain."""
    row = [row[field] for field in ROW_FIELDS if field in row] if isinstance(row, dict) else row
    missing: Sequence[Any] = ("", 0.0)[len(row) - len(ROW_FIELDS) :] if len(row) < len(ROW_FIELDS) else ()
    kind, name, phase, dtype, count, *lines, shapes, variant, grain = [*row, *missing]
    flops, read, written = (Affine(*line) for line in lines)
    sizes = tuple(tuple(shape) for shape in shapes)
    return Operation(kind, name, phase, dtype, count, flops, read, written, sizes, variant, grain)
