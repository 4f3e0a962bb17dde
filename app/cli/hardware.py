"""`crosspoint hardware`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from probes.hardware import Survey


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the survey as JSON, as GET /hardware answers.")
@click.option(
    "--sysroot",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read /proc, /sys and /cgroup below this folder: a captured machine.",
)
def command(as_json: bool, sysroot: Path | None) -> None:
    """Show what this machine is, and what stands in the way of training on it."""
    from app.cli.hardware_view import show_survey
    from app.cli.output import print_json

    document = read_survey(sysroot).to_json()
    if as_json:
        print_json(document)
    else:
        show_survey(document)


def read_survey(sysroot: Path | None) -> Survey:
    """A fresh survey of the machine below sysroot, or CROSSPOINT_SYSROOT, or of this one."""
    from app.settings import Settings
    from probes.survey import take_survey

    settings = Settings.from_environment(sysroot=sysroot)
    return take_survey(settings.sysroot, deadline_seconds=settings.survey_seconds)
