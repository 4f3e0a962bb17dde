"""What all tests share."""

import os

from hypothesis import settings

# In continuous integration the same examples every time: a landing does not hang on a draw. By hand, new ones each run.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("hand", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "hand")
