"""Chance that goes on afterwards as if nothing had been drawn."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_chance_kept() -> Iterator[None]:
    """Python's random numbers, and numpy's where a model has imported it; torch keeps its own (fork_rng)."""
    numpy = sys.modules.get("numpy")
    python = random.getstate()
    theirs = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(theirs)
