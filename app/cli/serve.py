"""`crosspoint serve`: its flags are the fields of Settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import click

from app.settings import Settings, parse_setting, setting_type, variable_name

Command = Callable[..., Any]


def with_setting_flags(command: Command) -> Command:
    """One flag a setting, in the order of the table."""
    for item in reversed(fields(Settings)):
        command = setting_option(item)(command)
    return command


def setting_option(item: Field[Any]) -> Callable[[Command], Command]:
    """`--data-dir TEXT`, or `--access-log / --no-access-log` for a switch. None when it is not given."""
    flag = _flag(item)
    help_text = f"{item.metadata['help']}  [{variable_name(item)}]"
    if setting_type(item) is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", item.name, default=None, help=help_text)
    metavar = {int: "NUMBER", float: "SECONDS"}.get(setting_type(item), "TEXT")
    return click.option(flag, item.name, metavar=metavar, help=help_text)


def _flag(item: Field[Any]) -> str:
    """`data_dir` -> `--data-dir`."""
    return f"--{item.name.replace('_', '-')}"


@click.command()
@with_setting_flags
def command(**flags: Any) -> None:
    """Serve the HTTP interface and the page, on 127.0.0.1:8000 unless told otherwise.

    Every flag is also a variable, named in brackets. A flag goes before its variable.
    """
    from app.cli.checked_settings import checked_settings
    from app.main import serve

    chosen = {item.name: _parse_flag(item, flags[item.name]) for item in fields(Settings)}
    serve(checked_settings(**chosen))


def _parse_flag(item: Field[Any], value: Any) -> Any:
    return parse_setting(item, value, _flag(item)) if isinstance(value, str) else value
