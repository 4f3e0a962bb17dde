"""What changes, read without asking a driver: from a watch's last telling and from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probes.gpu.nvml_watch import Watched
from probes.hardware import Accelerator
from probes.live import LIVE_FIELDS, LiveReader, update_cards
from tests.probes.gpu.test_nvidia_kept import FakeWatch
from tests.probes.machines import write_machine, x86_machine

CARD = Accelerator(
    "GPU-1", vendor="NVIDIA", name="a card", driver_version="580", temperature_celsius=40, memory_free_bytes=8
)
ON_BUS = Accelerator("pci-0000:03:00.0", vendor="NVIDIA", memory_free_bytes=3)
AMD = Accelerator("pci-0000:04:00.0", vendor="AMD", kernel_driver="amdgpu", pci_address="0000:04:00.0")
FOLDER = "sys/bus/pci/devices/0000:04:00.0"


def test_what_was_told_takes_the_place_of_what_was_known() -> None:
    (card,), outdated = update_cards([CARD], Watched({"GPU-1": {"temperature_celsius": 70.0}}, 0.5), 5.0)
    assert (card.temperature_celsius, card.memory_free_bytes, card.name) == (70.0, None, "a card")
    assert not outdated


@pytest.mark.parametrize("watched", [Watched(), Watched({"GPU-1": {"temperature_celsius": 70.0}}, 60.0)])
def test_a_silent_driver_leaves_the_card_without_what_changes(watched: Watched) -> None:
    (card,), outdated = update_cards([CARD], watched, 5.0)
    assert {getattr(card, name) for name in LIVE_FIELDS} == {None}
    assert not outdated


def test_a_card_that_went_and_one_that_came_outdate_the_survey() -> None:
    cards, outdated = update_cards([CARD], Watched({"GPU-2": {"power_watts": 30.0}}, 0.1), 5.0)
    assert [(card.id, card.name, card.power_watts) for card in cards] == [("GPU-2", None, 30.0)]
    assert outdated


def test_a_card_that_nobody_watches_keeps_its_place() -> None:
    """As those that the bus alone shows, or CUDA alone."""
    for card in (ON_BUS, replace(CARD, driver_version=None)):
        (kept,), outdated = update_cards([card], Watched({}, 0.1), 5.0)
        assert (kept.id, kept.memory_free_bytes, outdated) == (card.id, None, False)


def test_a_card_that_nvml_gives_no_uuid_of_is_told_anew_all_the_same() -> None:
    known = replace(CARD, id="pci-0000:03:00.0")
    (card,), outdated = update_cards([known], Watched({known.id: {"temperature_celsius": 70.0}}, 0.5), 5.0)
    assert (card.temperature_celsius, outdated) == (70.0, False)
    (card,), _ = update_cards([known], Watched(), 5.0)
    assert card.temperature_celsius is None


LOST = replace(ON_BUS, usable=False, why_not="NVML cannot reach this card: GPU is lost")
TOLD = {"GPU-1": {}, "nvidia-1": {"usable": False, "why_not": LOST.why_not}}


@pytest.mark.parametrize("lost", [LOST, replace(LOST, id="nvidia-1", driver_version="580")])
def test_a_lost_card_is_one_card_and_sets_off_one_survey(lost: Accelerator) -> None:
    """NVML has a number for it, and the survey the bus's address."""
    cards, outdated = update_cards([CARD, lost], Watched(TOLD, 0.1), 5.0)
    assert [card.id for card in cards] == ["GPU-1", lost.id]
    assert not outdated
    assert update_cards([CARD, replace(CARD, id="GPU-2")], Watched(TOLD, 0.1), 5.0)[1], "it was lost since"
    assert update_cards([CARD, lost], Watched({"GPU-1": {}, "GPU-2": {}}, 0.1), 5.0)[1], "it came back"
    assert update_cards([CARD], Watched(TOLD, 0.1), 5.0)[1], "no card is known that it may be"


