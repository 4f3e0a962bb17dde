"""What the NVML program reads of a card, played in this process by the fake library."""

import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pynvml as real_pynvml
import pytest

from probes.gpu import nvidia
from probes.gpu.nvidia import read_all
from probes.gpu.nvml_process import parse_output
from probes.hardware import Accelerator, Outcome

FAKE = Path(__file__).parent / "fake_nvml" / "pynvml.py"
ERRORS = sorted({name for name in dir(real_pynvml) if name.startswith("NVMLError_")})
SOURCE = inspect.getsource(nvidia)
NAMES = set(re.findall(r"\b(?:py)?nvml\.(nvml\w+)", SOURCE))
CALLS = sorted(NAMES - {"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"})  # without these: no cards


def play(monkeypatch: pytest.MonkeyPatch, scene: str) -> ModuleType:
    monkeypatch.setenv("FAKE_NVML", scene)
    spec = importlib.util.spec_from_file_location("pynvml", FAKE)
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def read() -> tuple[list[Accelerator], dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    documents.append(read_all(documents.append))
    reading = parse_output("\n".join(map(json.dumps, documents)), None)
    return list(reading.accelerators), documents[-1]


def test_a_healthy_card_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    cards, closing = read()
    assert closing == {"done": True}
    [card] = cards
    assert card.memory_bandwidth_bytes_per_second == pytest.approx(912e9, rel=1e-3)  # NVIDIA's data sheet
    assert (card.id, card.name, card.architecture) == ("GPU-00000000", "NVIDIA GeForce RTX 3080 Ti", "Ampere")
    assert (card.compute_capability, card.multiprocessors, card.pci_address) == ("8.6", 80, "0000:01:00.0")
    assert (card.memory_total_bytes, card.memory_free_bytes, card.unified_memory) == (12 << 30, 5 << 30, False)
    assert (card.utilization_percent, card.temperature_celsius, card.power_watts) == (7, 41, pytest.approx(30.1))
    assert card.throttle_reasons == ("gpu_idle", "sw_power_cap")
    assert (card.pcie_generation, card.pcie_generation_maximum, card.pcie_lanes) == (1, 4, 16)
    assert card.usable is None  # torch has not been asked


@pytest.mark.parametrize("call", CALLS)
def test_any_error_from_any_call_costs_that_field_and_not_the_card(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    fake = play(monkeypatch, "healthy")
    for error in ERRORS:
        kind = type(error, (fake.NVMLError,), {})

        def refuse(*_: Any, kind: type[Exception] = kind) -> None:
            raise kind("refused")

        monkeypatch.setattr(fake, call, refuse, raising=False)
        cards, closing = read()
        assert len(cards) == 1
        assert closing == {"done": True}


@pytest.mark.parametrize("answer", [None, "", b"\xff", -1, (), object(), float("nan"), "9" * 99])
def test_no_answer_of_a_wrong_kind_loses_the_card(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    fake = play(monkeypatch, "healthy")
    for call in CALLS:
        monkeypatch.setattr(fake, call, lambda *_: answer, raising=False)
    cards, closing = read()
    assert len(cards) == 1
    assert closing == {"done": True}


def test_every_call_that_is_made_is_one_of_the_librarys() -> None:
    assert len(NAMES) > 20
    assert set(dir(real_pynvml)) >= NAMES


def test_a_missing_call_of_an_older_library_costs_that_field(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetNumGpuCores")
    assert read()[0][0].multiprocessors is None


def test_a_lost_card_stays_in_the_list_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "lost")
    healthy, lost = read()[0]
    assert healthy.why_not is None
    assert lost.usable is False
    assert "GPU is lost" in (lost.why_not or "")


def test_memory_that_is_not_supported_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "unified")
    [card] = read()[0]
    assert (card.unified_memory, card.memory_total_bytes, card.memory_bandwidth_bytes_per_second) == (True, None, None)
    assert card.name == "NVIDIA GB10"


def test_a_split_card_gives_way_to_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "mig")
    card, *instances = read()[0]
    assert card.usable is False
    assert [instance.id for instance in instances] == [f"MIG-00000000-0000-0000-0000-00000000000{n}" for n in (0, 1)]
    assert {instance.multiprocessors for instance in instances} == {28}
    assert {instance.memory_total_bytes for instance in instances} == {6 << 30}


def test_without_the_library_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", real_pynvml)
    monkeypatch.setattr(real_pynvml, "nvmlInit", _raise_library_not_found)
    assert read()[1]["outcome"] == Outcome.ABSENT


def _raise_library_not_found() -> None:
    raise real_pynvml.NVMLError(real_pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
