"""`python -m probes [--sysroot DIR]` prints the survey of this machine, or of a captured one, as JSON."""

import argparse
import json
import os
import sys
from pathlib import Path

from probes.bounds import MAX_SURVEY_SECONDS, MIN_SURVEY_SECONDS
from probes.reading import Root, Unreadable
from probes.standard_streams import open_closed_streams
from probes.survey import take_survey

NOT_WRITTEN, WRONG_USAGE, READER_GONE = 1, 2, 141  # as `crosspoint` ends (docs/cli.md)


def main(arguments: list[str] | None = None) -> int:
    """The exit code. Where the sysroot is no folder the document comes first all the same, with each probe's reason."""
    open_closed_streams()
    parser = argparse.ArgumentParser(prog="python -m probes", description=__doc__)
    parser.add_argument(
        "--sysroot", type=parse_folder, default=Path("/"), help="folder of a captured machine: proc and sys below it"
    )
    parser.add_argument(
        "--deadline", type=parse_deadline, default=5.0, metavar="SECONDS", help="how long a probe may take"
    )
    options = parser.parse_args(arguments)
    survey = take_survey(options.sysroot, deadline_seconds=options.deadline)
    return write_out(json.dumps(survey.to_json(), indent=2) + "\n") or check_sysroot(options.sysroot)


def parse_deadline(text: str) -> float:
    """Seconds. Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("it has to be a number of seconds") from None
    if not MIN_SURVEY_SECONDS <= seconds <= MAX_SURVEY_SECONDS:  # NaN is neither
        raise argparse.ArgumentTypeError(f"it has to be from {MIN_SURVEY_SECONDS:g} to {MAX_SURVEY_SECONDS:g} seconds")
    return seconds


def parse_folder(text: str) -> Path:
    """Not an empty one, as of a shell's variable that is not set: it would be the current folder. Raises
    ArgumentTypeError."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: leave it out, or name a folder")
    return Path(text)


def write_out(text: str) -> int:
    """The exit code: shells expect 141 (128 + SIGPIPE) of a program whose reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
        if isinstance(error, BrokenPipeError):
            return READER_GONE
        sys.stderr.write(f"Error: The survey could not be written: {error.strerror}.\n")
        return NOT_WRITTEN
    return 0


def check_sysroot(sysroot: Path) -> int:
    """The exit code, with a sentence on standard error where it is no folder."""
    try:
        Root(sysroot).check()
    except Unreadable as unreadable:
        sys.stderr.write(f"Error: --sysroot: {unreadable.reason}.\n")
        return WRONG_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
