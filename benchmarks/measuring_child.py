"""The micro-training's process as a benchmark asks it, without a service: a job in, its last event out."""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]

PROGRAM = (sys.executable, "-m", "probes.microtrain")
READY_SECONDS = 180.0  # torch from a cold disk, CUDA included
GRACE_SECONDS = 60.0  # beyond the time that a job was given, to which it keeps itself


class Child:
    """Begun with its first job, and anew whenever the last process is gone.

    memory_bytes: of private memory at most, libraries included; None: what there is. quiet: what it writes on standard
    error is dropped. program: what is started; it speaks docs/protocol.md.
    """

    def __init__(
        self, memory_bytes: int | None = None, *, quiet: bool = False, program: Sequence[str] = PROGRAM
    ) -> None:
        self._memory, self._quiet, self._program = memory_bytes, quiet, program
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""  # what was read beyond the last whole line
        self.ready: Document = {}

    def run(self, job: Document, seconds: float) -> Document:
        """The job's last event; after so many seconds, or when the process dies, a `failed` one (`late`, `died`)."""
        process = self.start()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"job": "benchmark", **job}).encode() + b"\n")
        process.stdin.flush()
        deadline = time.monotonic() + seconds
        while (event := self._read(deadline)) is not None:
            if event["event"] in ("result", "failed"):
                return event
        late = time.monotonic() >= deadline
        self.end()
        reason = f"It took more than {seconds:.0f} s." if late else "The process died."
        return {"event": "failed", "code": "late" if late else "died", "reason": reason}

    def end(self) -> None:
        if self._process is not None:
            with self._process:  # which closes its pipes, and waits
                self._process.kill()
        self._process = None

    def start(self) -> subprocess.Popen[bytes]:
        """The running process; `ready` is its first event."""
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._process = subprocess.Popen(
                self._program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if self._quiet else None,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )
            if self._memory is not None:
                resource.prlimit(self._process.pid, resource.RLIMIT_DATA, (self._memory, self._memory))
            self._rest = b""
            self.ready = self._read(time.monotonic() + READY_SECONDS) or {}
        return self._process

    def _read(self, deadline: float) -> Document | None:
        """The next event, or None: dead or late."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))
