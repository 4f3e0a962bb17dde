"""`python -m probes [--sysroot DIR]` prints the survey of this machine, or of a captured one, as JSON."""

import argparse
import json
import sys
from pathlib import Path

from probes.survey import take_survey


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m probes", description=__doc__)
    parser.add_argument(
        "--sysroot", type=Path, default=Path("/"), help="folder of a captured machine: proc and sys below it"
    )
    parser.add_argument("--deadline", type=float, default=5.0, metavar="SECONDS", help="how long a probe may take")
    options = parser.parse_args(arguments)
    survey = take_survey(options.sysroot, deadline_seconds=options.deadline)
    json.dump(survey.to_json(), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
