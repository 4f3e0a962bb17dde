"""The program `python -m probes.microtrain`: JSON jobs in, JSON events out (docs/protocol.md).

From a file it runs the jobs and ends: `python -m probes.microtrain < job.json`. With `--forks` (and `--configs`) the
process that forks plans' processes is started at once, and imports torch (and transformers) beside this one.
"""

from __future__ import annotations

import os
import signal
import sys

from probes.microtrain import fresh_processes
from probes.microtrain.channel import EventWriter, JobReader


def main() -> None:
    """Never returns before standard input ends."""
    # The kernel's own way of ending a process is prompt even in the middle of a kernel in C.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    writer = EventWriter()
    reader = JobReader(0, on_gone=end_now)  # before torch, whose import takes seconds: the end is seen there, too

    if "--forks" in sys.argv:
        fresh_processes.prepare(for_configs="--configs" in sys.argv)

    from probes.microtrain.jobs import KINDS, describe_self
    from probes.microtrain.protocol import serve_jobs

    writer.write(describe_self())
    serve_jobs(reader, KINDS, writer.write)


def end_now() -> None:
    """End this process from any thread, whatever it is doing, with the compilers that it runs. What it forked to
    measure ends with it (fresh_processes)."""
    try:
        from psutil import Process

        for child in Process().children(recursive=True):
            child.kill()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
