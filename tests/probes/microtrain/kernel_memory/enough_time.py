"""All the time that trying kernels takes: where there is too little, what some take inside is told by others."""

from __future__ import annotations

import math
from collections.abc import Callable

from probes.microtrain.kernel_memory import slow_kernels
from probes.microtrain.kernel_memory.scratch import Budget
from probes.microtrain.kernel_memory.slow_kernels import SlowKernels


def give_time(patch: Callable[[object, str, object], object]) -> None:
    """As in a process that traced nothing yet. patch: as setattr, or a monkeypatch's own."""
    patch(slow_kernels, "KNOWN", SlowKernels())
    patch(slow_kernels, "MAX_SECONDS", math.inf)
    patch(Budget, "allows", lambda budget, seconds: True)
