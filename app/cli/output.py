"""What commands print on standard output: a JSON document for programs, or text and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 120  # columns where standard output is no terminal and COLUMNS does not say
WRAPPED_WIDTH = 24  # characters that a column of prose needs at least
GAP = 3  # characters between columns: rich pads each by one and divides them by one


def print_json(document: Any) -> None:
    """The document and nothing else. Raises ValueError on NaN and infinities, which are no JSON."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


@dataclass(frozen=True, slots=True)
class Column:
    """needed: kept where not every column has room. prose: sentences, which may well wrap."""

    title: str
    align: Literal["left", "right"] = "left"
    needed: bool = True
    prose: bool = False


def print_text(text: str = "") -> None:
    """A paragraph, wrapped to the terminal."""
    _console().print(text, markup=False, highlight=False, emoji=False)


def print_heading(text: str) -> None:
    _console().print(text, markup=False, highlight=False, emoji=False, style="bold")


def print_lines(lines: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Lines of (text, rich style), wrapped to the terminal; without colours where there are none."""
    from rich.text import Text

    console = _console()
    for line in lines:
        console.print(Text.assemble(*line))


def line_width() -> int:
    """How many characters a line has room for."""
    return _console().width


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table without frame. Where not all has room, columns that are not needed go, the last one first; nothing is
    cut off."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console()
    shown = columns_with_room(columns, rows, console.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index in shown:
        table.add_column(columns[index].title, justify=columns[index].align, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[index]) for index in shown))
    _print_without_trailing_blanks(console, table)
    print_text()


def columns_with_room(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Indices of the columns to show in `width` characters."""
    shown = list(range(len(columns)))
    widths = [_natural_width(column, [row[index] for row in rows]) for index, column in enumerate(columns)]
    for index in reversed(range(len(columns))):
        if sum(widths[kept] + GAP for kept in shown) - GAP <= width:
            break
        if not columns[index].needed:
            shown.remove(index)
    return shown


def _natural_width(column: Column, cells: Sequence[str]) -> int:
    longest = max(map(len, (column.title, *cells)))
    return min(longest, WRAPPED_WIDTH) if column.prose else longest


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Name and value, one pair a line, values aligned."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name, style="dim"), Text(value))
    _print_without_trailing_blanks(_console(), table)


def print_bullets(sentences: Sequence[str]) -> None:
    """One paragraph a sentence, wrapped and indented."""
    width = _console().width
    for sentence in sentences:
        click.echo(fill(sentence, width, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))


def _print_without_trailing_blanks(console: Console, renderable: Any) -> None:
    """rich fills every line up to the table's width, which is in the way when a line is copied."""
    with console.capture() as captured:
        console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=True)


def _console() -> Console:
    """rich itself honours NO_COLOR, COLUMNS and a terminal's width; imported here, where a table is printed."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    if not console.is_terminal and not _columns_given():
        console.width = PIPED_WIDTH
    return console


def _columns_given() -> bool:
    import os

    return os.environ.get("COLUMNS", "").isdigit()


def print_verbatim(text: str) -> None:
    """Text to copy: never wrapped, never styled."""
    click.echo(text.rstrip("\n"))
