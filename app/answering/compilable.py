"""Which kept measurements can be run once more: those of what torch.compile can still compile.

The fingerprint says what the machine is, not which compiler is installed, nor which Python's headers: another node
that shares the store, a container, or this machine some time ago may have had what is missing now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from probes.compilers import why_not_compile
from probes.measurement import Measurement


async def without_uncompilable(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Without those of compiled plans where nothing can be compiled for their device: such a plan would die at its
    first step."""
    rows = list(measurements)
    devices = {row.plan.device for row in rows if row.plan.compiled}
    missing = {device for device in devices if await asyncio.to_thread(why_not_compile, device) is not None}
    return [row for row in rows if not (row.plan.compiled and row.plan.device in missing)]
