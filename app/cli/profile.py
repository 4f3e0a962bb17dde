"""`crosspoint profile`: profiles as files that travel."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.endings import fail_usage

if TYPE_CHECKING:
    from app.cli.profile_view import Origin
    from app.cli.progress import Report
    from app.service import Crosspoint
    from probes.profile import Profile

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


@click.group(no_args_is_help=True)
def command() -> None:
    """What calibrations measured: list it, show it, take it to another machine.

    A profile of another machine answers for that machine: `crosspoint recommend MODEL --profile NAME`.
    """


@command.command("list")
@AS_JSON
def list_command(as_json: bool) -> None:
    """List the stored profiles."""
    from app.cli.output import print_json
    from app.cli.profile_view import show_profiles
    from app.cli.session import run_with_service
    from app.profiles import list_profiles

    async def work(service: Crosspoint, _report: Report) -> list[dict[str, object]]:
        return await list_profiles(service)

    rows = run_with_service(work, quiet=True)
    if as_json:
        print_json({"profiles": rows})
    else:
        show_profiles(rows)


@command.command("show")
@click.argument("name", required=False)
@AS_JSON
def show_command(name: str | None, as_json: bool) -> None:
    """Show a profile: what was measured, when, on what, and how far it can be trusted. Without NAME this machine's."""
    from app.cli.output import print_json
    from app.cli.profile_view import show_origin, show_profile

    profile, origin = _find(name)
    if as_json:
        print_json(profile.to_json())
        return
    show_profile(profile, elsewhere=origin.changes is not None)
    show_origin(profile, origin)


@command.command("export")
@click.argument("name")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--as", "other_name", help="The name in the file: a profile is called after its host unless told.")
def export_command(name: str, file: Path | None, other_name: str | None) -> None:
    """Write the profile NAME to FILE, or to standard output (no FILE, or -).

    No user and no serial number stands in it.
    """
    from app.cli.files import write_whole
    from app.profiles import check_other_name

    profile, _ = _find(name)
    profile = replace(profile, name=check_other_name(other_name)) if other_name is not None else profile
    text = json.dumps(profile.to_json(), separators=(",", ":"), allow_nan=False) + "\n"
    if file is None or str(file) == "-":
        click.echo(text, nl=False)
        return
    write_whole(file, text.encode())
    click.echo(f"{len(text) / 1000:.0f} kB in {file.name}.", err=True)


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--name", help="Keep it under this name instead of its own.")
def import_command(file: Path, name: str | None) -> None:
    """Take in a profile from FILE (- for standard input). What cannot be used is refused, and the stored ones stay."""
    from app.cli.session import run_with_service
    from app.keeping import unless_unreadable
    from app.profiles import import_profile

    content = _read(file)

    async def work(service: Crosspoint, _report: Report) -> tuple[str, bool, bool]:
        profile = await import_profile(service, content, name)
        is_here = profile.fingerprint == (await service.survey_tried_twice()).fingerprint
        was_here = await unless_unreadable(service.store.was_seen(profile.fingerprint))
        return profile.name, is_here, bool(was_here)

    kept, is_here, was_here = run_with_service(work, quiet=True)
    asked = f"crosspoint recommend MODEL --profile {_quoted(kept)}"
    whose = "this machine's from before it changed" if was_here else "another machine's"
    click.echo(
        "Kept as this machine's profile: it answers from now on."
        if is_here
        else f"Kept. It is {whose}, and answers when it is asked for by name: {asked}",
        err=True,
    )


@command.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Forget the profile NAME, with its history."""
    from app.cli.session import run_with_service
    from app.profiles import forget_profile

    async def work(service: Crosspoint, _report: Report) -> None:
        await forget_profile(service, name)

    run_with_service(work, quiet=True)
    click.echo("Removed.", err=True)


def _find(name: str | None) -> tuple[Profile, Origin]:
    """Raises UnknownProfile, StoreError, and LabError where nobody knows which machine's profile is asked for."""
    from app.cli.profile_view import Origin
    from app.cli.session import run_with_service
    from app.measurable import check_surveyed
    from app.profiles import find_profile
    from probes.machine_facts import changes_since

    async def work(service: Crosspoint, _report: Report) -> tuple[Profile, Origin]:
        survey = await service.survey_tried_twice()
        if name is None:
            check_surveyed(survey)
        own = await service.profile(survey)
        profile = own if name is None else await find_profile(service, name)
        if profile is None:
            raise await service.profiles.unknown(is_this_machines=name is None)
        answering = None if own is None else own.name
        if not survey.fingerprint:
            return profile, Origin((), answering, is_known=False)
        if profile.fingerprint == survey.fingerprint:
            return profile, Origin(None, answering)
        changes = () if profile.hardware is None else changes_since(profile.hardware, survey)
        return profile, Origin(changes, answering)

    return run_with_service(work, quiet=True)


def _read(file: Path) -> bytes:
    """Never more than a profile may have, whatever FILE is."""
    from probes.bounds import MAX_PROFILE_BYTES

    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_PROFILE_BYTES + 1)
        with file.open("rb") as stream:
            return stream.read(MAX_PROFILE_BYTES + 1)
    except (OSError, ValueError) as error:
        fail_usage(f"{file.name or file} cannot be read: {getattr(error, 'strerror', None) or error}.")


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