@pytest.mark.parametrize(
    ("card", "free"),
    [
        (Accelerator("GPU-2", "NVIDIA", unified_memory=True, memory_total_bytes=10 << 30, memory_free_bytes=7), 10),
        (Accelerator("GPU-3", "NVIDIA", unified_memory=True, memory_total_bytes=99 << 30, memory_free_bytes=7), 12),
        (Accelerator("g", "Intel", kernel_driver="xe", pci_address="0", unified_memory=True, memory_free_bytes=7), 12),
        (Accelerator("a", "Apple", unified_memory=True, memory_free_bytes=7, utilization_percent=37), 12),
    ],
)
def test_what_is_left_of_shared_memory_is_what_the_machine_has_left_now(
    tmp_path: Path, card: Accelerator, free: int
) -> None:
    watch = FakeWatch()
    watch.told = Watched({card.id: {}} if card.vendor == "NVIDIA" else {}, 0.1)
    live = LiveReader(watch=watch, path=write_machine(tmp_path, x86_machine())).read((card,))
    assert live.accelerators[0].memory_free_bytes == free << 30
    assert live.accelerators[0].utilization_percent is None, "of the survey's second"
    assert not live.outdated


def test_of_a_part_set_aside_that_nobody_tells_of_nothing_is_told(tmp_path: Path) -> None:
    watch = FakeWatch()
    watch.told = Watched({}, 0.1)
    carved = replace(AMD, unified_memory=True, memory_total_bytes=4 << 30, memory_free_bytes=None)
    live = LiveReader(watch=watch, path=write_machine(tmp_path, x86_machine())).read((carved,))
    assert live.accelerators[0].memory_free_bytes is None


def test_cards_without_nvml_are_read_from_sysfs(tmp_path: Path) -> None:
    machine = write_machine(tmp_path, {**x86_machine(), f"{FOLDER}/gpu_busy_percent": "37\n"})
    watch = FakeWatch()
    watch.told = Watched({}, 0.1)
    reader = LiveReader(watch=watch, path=machine)
    reader.start()
    live = reader.read((AMD,))
    assert watch.running
    assert live.accelerators[0].utilization_percent == 37
    assert live.memory.total_bytes == 16 << 30
    (tmp_path / FOLDER / "gpu_busy_percent").write_text("38\n")
    assert reader.read((AMD,)).accelerators[0].utilization_percent == 38
    reader.stop()
    assert not watch.running


def test_what_is_free_of_a_whole_card_is_not_told_of_its_partition(tmp_path: Path) -> None:
    """Of which torch told the size, and amdgpu tells the whole card's."""
    files = {f"{FOLDER}/mem_info_vram_total": f"{192 << 30}\n", f"{FOLDER}/mem_info_vram_used": f"{2 << 30}\n"}
    watch = FakeWatch()
    watch.told = Watched({}, 0.1)
    reader = LiveReader(watch=watch, path=write_machine(tmp_path, {**x86_machine(), **files}))
    (part,) = reader.read((replace(AMD, memory_total_bytes=24 << 30),)).accelerators
    (whole,) = reader.read((replace(AMD, memory_total_bytes=192 << 30),)).accelerators
    assert (part.memory_free_bytes, whole.memory_free_bytes) == (None, 190 << 30)


def test_graphics_inside_a_processor_have_no_more_left_than_the_machine_has(tmp_path: Path) -> None:
    pools = {"vram_total": 1 << 29, "vram_used": 0, "gtt_total": 16 << 30, "gtt_used": 1 << 30}
    files = {f"{FOLDER}/mem_info_{name}": f"{size}\n" for name, size in pools.items()}
    watch = FakeWatch()
    watch.told = Watched({}, 0.1)
    reader = LiveReader(watch=watch, path=write_machine(tmp_path, {**x86_machine(), **files}))
    live = reader.read((replace(AMD, unified_memory=True, memory_free_bytes=14 << 30),))
    assert live.accelerators[0].memory_free_bytes == live.memory.available_bytes == 12 << 30


def test_a_device_put_in_or_taken_out_outdates_the_survey(tmp_path: Path) -> None:
    machine = write_machine(tmp_path, {**x86_machine(), f"{FOLDER}/vendor": "0x1002\n"})
    reader, known = LiveReader(watch=FakeWatch(), path=machine), (AMD,)
    assert not reader.read(known).outdated
    assert not reader.read(known).outdated
    write_machine(tmp_path, {"sys/bus/pci/devices/0000:05:00.0/vendor": "0x1002\n"})
    assert reader.read(known).outdated
    assert not reader.read((AMD, replace(AMD, id="pci-0000:05:00.0"))).outdated, "another survey was taken since"


def test_nothing_readable_is_nothing_known(tmp_path: Path) -> None:
    live = LiveReader(watch=FakeWatch(), path=tmp_path).read(())
    assert (live.memory.total_bytes, live.load.busy_fraction, live.accelerators) == (None, None, ())
