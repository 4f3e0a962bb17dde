"""`crosspoint recommend MODEL`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from app.cli.endings import ExitCode
from app.cli.numbers import FloatRange
from app.cli.workload_options import EFFORTS, make_request, with_workload_options
from probes import bounds

if TYPE_CHECKING:
    from app.advisor.recommendation import Reason, Recommendation
    from app.cli.progress import Report
    from app.service import Crosspoint


@click.command()
@with_workload_options
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    default="quick",
    show_default=True,
    help="instant: from what is known, without measuring; quick: up to 10 s of real steps; thorough: up to 60 s.",
)
@click.option(
    "--time-limit",
    "time_limit_seconds",
    type=FloatRange(0, bounds.MAX_TIME_LIMIT_SECONDS, min_open=True),
    help="Seconds of measuring, below what the effort allows; a first step that has begun is waited for, up to 30 s "
    "more.",
)
@click.option("--profile", help="Answer for another machine: the name of its profile.")
@click.pass_context
def command(
    ctx: click.Context, /, effort: str, time_limit_seconds: float | None, profile: str | None, **options: Any
) -> None:
    """Say where MODEL should train, with which settings, and why.

    MODEL is a name that `crosspoint models` lists, a .json file (layers, a Hugging Face config.json, or a summary),
    a folder that has a config.json, such JSON itself, - for JSON on standard input, or module:function, your own Python
    that returns a torch module.
    """
    from app.answering.answer_notes import NOT_SAVED
    from app.cli.output import print_json
    from app.cli.recommend_view import show_recommendation
    from app.cli.session import run_with_service

    if effort == "instant" and time_limit_seconds is not None:
        raise click.UsageError(
            "--time-limit bounds measuring, and effort instant measures nothing: leave one of them out."
        )
    request = make_request(options, effort=effort, time_limit_seconds=time_limit_seconds, profile=profile)

    async def work(service: Crosspoint, report: Report) -> Recommendation:
        return await service.recommend(request, on_progress=report)

    answer = run_with_service(work)
    if options["as_json"]:
        print_json({**answer.to_json(), "saved": all(reason.code != NOT_SAVED for reason in answer.reasons)})
    else:
        show_recommendation(answer.to_json())
    if answer.nothing_fits:
        ctx.exit(ExitCode.NOTHING_FITS)
    if measurement_failed(answer.reasons):
        ctx.exit(ExitCode.MEASUREMENT_FAILED)


def measurement_failed(reasons: Sequence[Reason]) -> bool:
    """Real steps were asked for and none came, of what can be measured: a summary, a capture and another machine
    cannot."""
    return any(reason.code == "not-measured" and reason.evidence["possible"] for reason in reasons)
