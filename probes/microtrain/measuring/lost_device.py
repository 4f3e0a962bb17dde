"""A device on which a step's error has ended all work for as long as this process lives.

An assertion in a kernel or an address that is not its own ends CUDA's context: every call after it is answered with the
same error, whoever makes it (CUDA Runtime API, "cudaErrorIllegalAddress": the process has to be started anew).
"""

from __future__ import annotations

import torch

from probes.microtrain.failures import is_out_of_memory
from probes.microtrain.measuring.workbench import synchronize


def lost_to(device: str) -> Exception | None:
    """The error that it answers with; None where it works, or lacks nothing but memory. It has to have worked."""
    try:
        synchronize(torch.device(device))
    except Exception as error:  # noqa: BLE001 - whatever it answers
        return None if is_out_of_memory(error) else error.with_traceback(None)
    return None


def explain_not_reached(device: str) -> str:
    """Of a plan that has had no step there."""
    return (
        f"Another plan's step ended all work on {device} before its first. More time, for a measurement without that "
        "plan or that batch, would do."
    )
