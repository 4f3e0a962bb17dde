"""A map as a picture: letters and colours in a terminal, and an SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.sax.saxutils import escape

from app.advisor.curves.winners import Cell
from app.cli.output import line_width, print_bullets, print_heading, print_lines, print_text
from app.cli.units import format_count
from app.mapping import Map, Row
from probes.workload.description import Plan

# By Okabe and Ito (jfly.uni-koeln.de/color), told apart by people who do not see every colour; letters say the same.
COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNKNOWN, TOO_BIG, REFUSED = "?", "-", "!"
CELL, LEFT, TOP, LINE = 44, 150, 60, 22  # pixels
CHARACTER = 8  # pixels of one, in bold
AXIS = "batch size from left to right"


def show_map(drawn: Map) -> None:
    """Batches from left to right, widths from top to bottom; a letter for each plan, small where it is a close call."""
    print_heading(_title(drawn))
    room = line_width()
    labels = [_row_label(row) for row in drawn.rows]
    is_whole = _left(labels) + _wide(drawn) * len(drawn.batch_sizes) <= room
    _show_cells(drawn, labels if is_whole else [_of_width(row) for row in drawn.rows], room)
    print_text()
    for place, plan in enumerate(drawn.plans):
        print_lines([[(f"{_letter(place)}  ", f"bold {_colour(place)}"), (plan.label, "")]])
    signs = f"{UNKNOWN}: no time is known. {TOO_BIG}: nothing fits. {REFUSED}: torch refuses it."
    print_text(f"A small letter: others cannot be told from it. {signs}{_say_bases(drawn)}")
    left_out = [] if is_whole else _list_parameters(drawn)
    beneath = [*left_out, *_why_rows_miss(drawn), *_why_cells_miss(drawn), *_reasons(drawn)]
    if beneath:
        print_text()
        print_bullets(beneath)


def _show_cells(drawn: Map, labels: Sequence[str], room: int) -> None:
    """room: characters of a line. Batches that it does not do for stand in further blocks beneath."""
    left, wide = _left(labels), _wide(drawn)
    columns = max(1, (room - left) // wide)
    for start in range(0, len(drawn.batch_sizes), columns):
        if start:
            print_text()
        sizes = drawn.batch_sizes[start : start + columns]
        print_lines([[("batch".rjust(left - 2) + "  ", "dim"), *((str(size).rjust(wide), "dim") for size in sizes)]])
        for row, label in zip(drawn.rows, labels, strict=True):
            shown = row.cells[start : start + columns]
            cells = [(letter_of(drawn, cell).rjust(wide), _style(drawn, cell)) for cell in shown]
            print_lines([[(label.ljust(left), "dim"), *cells]])


def _left(labels: Sequence[str]) -> int:
    """Characters before the first cell."""
    return max(map(len, ("batch", *labels))) + 2


def _wide(drawn: Map) -> int:
    """Characters of a cell."""
    return max(len(str(size)) for size in drawn.batch_sizes) + 1


def _title(drawn: Map) -> str:
    where = f", on {drawn.profile}" if drawn.profile is not None else ""
    return f"Which plan wins: {drawn.workload.model.name}, {drawn.workload.mode}{where}"


def _say_bases(drawn: Map) -> str:
    counts = Counter(cell.basis for row in drawn.rows for cell in row.cells if cell.basis is not None)
    return f" Times: {', '.join(f'{count} {basis}' for basis, count in counts.most_common())}." if counts else ""


def _why_rows_miss(drawn: Map) -> list[str]:
    widths: dict[str, list[float]] = {}
    for row in drawn.rows:
        if row.why_not:
            widths.setdefault(row.why_not, []).append(row.width)
    return [f"{_of_widths(where)}: {why}" for why, where in widths.items()]


def _why_cells_miss(drawn: Map) -> list[str]:
    """But for those that are too big, the more so the larger the batch, and where a reason says it of all."""
    widths: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for row in drawn.rows:
        for why, sizes in _why_cells_of(row).items():
            widths.setdefault((why, tuple(sizes)), []).append(row.width)
    every = len([row for row in drawn.rows if row.cells])
    return [
        f"{'Batch' if len(where) == every else f'{_of_widths(where)}, batch'} {', '.join(map(str, sizes))}: {why}"
        for (why, sizes), where in widths.items()
    ]


def _why_cells_of(row: Row) -> dict[str, list[int]]:
    is_told = any(reason.code == "no-calibration" for reason in row.reasons)
    sizes: dict[str, list[int]] = {}
    for cell in row.cells:
        if cell.why_not is not None and (cell.cannot_run or (cell.fits is not False and not is_told)):
            sizes.setdefault(cell.why_not, []).append(cell.batch_size)
    return sizes


def _reasons(drawn: Map) -> list[str]:
    every = len([row for row in drawn.rows if row.cells])
    return [
        told.reason.text if len(told.widths) == every else f"{_of_widths(told.widths)}: {told.reason.text}"
        for told in drawn.reasons
    ]


def _of_widths(widths: Sequence[float]) -> str:
    return f"Width {', '.join(f'{width:g}' for width in widths)}"


def letter_of(drawn: Map, cell: Cell) -> str:
    if cell.plan is None:
        return REFUSED if cell.cannot_run else TOO_BIG if cell.fits is False else UNKNOWN
    letter = _letter(_place(drawn, cell.plan))
    return letter.lower() if cell.close else letter


def _row_label(row: Row) -> str:
    size = f", {_parameters(row.all_parameters)}" if row.all_parameters is not None else ""
    return f"{_of_width(row)}{size}"


def _of_width(row: Row) -> str:
    return f"width {row.width:g}"


def _parameters(count: int) -> str:
    return f"{format_count(count)} parameters"


def _list_parameters(drawn: Map) -> list[str]:
    """What labels had no room for."""
    return [
        f"{_of_widths([row.width])}: {_parameters(row.all_parameters)}."
        for row in drawn.rows
        if row.all_parameters is not None
    ]


def _place(drawn: Map, plan: Plan) -> int:
    return next(place for place, known in enumerate(drawn.plans) if known.key == plan.key)


def _letter(place: int) -> str:
    return LETTERS[place % len(LETTERS)]


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _style(drawn: Map, cell: Cell) -> str:
    return "dim" if cell.plan is None else f"bold {_colour(_place(drawn, cell.plan))}"


def write_svg(drawn: Map) -> str:
    """A picture of its own, without script, font or anything from elsewhere."""
    title = _title(drawn)
    plans = max((len(plan.label) for plan in drawn.plans), default=0)
    lines = (CHARACTER * len(title) - LEFT, CHARACTER * (plans + 3) + 22, CHARACTER * len(AXIS))
    width = LEFT + max(CELL * len(drawn.batch_sizes), *lines) + 20
    legend = TOP + CELL * len(drawn.rows) + 40
    height = legend + LINE * (len(drawn.plans) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(10, 24, title, weight="bold"),
    ]
    for column, size in enumerate(drawn.batch_sizes):
        parts.append(_text(LEFT + CELL * column + CELL / 2, TOP - 10, str(size), anchor="middle", small=True))
    for line, row in enumerate(drawn.rows):
        parts.append(_text(LEFT - 10, TOP + CELL * line + CELL / 2 + 5, _of_width(row), anchor="end"))
        parts += [_square(drawn, cell, column, line) for column, cell in enumerate(row.cells)]
    parts.append(_text(LEFT, TOP + CELL * len(drawn.rows) + 20, AXIS, small=True))
    for place, plan in enumerate(drawn.plans):
        y = legend + LINE * place
        parts.append(f'<rect x="{LEFT}" y="{y - 12}" width="14" height="14" fill="{_colour(place)}"/>')
        parts.append(_text(LEFT + 22, y, f"{_letter(place)}  {plan.label}"))
    return "\n".join([*parts, "</svg>", ""])


def _square(drawn: Map, cell: Cell, column: int, line: int) -> str:
    x, y = LEFT + CELL * column, TOP + CELL * line
    fill = "#eeeeee" if cell.plan is None else _colour(_place(drawn, cell.plan))
    opacity = "0.55" if cell.close else "1"
    square = f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="{fill}" fill-opacity="{opacity}"/>'
    return square + _text(x + CELL / 2 - 1, y + CELL / 2 + 4, letter_of(drawn, cell), anchor="middle")


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal", small: bool = False) -> str:
    size = ' font-size="11"' if small else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}"{size}>{escape(words)}</text>'
