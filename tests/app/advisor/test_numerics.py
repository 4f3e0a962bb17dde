"""Linear algebra of answers holds one core."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOOK = """
import os, psutil
before = dict(os.environ)
from app.advisor.operation_prices import samples
samples.np.linalg.inv(samples.np.eye(500))
print(psutil.Process().num_threads(), dict(os.environ) == before)
"""


@pytest.mark.skipif((os.cpu_count() or 1) == 1, reason="one core has one thread anyway")
def test_solving_starts_no_threads_and_leaves_the_environment_to_those_that_inherit_it() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    ran = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "True"]
