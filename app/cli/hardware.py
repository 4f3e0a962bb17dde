"""`crosspoint hardware`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.endings import fail_usage
from app.cli.folder_option import Folder

if TYPE_CHECKING:
    from app.service import Crosspoint
    from probes.hardware import Survey

ANYBODY_READS = 0o644  # Node Feature Discovery runs as another user than who writes its file


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the survey as JSON, as GET /hardware answers.")
@click.option(
    "--sysroot",
    type=Folder(),
    help="Read /proc, /sys and /cgroup below this folder: a captured machine.",
)
@click.option(
    "--labels", is_flag=True, help="Print node labels, key=value a line, for Node Feature Discovery's features.d."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="With --labels: the file to write, whole or not at all; - for standard output.",
)
@click.option("--history", is_flag=True, help="Show when this machine changed, and what had changed.")
def command(as_json: bool, sysroot: Path | None, labels: bool, output: Path | None, history: bool) -> None:
    """Show what this machine is, and what stands in the way of training on it."""
    from app.cli.checked_settings import checked_settings
    from app.cli.hardware_view import show_survey
    from app.cli.output import print_json

    if labels + (history or as_json) > 1:
        fail_usage("Choose one of --json, --labels and --history (--history goes with --json).")
    if output is not None and not labels:
        fail_usage("--output goes with --labels.")
    if history:
        show_history(sysroot, as_json)
        return
    if labels:
        print_labels(sysroot, output)
        return
    document = read_survey(sysroot).to_json()
    if as_json:
        print_json(document)
    checked_settings(sysroot)  # a program has had each probe's reason by now
    if not as_json:
        show_survey(document)


def print_labels(sysroot: Path | None, output: Path | None) -> None:
    from app.cli.checked_settings import checked_settings
    from app.cli.files import write_whole
    from probes.labels import make_labels, write_labels

    checked_settings(sysroot)
    text = write_labels(make_labels(read_survey(sysroot)))
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        write_whole(output, text.encode(), ANYBODY_READS)


def show_history(sysroot: Path | None, as_json: bool) -> None:
    """The state of now is kept before it is shown."""
    from app.cli.hardware_view import show_states
    from app.cli.output import print_json
    from app.cli.session import run_with_service
    from app.settings import Settings

    if sysroot is not None or Settings.from_environment().sysroot != Path("/"):
        fail_usage("A captured machine has no history: leave --sysroot and CROSSPOINT_SYSROOT out.")
    states = run_with_service(lambda service, _: _note_and_read(service), quiet=True)
    if as_json:
        print_json({"history": states})
    else:
        show_states(states)


async def _note_and_read(service: Crosspoint) -> list[dict[str, Any]]:
    from app.keeping import trouble_with

    await trouble_with(service.note_state(await service.survey()))
    return await service.history()


def read_survey(sysroot: Path | None) -> Survey:
    """A fresh survey of the machine below sysroot, or CROSSPOINT_SYSROOT, or of this one."""
    from app.settings import Settings
    from probes.survey import take_survey

    settings = Settings.from_environment(sysroot=sysroot)
    return take_survey(settings.sysroot, deadline_seconds=settings.survey_seconds)
