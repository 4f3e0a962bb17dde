"""Whose a stored job is."""

from __future__ import annotations

from app.job_owners import is_alive, this_owner


def test_a_process_is_told_from_another_of_its_number() -> None:
    mine = this_owner("a machine")
    assert is_alive(mine)
    assert not is_alive({**mine, "started": "1"})
    assert not is_alive({**mine, "pid": 2**22 + 1})
    assert not is_alive({})
