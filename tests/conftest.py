"""What all tests share."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

# In continuous integration the same examples every time: a landing does not hang on a draw. By hand, new ones each run.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("hand", deadline=None)
CONTINUOUS_INTEGRATION = bool(os.environ.get("CI"))
settings.load_profile("ci" if CONTINUOUS_INTEGRATION else "hand")

# Here is measured by the machine's clock, or waited for processes that import torch. One pause of a shared machine may
# fail one of these thousands of tests: in continuous integration it is run once more, and the summary says so (RERUN).
ON_THE_MACHINES_CLOCK = ("app", "benchmarks", "probes/gpu", "probes/microtrain")
FREE_OF_IT = Path("app/advisor")  # pure functions

# A shell's background job ignores Ctrl-C, and hands that on: commands that tests start and interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    if CONTINUOUS_INTEGRATION:
        for item in items:
            folder = item.path.parent.relative_to(Path(__file__).parent)
            clocked = any(folder.is_relative_to(each) for each in ON_THE_MACHINES_CLOCK)
            if clocked and not folder.is_relative_to(FREE_OF_IT):
                item.add_marker(pytest.mark.flaky(reruns=1))
