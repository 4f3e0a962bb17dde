"""`crosspoint calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from app.cli.endings import CommandFailed, ExitCode

if TYPE_CHECKING:
    from app.cli.progress import Report
    from app.keeping import Kept
    from app.service import Crosspoint
    from probes.profile import Profile


@click.command()
@click.option(
    "--effort",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="quick: within 30 s on two cores; full: within 60 s, more points and repeats.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="DEVICE",
    help="cpu, cuda:0, …, or cuda for every one; repeatable. Default: the CPU and one card of each kind.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON and nothing else.")
def command(effort: str, devices: tuple[str, ...], as_json: bool) -> None:
    """Measure this machine's constants, and keep them as a profile: means over the last four calibrations.

    `recommend --effort instant` answers from the profile. `crosspoint profile remove NAME` begins anew.
    """
    from app.cli.output import print_json
    from app.cli.profile_view import show_calibrated, show_profile, show_what_makes_it_surer
    from app.cli.session import run_with_service
    from app.measurable import find_surveyed_devices
    from app.profiles import newest_devices

    async def work(service: Crosspoint, report: Report) -> tuple[Kept[Profile], dict[str, bool]]:
        here = find_surveyed_devices(await service.survey_for_plans(report), devices)
        kept = await service.calibrate_and_keep(effort, here, on_progress=report)
        return kept, await newest_devices(service, kept.value) if kept.trouble is None else {}

    kept, counting = run_with_service(work)
    profile = kept.value
    if as_json:
        print_json(profile.to_json())
    else:
        show_profile(profile)
        show_calibrated(counting)
        show_what_makes_it_surer(profile.calibrations)
    if kept.trouble is not None:
        raise CommandFailed(f"{kept.trouble} Nothing answers from it later.", ExitCode.FAULT)
