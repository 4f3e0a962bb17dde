"""Every suite, one after another: `python -m benchmarks [SUITE …] [-- ARGUMENTS]`.

Each is a process of its own, so that none inherits what another left in memory. Results go to
benchmarks/results/<date>-<machine>/, beside a description of the machine. Alone on the machine, please.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import read_machine

RESULTS = Path(__file__).parent / "results"
# Name -> module; each takes --output FILE and writes JSON there. Add one: a module, a line.
SUITES = {"service": "benchmarks.service", "decisions": "benchmarks.decisions"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites. Returns 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help=f"of {', '.join(SUITES)}; all when left out")
    chosen, more = parser.parse_known_args(arguments)
    machine = read_machine()
    folder = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{machine['slug']}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    failed = [name for name in chosen.suites or SUITES if not run_suite(name, folder, more)]
    for name in failed:
        sys.stderr.write(f"The suite {name} failed.\n")
    sys.stdout.write(f"Results: {folder}\n")
    return 1 if failed else 0


def run_suite(name: str, folder: Path, more: Sequence[str]) -> bool:
    """Whether it ended well."""
    sys.stdout.write(f"== {name}\n")
    sys.stdout.flush()
    words = [sys.executable, "-m", SUITES[name], "--output", folder / f"{name}.json", *more]
    return subprocess.run(words, check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
