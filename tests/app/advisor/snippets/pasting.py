"""Snippets as whoever pastes them runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

RUN_ALL = """
import json, sys, traceback, warnings
warnings.simplefilter("ignore")
failures = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    except BaseException:
        failures[name] = traceback.format_exc(limit=-3) + code
print(json.dumps(failures), file=sys.stderr)
"""


def run_all(snippets: dict[str, str]) -> dict[str, str]:
    """Name -> traceback of those that failed. One process for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(snippets), capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    failures: dict[str, str] = json.loads(done.stderr.strip().splitlines()[-1])
    return failures


def on_the_cpu(snippet: str) -> str:
    """A device's, where there is none."""
    return snippet.replace("cuda:0", "cpu")


def pins(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What is put into pinned memory from now on: there is none where there is no device."""
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    return pinned


def prepared_on_meta(snippet: str) -> dict[str, Any]:
    """What a device's has made when its loop begins: its model and a batch. torch's device `meta` holds no numbers, and
    is not the host."""
    pasted: dict[str, Any] = {}
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        exec(re.split(r"\n(?:for|with torch\.inference_mode)", snippet.replace("cuda:0", "meta"))[0], pasted)
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed
    return pasted
