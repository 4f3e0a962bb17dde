"""A real server in a process of its own, as `crosspoint serve` starts it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

COMMAND = Path(sys.executable).with_name("crosspoint")
# Far above what anything here takes; a test that reaches it has found a hang.
PATIENCE_SECONDS = 90.0


@dataclass
class Server:
    """process, address, and what it wrote to standard error so far."""

    process: subprocess.Popen[str]
    port: int
    log: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS)

    def connect(self) -> socket.socket:
        """A plain connection, for requests that no client library would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def children(self) -> list[psutil.Process]:
        """Its measuring processes."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def peak_bytes(self) -> int:
        """The most memory that it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def running_server(data_dir: Path, **settings: str) -> Iterator[Server]:
    """A server on a free port. settings: CROSSPOINT_… variables by their last part, as calibrate_on_start="true"."""
    chosen = {"calibrate_on_start": "false", **settings, "data_dir": str(data_dir), "port": "0"}
    environment = {f"CROSSPOINT_{name.upper()}": value for name, value in chosen.items()}
    folder = tempfile.mkdtemp()  # holds a lock of its own: nothing that measures on this machine is waited for
    process = subprocess.Popen(
        [COMMAND, "serve"],
        env={**os.environ, **environment, "TMPDIR": folder},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _await_start(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_SECONDS)
        assert process.stderr is not None
        process.stderr.close()
        shutil.rmtree(folder)


def _await_start(process: subprocess.Popen[str]) -> Server:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"listens on http://.*:(\d+)", line)
    assert found, line + process.stderr.read()
    server = Server(process, int(found[1]), [line])
    threading.Thread(target=_keep_log, args=(process, server.log), daemon=True).start()
    return server


def _keep_log(process: subprocess.Popen[str], log: list[str]) -> None:
    """Keep standard error flowing: a full pipe would stop the server."""
    assert process.stderr is not None
    with contextlib.suppress(ValueError):
        log.extend(process.stderr)


def wait_until(condition: object, what: str) -> None:
    """Ask until it is so. Raises AssertionError after PATIENCE_SECONDS."""
    assert callable(condition)
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)
