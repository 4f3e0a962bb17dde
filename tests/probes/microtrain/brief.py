"""Measurements that end when every plan has some samples, with far more time than that takes on any machine: on a slow
one no step comes too late, and on a quick one nothing waits."""

from __future__ import annotations

import sys
from collections.abc import Callable

from probes.microtrain.measuring import contest
from probes.microtrain.measuring.entry import Entry

SECONDS = 30.0
SAMPLES, BLOCK_SECONDS = 8, 0.02
# The real child's program, but for that.
PROGRAM = (
    sys.executable,
    "-c",
    "from tests.probes.microtrain.brief import be_brief; be_brief(setattr)\n"
    "from probes.microtrain.__main__ import main; main()",
)


def has_samples(entry: Entry) -> bool:
    return len(entry.samples) >= SAMPLES


def be_brief(patch: Callable[[object, str, object], object]) -> None:
    """patch: as setattr, or a monkeypatch's own."""
    patch(contest, "is_precise", has_samples)
    patch(contest, "MAX_BLOCK_SECONDS", BLOCK_SECONDS)
