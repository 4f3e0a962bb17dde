"""The real child over real pipes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-m", "probes.microtrain")
MOST_SECONDS = 120.0  # a child that is still silent then has hung; it is killed, and the test fails


class Pipes:
    """A started child. Events are read in order."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.ready = self.read()

    def send(self, **job: Any) -> None:
        self.send_line(json.dumps(job).encode())

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """The next event; fails when the child ends without one."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(MOST_SECONDS, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, f"the child ended with {self.process.poll()} and said nothing"
        return dict(json.loads(line))

    def run(self, **job: Any) -> dict[str, Any]:
        """The job's last event; every event before it was progress of this job."""
        self.send(job="it", **job)
        return self.read_last()

    def read_last(self) -> dict[str, Any]:
        while (event := self.read())["event"] == "progress":
            assert 0 <= event["fraction"] <= 1
            assert event["message"]
        return event


@contextlib.contextmanager
def started_child(*options: str, folder: Path | None = None, program: tuple[str, ...] = PROGRAM) -> Iterator[Pipes]:
    """folder: the current one of it."""
    process = subprocess.Popen((*program, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
    try:
        yield Pipes(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()
