"""How a process ended, in words."""

from __future__ import annotations

import pytest

from app.lab.child_endings import NOT_RETURNED, say_killed, say_overdue


@pytest.mark.parametrize(
    ("kind", "words"),
    [("calibrate", "own model"), ("trace", "smaller model"), ("measure", "smaller batch"), ("prepare", "more memory")],
)
def test_what_was_killed_is_told_what_would_help_and_only_what_is_known(kind: str, words: str) -> None:
    by_the_kernel, by_another, unknown = (say_killed(kind, *kills) for kills in ((3, 4), (3, 3), (None, None)))
    assert "most likely by the kernel" in by_the_kernel
    assert "not by the kernel" in by_another
    assert "perhaps by the kernel" in unknown
    assert "if so" in unknown
    assert "if such a program" in by_another
    assert all(words in sentence for sentence in (by_the_kernel, by_another, unknown))


def test_a_trace_that_took_too_long_may_have_been_beside_others() -> None:
    assert "quieter machine" in say_overdue("trace", 60.0)


def test_a_trace_that_waited_for_the_user_s_function_is_said_to_have_done_so() -> None:
    told = say_overdue("trace", 60.0, calling=True)
    assert NOT_RETURNED in told
    assert "machine" not in told
