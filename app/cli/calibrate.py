"""`crosspoint calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from app.cli.units import format_seconds, format_share

if TYPE_CHECKING:
    from app.cli.progress import Report
    from app.service import Crosspoint
    from probes.profile import Profile


@click.command()
@click.option(
    "--effort",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="quick: within 30 s on two cores; full: minutes, more points and repeats.",
)
@click.option("--device", "devices", multiple=True, metavar="DEVICE", help="cpu, cuda:0, …; repeatable. Default: all.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON and nothing else.")
def command(effort: str, devices: tuple[str, ...], as_json: bool) -> None:
    """Measure this machine's constants once, and keep them as a profile.

    `recommend --effort instant` answers from the profile.
    """
    from app.cli.output import print_json
    from app.cli.session import run_with_service

    async def work(service: Crosspoint, report: Report) -> Profile:
        return await service.calibrate(effort, devices=devices, on_progress=report)

    profile = run_with_service(work)
    if as_json:
        print_json(profile.to_json())
    else:
        show_profile(profile)


def show_profile(profile: Profile) -> None:
    """What was measured, and how far it can be trusted."""
    from app.cli.output import print_heading, print_pairs, print_table

    print_heading(f"Profile {profile.name}: {profile.machine}")
    print_pairs(
        [
            ("measured in", format_seconds(profile.duration_seconds)),
            ("points", f"{len(profile.points)} and {len(profile.networks)} whole networks"),
            ("noise", ", ".join(f"{name} {_noise_text(name, value)}" for name, value in profile.noise.items())),
            ("software", ", ".join(f"{name} {version}" for name, version in profile.software.items())),
        ]
    )
    print_table(*_constants_table(profile))


def _constants_table(profile: Profile) -> tuple[Any, Any]:
    """How many points each constant has on each plan, with the spread among them."""
    from app.cli.output import Column

    groups: dict[tuple[str, str], list[float]] = {}
    for point in profile.points:
        seconds = point.seconds
        spread = (seconds.high - seconds.low) / seconds.median if seconds.median else 0.0
        groups.setdefault((point.constant, point.plan.label), []).append(spread)
    rows = [
        [constant, plan, str(len(spreads)), format_share(sorted(spreads)[len(spreads) // 2])]
        for (constant, plan), spreads in sorted(groups.items())
    ]
    return (Column("constant"), Column("plan"), Column("points", "right"), Column("spread", "right")), rows


def _noise_text(name: str, value: float | None) -> str:
    return f"{value:.2f}" if value is not None and name == "load_average" else format_share(value)
