"""The program `python -m probes.microtrain`: JSON jobs in, JSON events out (docs/protocol.md).

From a file it runs the jobs and ends: `python -m probes.microtrain < job.json`. With `--forks` (and `--configs`) the
process that forks plans' processes is started at once, and imports torch (and transformers) beside this one. With
`--temporary FOLDER` temporary files are in there, for whoever started this one to remove: it may be killed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile

from probes.microtrain.channel import EventWriter, JobReader
from probes.microtrain.ending import adopt_orphans, end_now
from probes.microtrain.processes import fresh_processes


def main() -> None:
    """Never returns before standard input ends."""
    options = _read_options()
    del sys.argv[1:]  # a user's own script may read it, here and in forks, and knows none of these
    tempfile.tempdir = options.temporary or tempfile.tempdir
    # The kernel's own way of ending a process is prompt even in the middle of a kernel in C.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    adopt_orphans()
    writer = EventWriter()
    reader = JobReader(0, on_gone=end_now)  # before torch, whose import takes seconds: the end is seen there, too

    if options.forks:
        fresh_processes.prepare(for_configs=options.configs)

    from probes.microtrain.jobs import KINDS, describe_self
    from probes.microtrain.protocol import serve_jobs

    writer.write(describe_self())
    serve_jobs(reader, KINDS, writer.write)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m probes.microtrain", description="Runs jobs of docs/protocol.md.")
    parser.add_argument("--forks", action="store_true", help="start what forks plans' processes at once")
    parser.add_argument("--configs", action="store_true", help="with transformers in it")
    parser.add_argument("--temporary", metavar="FOLDER", help="where temporary files are; removed by the caller")
    return parser.parse_args()


if __name__ == "__main__":
    main()
