"""What all tests share."""

import os
import signal

from hypothesis import settings

# In continuous integration the same examples every time: a landing does not hang on a draw. By hand, new ones each run.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("hand", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "hand")

# A shell's background job ignores Ctrl-C, and hands that on: commands that tests start and interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
