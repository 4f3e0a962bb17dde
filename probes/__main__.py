"""`python -m probes [--sysroot DIR]` prints the survey of this machine, or of a captured one, as JSON."""

import argparse
import json
import os
import sys
from pathlib import Path

from probes.survey import take_survey

READER_GONE = 141


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m probes", description=__doc__)
    parser.add_argument(
        "--sysroot", type=Path, default=Path("/"), help="folder of a captured machine: proc and sys below it"
    )
    parser.add_argument("--deadline", type=float, default=5.0, metavar="SECONDS", help="how long a probe may take")
    options = parser.parse_args(arguments)
    survey = take_survey(options.sysroot, deadline_seconds=options.deadline)
    return write_out(json.dumps(survey.to_json(), indent=2) + "\n")


def write_out(text: str) -> int:
    """The exit code: shells expect 141 (128 + SIGPIPE) of a program whose reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
        return READER_GONE
    return 0


if __name__ == "__main__":
    sys.exit(main())
