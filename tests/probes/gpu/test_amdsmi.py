"""amdsmi at its boundary: a module of its name on the path of a real child."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from probes.gpu.amdsmi import AmdsmiReading, ask_amdsmi, is_installed, outcome_with, read_amdsmi, with_amdsmi
from probes.hardware import Accelerator, Outcome

PLENTY = 30.0
HEALTHY = """
import os
def amdsmi_init(): os.write(1, b"a library that prints\\n")
def amdsmi_get_processor_handles(): return [0, 1]
def amdsmi_get_gpu_device_bdf(handle): return f"0000:0{handle + 3}:00.0"
def amdsmi_get_gpu_asic_info(handle):
    return {"market_name": "AMD Instinct MI300X", "num_compute_units": 304, "target_graphics_version": "gfx942"}
def amdsmi_get_gpu_driver_info(handle):
    if handle == 1: raise RuntimeError("not supported")
    return {"driver_version": "6.12.12"}
def amdsmi_get_gpu_vram_info(handle): return {"vram_size": 196592, "vram_bit_width": "N/A"}
"""
CARD = Accelerator("pci-0000:03:00.0", vendor="AMD", pci_address="0000:03:00.0", multiprocessors=1)


def ask(folder: Path, source: str, deadline_seconds: float = PLENTY) -> AmdsmiReading:
    (folder / "amdsmi.py").write_text(source, "utf-8")
    return ask_amdsmi(deadline_seconds, {**os.environ, "PYTHONPATH": str(folder)})


def test_it_fills_what_the_files_lack_and_nothing_else(tmp_path: Path) -> None:
    reading = ask(tmp_path, HEALTHY)
    assert reading.outcome is Outcome.OK
    [card] = with_amdsmi([CARD], reading)
    assert (card.name, card.driver_version, card.gfx_target) == ("AMD Instinct MI300X", "6.12.12", "gfx942")
    assert (card.memory_total_bytes, card.memory_bus_bits) == (196592 << 20, None)
    assert card.multiprocessors == 1, "the kernel's own word stands"


def test_one_question_that_is_refused_is_one_null(tmp_path: Path) -> None:
    second = Accelerator("pci-0000:04:00.0", vendor="AMD", pci_address="0000:04:00.0")
    [card] = with_amdsmi([second], ask(tmp_path, HEALTHY))
    assert (card.name, card.driver_version) == ("AMD Instinct MI300X", None)


def test_a_carve_out_is_not_taken_for_a_shared_pool(tmp_path: Path) -> None:
    shared = Accelerator("pci-0000:03:00.0", vendor="AMD", pci_address="0000:03:00.0", unified_memory=True)
    [card] = with_amdsmi([shared], ask(tmp_path, HEALTHY))
    assert card.memory_total_bytes is None


def test_a_card_that_it_does_not_list_is_left_alone(tmp_path: Path) -> None:
    other = Accelerator("pci-0000:09:00.0", vendor="AMD", pci_address="0000:09:00.0")
    assert with_amdsmi([other], ask(tmp_path, HEALTHY)) == (other,)


@pytest.mark.parametrize(
    ("source", "outcome", "words"),
    [
        ("raise RuntimeError('a broken package')", Outcome.FAILED, "a broken package"),
        ("def amdsmi_init(): raise OSError('Driver not loaded')", Outcome.FAILED, "Driver not loaded"),
        ("def amdsmi_init():\n    import os; os.abort()", Outcome.FAILED, "SIGABRT"),
    ],
)
def test_a_broken_rocm_costs_no_more_than_its_own_process(
    tmp_path: Path, source: str, outcome: Outcome, words: str
) -> None:
    reading = ask(tmp_path, source)
    assert reading.outcome is outcome
    assert words in (reading.reason or "")


def test_a_hang_costs_the_deadline(tmp_path: Path) -> None:
    reading = ask(tmp_path, "def amdsmi_init():\n    import threading; threading.Event().wait()", 1.5)
    assert reading.outcome is Outcome.TIMEOUT


def test_a_hang_costs_nothing_where_the_files_told_who_the_cards_are() -> None:
    late = AmdsmiReading(Outcome.TIMEOUT)
    whole = replace(CARD, name="AMD Instinct MI300X", driver_version="6.12.12")
    assert outcome_with([whole], late) is Outcome.OK
    for lacking in ("name", "driver_version"):
        assert outcome_with([whole, replace(whole, **{lacking: None})], late) is Outcome.TIMEOUT  # type: ignore[arg-type]


def test_rubbish_gives_nulls(tmp_path: Path) -> None:
    source = (
        HEALTHY.replace('"0000:0{handle + 3}:00.0"', '"0000:03:00.0"').replace("196592", "-1").replace("304", "True")
    )
    [card] = with_amdsmi([Accelerator("x", pci_address="0000:03:00.0")], ask(tmp_path, source))
    assert (card.memory_total_bytes, card.multiprocessors) == (None, None)


def test_without_amdsmi_no_process_is_started() -> None:
    if is_installed({}):
        pytest.skip("this machine has amdsmi")
    assert read_amdsmi(PLENTY, {}).outcome is Outcome.ABSENT
