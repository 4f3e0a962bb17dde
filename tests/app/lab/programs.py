"""Programs that speak docs/protocol.md, well or badly, to see what the lab makes of them."""

from __future__ import annotations

import sys

READY = 'print(\'{"event": "ready", "torch": "0", "python": "0", "devices": []}\', flush=True)'


def program(*lines: str) -> tuple[str, ...]:
    """A program of these lines of Python, which have `json`, `os`, `signal`, `sys`, `time` and `say`."""
    head = "import json, os, signal, subprocess, sys, time\ndef say(**event): print(json.dumps(event), flush=True)"
    return (sys.executable, "-I", "-c", "\n".join((head, *lines)))


def serving(*lines: str) -> tuple[str, ...]:
    """A program that is ready and runs these lines for each job, which they find in `job`."""
    return program(READY, "for line in sys.stdin:", "    job = json.loads(line)", *(f"    {line}" for line in lines))


ECHO = serving('say(event="result", job=job["job"], result={"pid": os.getpid(), "kind": job["kind"]})')
HANGING = serving("time.sleep(600)")
STUBBORN = serving("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 'say(event="progress", job=job["job"], fraction=0)',
                   "time.sleep(600)")  # fmt: skip
