"""Batch norm over one value a channel, which torch refuses to train: known before it is tried."""

from __future__ import annotations

from probes.trace import BYTES_OF_A_NUMBER, Operation, Trace


def explain_one_value(trace: Trace | None, batch_size: int) -> str | None:
    """Why a step at this batch size is refused (torch.nn.functional: batch_norm wants more than one value a channel);
    None where it is not."""
    if trace is None or trace.mode != "training" or batch_size > 1:
        return None
    norms = [operation for operation in trace.operations if operation.name == "aten.native_batch_norm"]
    if not any(map(_has_one_value, norms)):
        return None
    return (
        "torch refuses to train batch norm over one value a channel, which is what a batch of 1 has here. "
        "A batch of 2 or more runs."
    )


def _has_one_value(norm: Operation) -> bool:
    """Of each channel in each sample; in training, in which mean and deviation of each channel are kept."""
    size = BYTES_OF_A_NUMBER.get(norm.dtype)
    if size is None or len(norm.shapes[0]) < 2:
        return False
    keeps_statistics = norm.written_bytes.constant > 0
    return keeps_statistics and norm.written_bytes.per_sample == norm.shapes[0][1] * size
