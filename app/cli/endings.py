"""How a command ends: exit codes, and the sentence on standard error that goes with each."""

from __future__ import annotations

import errno
import os
import sys
from enum import IntEnum
from typing import NoReturn, TextIO

import click

from app.cli.standard_output import OutputLost


class ExitCode(IntEnum):
    """docs/cli.md explains them to users."""

    DONE = 0
    FAULT = 1  # crosspoint itself is broken, or what it made could not be written
    USAGE = 2
    NOTHING_FITS = 3
    MEASUREMENT_FAILED = 4
    INTERRUPTED = 130  # 128 + SIGINT, as shells report it
    READER_GONE = 141  # 128 + SIGPIPE


# Failures whose cause is what the user asked for (docs/protocol.md lists the codes); every other one is the machine's.
USER_ERRORS = frozenset(
    {
        "invalid-job",
        "invalid-model",
        "invalid-request",
        "unknown-profile",
        "profile-refused",
        "profile-exists",
        "unsupported",
        "address-taken",
    }
)


class CommandFailed(Exception):
    """Ends a command with an exit code and a sentence."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


def report_ending(error: BaseException) -> int:
    """Print what the user should know about `error` and return the exit code."""
    try:
        return _report(error)
    except OSError as lost:
        if lost is error or lost.errno not in (errno.EPIPE, errno.EIO):
            raise
        # Whoever read standard error is gone, too: a pipe's reader, or the terminal.
        _silence(sys.stderr)
        _silence(sys.stdout)
        return ExitCode.READER_GONE


def _report(error: BaseException) -> int:
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        click.echo("\nInterrupted.", err=True)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, CommandFailed):
        return _say(str(error), error.code)
    if isinstance(error, OutputLost) or (isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ENOSPC)):
        return _report_lost_output(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitCode.FAULT
    return _report_known(error)


def _report_known(error: BaseException) -> int:
    """Errors of the layers below; they are imported here, on the way out, so that --help need not wait for them."""
    from app.advisor.request import InvalidRequest
    from app.errors import CrosspointError, StoreError
    from app.settings import InvalidSetting
    from probes.workload.description import InvalidModel

    if isinstance(error, InvalidModel | InvalidRequest | InvalidSetting):
        return _say(with_suggestions(error), ExitCode.USAGE)
    if isinstance(error, StoreError):
        return _say(str(error), ExitCode.FAULT)
    if isinstance(error, CrosspointError):
        is_users = error.code in USER_ERRORS
        return _say(with_suggestions(error), ExitCode.USAGE if is_users else ExitCode.MEASUREMENT_FAILED)
    return _report_fault(error)


def with_suggestions(error: BaseException) -> str:
    """The message, and near names where the error carries some that the message does not."""
    message = str(error)
    names = [name for name in getattr(error, "suggestions", ()) if name not in message]
    return f"{message.rstrip('.')}. Near: {', '.join(names)}." if names else message


def _say(message: str, code: ExitCode) -> int:
    click.echo(f"Error: {message}", err=True)
    return code


def _report_lost_output(error: OSError) -> int:
    _silence(sys.stdout)
    if error.errno == errno.EPIPE:
        return ExitCode.READER_GONE
    return _say(f"The output could not be written: {error.strerror}.", ExitCode.FAULT)


def _silence(stream: TextIO) -> None:
    """Stop Python from flushing into the closed pipe again at exit, which would print a traceback."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


def _report_fault(error: BaseException) -> int:
    if os.environ.get("CROSSPOINT_TRACEBACK"):
        raise error
    return _say(
        f"crosspoint itself failed ({type(error).__name__}: {error}). "
        "Set CROSSPOINT_TRACEBACK=1 and run it again to see where; please report that.",
        ExitCode.FAULT,
    )


def fail_usage(message: str) -> NoReturn:
    """Raise the error for something the user wrote that cannot be used."""
    raise CommandFailed(message, ExitCode.USAGE)
