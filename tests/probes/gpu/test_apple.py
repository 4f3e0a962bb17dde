import plistlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.gpu.apple import parse_registry, read_apple
from probes.hardware import Outcome
from probes.reading import Root, Unreadable
from tests.probes.machines import write_machine

ENTRY: dict[str, Any] = {
    "IOClass": "AGXAcceleratorG13X",
    "model": "Apple M1 Pro",
    "gpu-core-count": 16,
    "PerformanceStatistics": {"Device Utilization %": 7, "In use system memory": 123},
}


def test_the_registry_names_the_gpu_and_counts_its_cores() -> None:
    [card] = parse_registry(plistlib.dumps([ENTRY]))
    assert (card.vendor, card.name, card.multiprocessors) == ("Apple", "Apple M1 Pro", 16)
    assert (card.unified_memory, card.segment, card.utilization_percent) == (True, "integrated", 7.0)


def test_a_name_may_be_bytes_and_numbers_may_be_missing() -> None:
    [card] = parse_registry(plistlib.dumps([{"model": b"Apple M4 Max\0", "gpu-core-count": -1}]))
    assert (card.name, card.multiprocessors, card.utilization_percent) == ("Apple M4 Max", None, None)


def test_another_vendors_card_in_a_mac_is_none_of_apples() -> None:
    assert parse_registry(plistlib.dumps([{"model": "AMD Radeon Pro 5500M"}, {"IOClass": "x"}])) == ()


@pytest.mark.parametrize("text", [b"", b"rubbish", b"<plist>", plistlib.dumps({"a": 1}), plistlib.dumps([1, "x"])])
def test_rubbish_is_no_gpu(text: bytes) -> None:
    assert parse_registry(text) == ()


def test_on_linux_the_device_tree_names_it(tmp_path: Path) -> None:
    files = {
        "sys/firmware/devicetree/base/compatible": "apple,j314s\0apple,t6000\0apple,arm-platform\0",
        "sys/bus/platform/drivers/asahi/bind": "",
    }
    [card] = read_apple(Root(write_machine(tmp_path, files)), 1.0)
    assert (card.name, card.kernel_driver) == ("Apple M1 Pro", "asahi")


def test_a_machine_of_another_maker_has_none(tmp_path: Path) -> None:
    assert read_apple(Root(tmp_path), 1.0) == ()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A Mac, whose `ioreg` is a program in Python."""

    def is_told_by(program: str) -> None:
        monkeypatch.setattr("probes.gpu.apple._COMMAND", (sys.executable, "-S", "-c", program))
        monkeypatch.setattr(sys, "platform", "darwin")

    return is_told_by


def test_on_macos_the_registry_is_asked(registry: Callable[[str], object]) -> None:
    registry(f"import sys; sys.stdout.buffer.write({plistlib.dumps([ENTRY])!r})")
    [card] = read_apple(Root(), 30.0)
    assert card.name == "Apple M1 Pro"


def test_a_registry_without_an_entry_says_that_there_is_none(registry: Callable[[str], object]) -> None:
    registry("")
    assert read_apple(Root(), 30.0) == ()


@pytest.mark.parametrize(
    ("program", "seconds", "outcome", "reason"),
    [
        ("import time; time.sleep(60)", 0.01, Outcome.TIMEOUT, "did not answer in time"),
        ("raise SystemExit(3)", 30.0, Outcome.FAILED, "ended with exit code 3"),
    ],
)
def test_a_registry_that_does_not_tell_is_no_mac_without_a_gpu(
    program: str, seconds: float, outcome: Outcome, reason: str, registry: Callable[[str], object]
) -> None:
    """The machine would be another one until the next survey."""
    registry(program)
    with pytest.raises(Unreadable, match=reason) as raised:
        read_apple(Root(), seconds)
    assert raised.value.outcome is outcome


def test_nor_is_one_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, registry: Callable[[str], object]) -> None:
    registry("")
    monkeypatch.setattr("probes.gpu.apple._COMMAND", ("/no/such/ioreg",))
    with pytest.raises(Unreadable, match="could not be started"):
        read_apple(Root(), 30.0)
