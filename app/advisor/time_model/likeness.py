"""How like two steps are: by where their time goes, and by how much one operation has to do."""

from __future__ import annotations

import math

from probes.signature import Signature

# How far apart two steps are half forgotten: in the share of time that would have to move to other operations, in
# e-folds of the whole step, and of an operation's mean time. Chosen among round numbers, where the gain hardly
# depends on them (docs/decisions/0009-like-models.md).
FAR_SHARES, FAR_STEP, FAR_OPERATION = 0.6, 4.0, 2.0
# Training and inference of one model cost differently.
OTHER_MODE = 0.5


def likeness(one: Signature, other: Signature) -> float:
    """1 of steps that are the same, towards 0 as they share less."""
    common = sum(min(share, other.shares.get(name, 0.0)) for name, share in one.shares.items())
    apart = (
        max(0.0, 1.0 - common) / FAR_SHARES,
        (one.log_step - other.log_step) / FAR_STEP,
        (one.log_operation - other.log_operation) / FAR_OPERATION,
    )
    return math.exp(-sum(distance * distance for distance in apart))
