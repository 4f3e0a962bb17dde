"""The NVML program, played in this process by the fake library."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from probes.gpu.nvidia import read_all
from probes.gpu.nvml_process import NvidiaReading, parse_documents
from probes.hardware import Accelerator, Outcome

FAKE = Path(__file__).parent / "fake_nvml" / "pynvml.py"


def play(monkeypatch: pytest.MonkeyPatch, scene: str) -> ModuleType:
    monkeypatch.setenv("FAKE_NVML", scene)
    spec = importlib.util.spec_from_file_location("pynvml", FAKE)
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def read_reading() -> NvidiaReading:
    documents: list[dict[str, Any]] = []
    documents.append(read_all(documents.append))
    return parse_documents([json.loads(json.dumps(document)) for document in documents], None)


def read() -> list[Accelerator]:
    reading = read_reading()
    assert reading.outcome is Outcome.OK
    return list(reading.accelerators)
