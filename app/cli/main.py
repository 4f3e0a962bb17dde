"""The command `crosspoint`: finds the subcommand, runs it, and turns how it ended into an exit code."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from app.cli.endings import report_ending
from app.cli.standard_output import mark_output_errors
from probes.standard_streams import open_closed_streams

# name -> (module that defines it, one line for --help). A subcommand's module is imported when it is called, so that
# `crosspoint --help` costs nothing but click.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("app.cli.serve", "Serve the HTTP interface and the page."),
    "hardware": ("app.cli.hardware", "Show what this machine is, and what stands in the way of training on it."),
    "doctor": ("app.cli.doctor", "Say what stands in the way of training here, and what to do."),
    "watch": ("app.cli.watch", "Show how busy CPU and accelerators are, once a second."),
    "recommend": ("app.cli.recommend", "Say where a model should train, with which settings, and why."),
    "map": ("app.cli.map", "Show which plan wins over batch and width of a network."),
    "measure": ("app.cli.measure", "Run a model's real steps under every plan, and show the times."),
    "calibrate": ("app.cli.calibrate", "Measure this machine's constants once, and keep them as a profile."),
    "profile": ("app.cli.profile", "List, show, export and import what calibrations measured."),
    "models": ("app.cli.models", "List the models known by name."),
    "gpu": ("app.cli.gpu", "Say what a card's name means, without owning the card."),
    "experiment": ("app.cli.experiment", "Run an experiment that shows where time goes."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:  # a shell asks how to go on
                return None
            import difflib

            for near in difflib.get_close_matches(cmd_name, COMMANDS, 1):
                ctx.fail(f"No such command '{cmd_name}'. Did you mean '{near}'?")
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"crosspoint {version('crosspoint')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a fault (of doctor: something stands in the way), 2 wrong usage, 3 nothing fits, "
    "4 the measurement failed. docs/cli.md says more.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show it.")
def cli() -> None:
    """Where should this model train, with which settings, and why? Measured, not guessed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. No traceback for a user's error, ever."""
    open_closed_streams()
    mark_output_errors()
    _tolerate_narrow_encodings()
    _forget_impossible_width()
    if "_CROSSPOINT_COMPLETE" in os.environ:
        cli.main(prog_name="crosspoint")  # click's shell completion, which exits by itself
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        with cli.make_context("crosspoint", words or ["--help"]) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the outermost frame: every way to end has its exit code
        return report_ending(error)
    return 0


def _tolerate_narrow_encodings() -> None:
    """A terminal that cannot show µ or × gets a question mark instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _forget_impossible_width() -> None:
    """Scripts export as COLUMNS what `stty size` says, which is 0 of a terminal that was never told its size."""
    if not re.fullmatch(r"0*[1-9]\d{0,4}", os.environ.get("COLUMNS", ""), re.ASCII):
        os.environ.pop("COLUMNS", None)
