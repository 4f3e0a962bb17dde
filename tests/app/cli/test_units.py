"""Numbers as people read them."""

import pytest

from app.cli.units import format_bytes, format_count, format_seconds, format_share, format_timing


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.031, "31 ms"),
        (1.52, "1.52 s"),
        (0.0000007742, "774 ns"),
        (0.000116, "116 µs"),
        (0.99999, "1 s"),
        (260, "4 min 20 s"),
        (7199.6, "2 h"),
        (9000, "2.5 h"),
        (267840, "3.1 days"),
        (0, "0 s"),
        (-0.02, "-20 ms"),
        (None, "?"),
    ],
)
def test_a_time_has_three_digits_and_the_unit_that_suits(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (9_100_000_000, "9.1 GB"),
        (999_999, "1 MB"),
        (12_000, "12 kB"),  # as reasons write it (app.advisor.explanations.words)
        (512, "512 B"),
        (0, "0 B"),
        (None, "?"),
        (5e15, "5 PB"),
        (-2e9, "-2 GB"),
    ],
)
def test_a_size_is_in_decimal_units(size: float | None, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (83, "83"),
        (9_999, "9999"),
        (25_557_032, "25.6 million"),
        (7e12, "7 trillion"),
        (0.25, "0.25"),
        (8.66e-5, "0.000087"),
        (None, "?"),
    ],
)
def test_a_count_is_spoken_from_ten_thousand_on(count: float | None, text: str) -> None:
    assert format_count(count) == text


def test_a_share_that_is_there_is_never_shown_as_nothing() -> None:
    assert format_share(0.00001) == "<0.1 %"
    assert format_share(0.0) == "0.0 %"
    assert format_share(0.0421) == "4.2 %"
    assert format_share(0.5) == "50 %"


def test_a_timing_shows_its_spread_in_the_median_s_unit_where_all_share_it() -> None:
    assert format_timing({"median": 0.031, "low": 0.029, "high": 0.034}) == "31 ms (29 to 34)"
    assert format_timing({"median": 774e-9, "low": 676e-9, "high": 1.31e-6}) == "774 ns (676 ns to 1.31 µs)"
    assert format_timing({"median": 1.0, "low": 1.0, "high": 1.0}) == "1 s"
    assert format_timing(None) == "?"
