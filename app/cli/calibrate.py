"""`crosspoint calibrate`."""

from __future__ import annotations

from collections import Counter
from statistics import median
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
    """How many points each constant has over all plans, and the middle of their spreads (10th to 90th percentile)."""
    from app.cli.output import Column

    counts = Counter(point.constant for point in profile.points)
    spreads: dict[str, list[float]] = {}
    for point in profile.points:
        if len(point.seconds.samples) > 1 and point.seconds.median > 0:
            spread = (point.seconds.high - point.seconds.low) / point.seconds.median
            spreads.setdefault(point.constant, []).append(spread)
    rows = [
        [constant, str(count), format_share(median(spreads[constant])) if constant in spreads else "one sample each"]
        for constant, count in sorted(counts.items())
    ]
    return (Column("constant"), Column("points", "right"), Column("spread", "right")), rows


def _noise_text(name: str, value: float | None) -> str:
    return f"{value:.2f}" if value is not None and name == "load_average" else format_share(value)
