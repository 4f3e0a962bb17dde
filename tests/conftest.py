"""What all tests share."""

import os
import signal
from collections.abc import Iterable

import pytest
from hypothesis import settings

# In continuous integration the same examples every time: a landing does not hang on a draw. By hand, new ones each run.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("hand", deadline=None)
CONTINUOUS_INTEGRATION = bool(os.environ.get("CI"))
settings.load_profile("ci" if CONTINUOUS_INTEGRATION else "hand")

# Many tests measure by the machine's clock, or wait for processes that import torch. A pause of a shared machine may
# fail one of thousands: in continuous integration it is run once more, and the summary says so (RERUN).
TRIES_MORE = 1

# A shell's background job ignores Ctrl-C, and hands that on: commands that tests start and interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    if CONTINUOUS_INTEGRATION:
        for item in items:
            item.add_marker(pytest.mark.flaky(reruns=TRIES_MORE))
