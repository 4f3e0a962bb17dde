"""A benchmark's process of its own: one JSON job in, one JSON line out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run_child(module: str, job: Mapping[str, Any], seconds: float, environment: Mapping[str, str]) -> dict[str, Any]:
    """What `python -m module` wrote last; `{"error": …}` when it died, as under a memory limit it would. One that was
    not done in time is killed: `{"error": …, "overdue": True}`, as that says nothing of the memory."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, **environment},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {seconds:g} s", "overdue": True}
    lines = ended.stdout.splitlines()
    if ended.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    said = ended.stderr.strip().splitlines()
    return {"error": f"ended with {ended.returncode}: {said[-1][:200] if said else 'nothing said'}"}
