"""A trace for a model that is only known by its totals."""

from __future__ import annotations

from typing import Any

from probes.trace import Affine, Operation, Phase, Trace
from probes.workload.description import Workload

FP32 = 4  # bytes
# fp32 state a parameter that torch.optim keeps: two moments for Adam and AdamW, one for the others but plain SGD.
OPTIMIZER_STATES = {"sgd": 0, "sgd-momentum": 1, "adam": 2, "adamw": 2, "rmsprop": 1, "adagrad": 1}


def trace_of_summary(workload: Workload) -> Trace:
    """One step from parameters, flops and activation bytes a sample, and the number of operations of the forward.

    flops_per_sample counts the forward; the backward computes twice as much (gradients of weights and of inputs).
    Half of the operations are taken to be arithmetic and half to move bytes, the activations' bytes spread over
    both; one parameter tensor an operation.
    """
    content = workload.model.content.get("summary", workload.model.content)
    parameters = int(_number(content, "parameters"))
    flops = _number(content, "flops_per_sample")
    activations = _number(content, "activation_bytes_per_sample")
    count = max(int(_number(content, "operations")), 2)
    training = workload.mode == "training"
    weights = parameters * FP32
    operations = _phase("forward", count, flops, activations, weights)
    if training:
        operations += _phase("backward", 2 * count, 2 * flops, 2 * activations, 2 * weights)
        operations += _optimizer(workload.optimizer, count, weights)
    states = OPTIMIZER_STATES[workload.optimizer]
    return Trace(
        model_key=workload.model.key,
        mode=workload.mode,
        optimizer=workload.optimizer,
        batch_sizes=(1, 2),
        parameters=parameters,
        parameter_tensors=count,
        parameter_bytes=weights,
        buffer_bytes=0,
        gradient_bytes=weights if training else 0,
        optimizer_bytes=states * weights if training else 0,
        activation_bytes=Affine(0.0, activations if training else 2 * activations / count),
        input_bytes=Affine(0.0, activations / count),
        operations=operations,
        torch_version="",
    )


def _number(content: dict[str, Any], name: str) -> float:
    return float(content.get(name) or 0.0)


def _phase(phase: Phase, count: int, flops: float, moved: float, weights: float) -> tuple[Operation, ...]:
    """Half of the operations with all flops, half without; each reads and writes its share of the bytes."""
    half = count // 2
    each = Affine(0.0, moved / count)
    reads = Affine(weights / half, moved / count)
    return (
        Operation("matmul", "summary.arithmetic", phase, "float32", half, Affine(0.0, flops / half), reads, each),
        Operation("elementwise", "summary.elementwise", phase, "float32", count - half, Affine(0.0, 0.0), each, each),
    )


def _optimizer(optimizer: str, tensors: int, weights: int) -> tuple[Operation, ...]:
    """The multi-tensor update runs a handful of operations over every tensor."""
    moved = Affine((2 + OPTIMIZER_STATES[optimizer]) * weights / tensors, 0.0)
    written = Affine((1 + OPTIMIZER_STATES[optimizer]) * weights / tensors, 0.0)
    return (
        Operation("elementwise", "summary.update", "optimizer", "float32", tensors, Affine(0.0, 0.0), moved, written),
    )
