"""What a step spends its time on, roughly: enough to tell how like another step is, without either's trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.trace import Trace

# Rough prices, the same on every machine, so that a signature outlives each profile: only shares come of them. They
# are a small core's: a microsecond an operation, 10 GB and 50 billion flops a second.
OPERATION_SECONDS, BYTE_SECONDS, FLOP_SECONDS = 1e-6, 1e-10, 2e-11
# Operations with less of the step than this are not told apart: no likeness hangs on them.
LEAST_SHARE = 0.003


@dataclass(frozen=True, slots=True)
class Signature:
    """shares: of a step's rough time, by operation and phase. Logarithms of its seconds, whole and an operation."""

    shares: Mapping[str, float]
    log_step: float
    log_operation: float

    def to_json(self) -> dict[str, Any]:
        return {"shares": dict(self.shares), "log_step": self.log_step, "log_operation": self.log_operation}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Signature:
        """Raises KeyError, TypeError, ValueError or AttributeError when the document is no signature."""
        shares = {str(name): float(share) for name, share in document["shares"].items()}
        found = cls(shares, float(document["log_step"]), float(document["log_operation"]))
        if not all(map(math.isfinite, (*shares.values(), found.log_step, found.log_operation))):
            raise ValueError("a signature of numbers that are none")
        return found


def signature_of(trace: Trace, batch_size: float) -> Signature | None:
    """Of the step in fp32; None of a trace without operations."""
    seconds: dict[str, float] = {}
    for operation in trace.operations:
        moved = operation.read_bytes.at(batch_size) + operation.written_bytes.at(batch_size)
        one = OPERATION_SECONDS + moved * BYTE_SECONDS + operation.flops.at(batch_size) * FLOP_SECONDS
        name = f"{operation.name} {operation.phase}"
        seconds[name] = seconds.get(name, 0.0) + operation.count * max(one, OPERATION_SECONDS)
    total = sum(seconds.values())
    if total <= 0:
        return None
    shares = {name: part / total for name, part in seconds.items() if part >= LEAST_SHARE * total}
    return Signature(shares, math.log(total), math.log(total / trace.operation_count()))
