"""`crosspoint map MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.endings import CommandFailed, ExitCode
from app.cli.workload_options import EFFORTS, WORKLOAD_OPTIONS, make_request
from probes import bounds

if TYPE_CHECKING:
    from app.cli.progress import Report
    from app.mapping import Map
    from app.service import Crosspoint

MOST_WIDTHS = 16


def _read_widths(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """Numbers above 0, separated by commas."""
    try:
        widths = tuple(float(word) for word in value.split(","))
    except ValueError:
        raise click.BadParameter("Widths are numbers separated by commas, such as 0.5,1,2.") from None
    if len(widths) > MOST_WIDTHS or not all(0.001 <= width <= 1000 for width in widths):
        raise click.BadParameter(f"At most {MOST_WIDTHS} widths, from 0.001 to 1000, are drawn.")
    return widths


def _with_options(command: Any) -> Any:
    """MODEL and the workload's options but for its batch size, which the map goes over."""
    for option in reversed(WORKLOAD_OPTIONS[1:]):
        command = option(command)
    return click.argument("model")(command)


@click.command()
@_with_options
@click.option(
    "--largest-batch",
    "batch_size",
    type=click.IntRange(1, bounds.MAX_BATCH_SIZE),
    default=4096,
    show_default=True,
    help="Batches are 1, 2, 4, … up to this.",
)
@click.option(
    "--widths",
    callback=_read_widths,
    default="0.25,0.5,1,2,4",
    show_default=True,
    help="Factors of the inner sizes.",
)
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    default="instant",
    show_default=True,
    help="instant: predicted; quick and thorough measure each width first, 10 or 60 s at most.",
)
@click.option("--profile", help="Draw it for another machine: the name of its profile.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the picture to this file as well.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    widths: tuple[float, ...],
    effort: str,
    profile: str | None,
    svg: Path | None,
    **options: Any,
) -> None:
    """Show which plan wins over batch and width of MODEL.

    A width of 2 doubles every inner size: of a network that is written as layers the outputs of linear, convolutional
    and embedding layers and the hidden sizes of recurrent ones, of a Hugging Face config its hidden and intermediate
    sizes, with more heads of the same size. What goes in and what comes out stays. MODEL as in recommend.
    """
    from app.cli.files import check_place, write_whole
    from app.cli.map_view import show_map, write_svg
    from app.cli.output import print_json
    from app.cli.recommend import measurement_failed
    from app.cli.session import run_with_service
    from app.mapping import draw_map

    if svg is not None:
        check_place(svg)
    request = make_request(options, effort=effort, profile=profile)

    async def work(service: Crosspoint, report: Report) -> Map:
        return await draw_map(service, request, widths, report)

    drawn = run_with_service(work)
    if options["as_json"]:
        print_json(drawn.to_json())
    else:
        show_map(drawn)
    if svg is not None:
        write_whole(svg, write_svg(drawn).encode())
    check_drawn(drawn)
    if measurement_failed([told.reason for told in drawn.reasons]):
        ctx.exit(ExitCode.MEASUREMENT_FAILED)


def check_drawn(drawn: Map) -> None:
    """Raises CommandFailed where no cell has a plan, and none would have one if more were known; before that what went
    wrong at a width, at which a plan may fit. A program has had its document by then, and a person the picture."""
    cells = [cell for row in drawn.rows for cell in row.cells]
    if any(cell.may_run for cell in cells):
        return
    failures = [row.failure for row in drawn.rows if row.failure is not None]
    if failures:
        raise failures[-1]
    too_big = [cell.batch_size for cell in cells if not cell.cannot_run]
    if cells and not too_big:
        return  # torch refuses them all: the picture says so, as a recommendation would
    if too_big:
        said = f"Nothing fits at any batch size from {min(too_big)} on: every plan asked for needs more memory."
    else:
        said = f"No width works out. {drawn.rows[-1].why_not}"
    raise CommandFailed(said, ExitCode.NOTHING_FITS)
