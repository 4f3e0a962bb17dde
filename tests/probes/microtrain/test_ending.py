"""A process that ends with all it started has waited for them: what they computed is known to whoever started it."""

import os
import subprocess
import sys

import psutil
import pytest

BURNING = "import os, time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n"
PROGRAM = f"""
import subprocess, sys, time
from probes.microtrain import ending
ending.WAIT_SECONDS = 60.0  # however slow the machine is
ending.adopt_orphans()
# A child that ends at once and leaves one that computed and sleeps: nobody waits for it.
middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
burning = {BURNING!r} + "print(os.getpid(), flush=True)\\ntime.sleep(60)\\n"
left = subprocess.Popen([sys.executable, "-c", middle, burning], stdout=subprocess.PIPE)
print(int(left.stdout.readline()), flush=True)
ending.end_now()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_what_orphans_computed_is_counted() -> None:
    before = sum(os.times()[2:4])
    ran = subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120, stdout=subprocess.PIPE)
    assert sum(os.times()[2:4]) - before >= 0.4
    assert not psutil.pid_exists(int(ran.stdout))


def test_one_without_children_ends_at_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from probes.microtrain.ending import end_now; end_now()"], timeout=30
    )
    assert ended.returncode == 0
