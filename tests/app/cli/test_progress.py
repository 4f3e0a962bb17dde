"""Progress where standard error is a log."""

import io

import pytest

from app.cli.progress import LINE_SECONDS, SparseLines, show_progress


def test_a_log_gets_a_line_now_and_then_only() -> None:
    now = [0.0]
    stream = io.StringIO()
    report = SparseLines(stream, clock=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        report(second / 25, "measuring")
    assert stream.getvalue().splitlines() == [" 40%  measuring", " 80%  measuring"]
    assert LINE_SECONDS == 10


def test_work_that_is_quickly_over_leaves_the_log_empty() -> None:
    stream = io.StringIO()
    SparseLines(stream, clock=lambda: 0.0)(1.0, "done")
    assert stream.getvalue() == ""


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(quiet=True) as report:
        report(0.5, "half")
    assert capsys.readouterr() == ("", "")
