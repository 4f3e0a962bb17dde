"""Whose a stored job is."""

from __future__ import annotations

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
