"""What changes, read without asking a driver: from a watch's last telling and from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probes.gpu.nvml_watch import Watched
from probes.hardware import Accelerator
from probes.live import LIVE_FIELDS, LiveReader, update_cards, with_live_facts
from tests.probes.gpu.test_nvidia_kept import FakeWatch
from tests.probes.machines import write_machine, x86_machine

CARD = Accelerator("GPU-1", vendor="NVIDIA", name="a card", temperature_celsius=40, memory_free_bytes=8)
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


def test_a_card_that_nobody_watches_stays_as_it_is() -> None:
    assert update_cards([ON_BUS], Watched({}, 0.1), 5.0) == ((ON_BUS,), False)


def test_shared_memory_is_kept_where_the_driver_does_not_tell_it() -> None:
    assert with_live_facts(replace(CARD, unified_memory=True), {}).memory_free_bytes == 8


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
