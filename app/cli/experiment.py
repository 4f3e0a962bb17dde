"""`crosspoint experiment NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.endings import CommandFailed, ExitCode
from probes import bounds

if TYPE_CHECKING:
    from app.cli.progress import Report
    from app.service import Crosspoint

DEFAULT_EPOCHS = 20_000
DEFAULT_LOG_EVERY = "1,10,100,200,1000,never"
NEVER = "never"


def parse_log_every(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[int | None, ...]:
    """`1,10,never` -> (1, 10, None), each once."""
    return tuple(dict.fromkeys(_parse_every(word.strip()) for word in text.split(",")))


def _parse_every(word: str) -> int | None:
    if word == NEVER:
        return None
    if word.isascii() and word.isdigit() and len(word) < 12 and 1 <= int(word) <= bounds.MAX_LOG_EVERY:
        return int(word)
    raise click.BadParameter("write numbers of epochs from 1 up, and never, separated by commas.")


@click.group()
def command() -> None:
    """Run an experiment that shows where time goes."""


@command.command()
@click.option(
    "--epochs", type=click.IntRange(1, bounds.MAX_EXPERIMENT_EPOCHS), default=DEFAULT_EPOCHS, show_default=True
)
@click.option(
    "--log-every",
    callback=parse_log_every,
    metavar="LIST",
    default=DEFAULT_LOG_EVERY,
    show_default=True,
    help="Epochs between two readings of the loss: one run each.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="DEVICE",
    help="cpu, cuda:0, …, or cuda for every one; repeatable. Default: all.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write an HTML report here: one file that needs no network.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def iris(
    epochs: int, log_every: tuple[int | None, ...], devices: tuple[str, ...], report: Path | None, as_json: bool
) -> None:
    """Train the iris network on every device here, reading the loss more and less often.

    The real data: 120 rows to train on, 30 held out; a 4-10-3 network, cross-entropy, SGD 0.01, the full batch.
    It shows what reading the loss costs, and why time does not grow in line with the number of readings.
    """
    from app.cli.experiment_view import show_experiment
    from app.cli.files import check_place
    from app.cli.output import print_json
    from app.cli.session import run_with_service

    if report is not None:
        check_place(report)

    async def work(service: Crosspoint, progress: Report) -> dict[str, Any]:
        return await service.experiment(
            "iris", epochs=epochs, log_every=log_every, devices=devices, on_progress=progress
        )

    result = run_with_service(work)
    if as_json:
        print_json(result)
    else:
        show_experiment(result)
    if report is not None:
        write_report(result, report)
    _fail_without_runs(result)


def write_report(result: dict[str, Any], path: Path) -> None:
    """Raises CommandFailed when the file cannot be written."""
    from app.cli.files import write_whole
    from app.web.report import render_report

    write_whole(path, render_report(result).encode())
    click.echo(f"The report is in {path}.", err=True)


def _fail_without_runs(result: dict[str, Any]) -> None:
    if all(device["outcome"] != "ok" for device in result["devices"]):
        raise CommandFailed("The experiment ran on no device.", ExitCode.MEASUREMENT_FAILED)
