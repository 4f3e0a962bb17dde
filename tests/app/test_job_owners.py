"""Whose a stored job is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from app.job_owners import LONGEST_SECONDS, is_alive, this_owner
from app.settings import Settings
from probes.bounds import MAX_TIME_LIMIT_SECONDS


def test_no_job_of_another_machine_is_given_up_while_it_may_wait_or_run() -> None:
    settings = Settings()
    assert (1 + settings.queue_length) * (MAX_TIME_LIMIT_SECONDS + settings.grace_seconds) < LONGEST_SECONDS


def test_a_process_is_told_from_another_of_its_number() -> None:
    mine = this_owner("a machine")
    assert is_alive(mine)
    assert not is_alive({**mine, "started": "1"})
    assert not is_alive({**mine, "pid": 2**22 + 1})
    assert not is_alive({})


OWNING = "import json, app.job_owners as a; print(json.dumps(a.this_owner('here')), flush=True); input()"


def test_a_process_that_was_killed_and_that_nobody_waits_for_is_none() -> None:
    """As in a container whose first process waits for nobody."""
    command = [sys.executable, "-c", OWNING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = json.loads(process.stdout.readline())
        assert is_alive(owner)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie by then
        assert not is_alive(owner)
