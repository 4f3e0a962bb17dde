"""Tables and JSON on standard output."""

import json

import pytest

from app.cli.output import Column, print_json, print_table, print_text, print_verbatim

COLUMNS = (Column("plan"), Column("one step", "right"), Column("a column that can be missed", needed=False))
ROWS = [["cpu fp32, 2 threads", "31 ms (29 to 34)", "nice to know"]]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_json_is_one_document_with_characters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"verdict": "31 µs"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"verdict": "31 µs"}
    assert "µ" in out


def test_what_is_no_json_is_refused_here_and_not_at_the_reader() -> None:
    with pytest.raises(ValueError):
        print_json({"step_seconds": float("nan")})


def test_a_piped_table_has_no_colour_and_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "nice to know" in out


def test_a_narrow_terminal_loses_columns_but_no_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    print_table(COLUMNS, ROWS)
    out = capsys.readouterr().out
    assert "nice to know" not in out
    assert max(map(len, out.splitlines())) <= 34
    assert {"31", "ms", "cpu", "fp32,"} <= set(out.split())


def test_no_color_is_respected_where_colour_is_forced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(COLUMNS, ROWS)
    assert "\x1b[3" not in capsys.readouterr().out


def test_text_from_elsewhere_is_never_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("[red]layers[3][/red] :smile:")
    print_table((Column("name"),), [["[bold]x[/bold]"]])
    out = capsys.readouterr().out
    assert "[red]layers[3][/red] :smile:" in out
    assert "[bold]x[/bold]" in out


def test_a_snippet_is_never_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_verbatim("x = " + "1 + " * 30 + "1\n")
    assert len(capsys.readouterr().out.splitlines()) == 1
