"""What a process of the micro-training holds before its first job computes: the base that a calibration reads, and that
every estimate of a process begins with. A process of its own, which runs no workload.

Reads one JSON document from standard input, of which it needs nothing, and writes `{"base_bytes"}` to standard output.
"""

from __future__ import annotations

import json
import sys

from probes.microtrain import calibrate  # noqa: F401 - what it imports is in the base
from probes.microtrain.jobs import describe_self
from probes.microtrain.processes.footprint import read_resident_bytes


def main() -> None:
    sys.stdin.read()
    describe_self()
    sys.stdout.write(json.dumps({"base_bytes": read_resident_bytes()}) + "\n")


if __name__ == "__main__":
    main()
