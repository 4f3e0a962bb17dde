"""numpy, with linear algebra that keeps to one thread.

OpenBLAS starts a thread a core when it is loaded. What is solved here is small: fitting a profile takes 2.9 s on one
thread and 2.8 on two, and 5.1 and 8.4 where two other programs compute (EPYC, 2 cores); and the threads would be in the
way of training that somebody else does, or that is measured. OpenBLAS reads the variable when it is loaded and only
then, so that processes that measure inherit what the user has set. Where numpy was loaded before, it stays as it is.
"""

from __future__ import annotations

import os

__all__ = ["NDArray", "np"]

_VARIABLE = "OPENBLAS_NUM_THREADS"
_is_ours = _VARIABLE not in os.environ
os.environ.setdefault(_VARIABLE, "1")
import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

if _is_ours:
    del os.environ[_VARIABLE]
