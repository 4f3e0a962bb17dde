"""`crosspoint measure MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from app.cli.numbers import FloatRange
from app.cli.workload_options import make_request, with_workload_options
from probes import bounds

if TYPE_CHECKING:
    from app.cli.progress import Report
    from app.service import Crosspoint
    from probes.measurement import Measurement

DEFAULT_SECONDS = (
    20.0  # about three seconds a plan on a machine of six plans: enough for steady medians of small models
)


@click.command()
@with_workload_options
@click.option(
    "--seconds",
    type=FloatRange(0, bounds.MAX_TIME_LIMIT_SECONDS, min_open=True),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="Time to spend, start-up of the measuring process aside.",
)
def command(seconds: float, **options: Any) -> None:
    """Run MODEL's real steps under every plan, interleaved, and show times, spread and overheads.

    MODEL is given as for `crosspoint recommend`.
    """
    from app.cli.measure_view import show_measurements
    from app.cli.output import print_json
    from app.cli.session import run_with_service

    request = make_request(options)

    async def work(service: Crosspoint, report: Report) -> list[Measurement]:
        return await service.measure(request, seconds=seconds, on_progress=report)

    documents = [measurement.to_json() for measurement in run_with_service(work)]
    if options["as_json"]:
        print_json({"measurements": documents})
    else:
        show_measurements(documents)
    fail_without_times(documents)


def fail_without_times(documents: list[dict[str, Any]]) -> None:
    """Exit codes 3 and 4, once the table has been shown: nothing fitted, or nothing ran."""
    from app.cli.endings import CommandFailed, ExitCode

    outcomes = {document["outcome"] for document in documents}
    if "ok" in outcomes:
        return
    if outcomes == {"out-of-memory"}:
        raise CommandFailed("No plan fits into memory at this batch size.", ExitCode.NOTHING_FITS)
    raise CommandFailed("No plan could be measured.", ExitCode.MEASUREMENT_FAILED)
