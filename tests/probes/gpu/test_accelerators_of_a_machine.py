"""Whole machines with other vendors' cards, from the bus to the survey."""

from pathlib import Path

from probes.hardware import Outcome, Survey
from probes.survey import take_survey
from tests.probes.machines import GIB, Files, write_machine, x86_machine

BUS = "sys/bus/pci/devices"


def function(address: str, class_code: str, ids: str, driver: str, **files: str) -> Files:
    vendor, device, revision = ids.split(":")
    facts = {"class": class_code, "vendor": f"0x{vendor}", "device": f"0x{device}", "revision": f"0x{revision}"}
    facts["uevent"] = f"DRIVER={driver}\n" if driver else "\n"
    return {f"{BUS}/{address}/{name}": text for name, text in (facts | files).items()}


def survey(folder: Path, *groups: Files) -> Survey:
    files = x86_machine()
    for group in groups:
        files |= group
    return take_survey(write_machine(folder, files), deadline_seconds=60)


def test_a_desktop_with_a_radeon_its_processors_graphics_and_a_server_chip(tmp_path: Path) -> None:
    found = survey(
        tmp_path,
        function("0000:03:00.0", "0x030000", "1002:744c:c8", "amdgpu", mem_info_vram_total=str(24 * GIB)),
        function("0000:0f:00.0", "0x030000", "1002:164e:d8", "amdgpu", mem_info_vram_total=str(GIB // 2)),
        function("0000:0f:00.2", "0x108000", "1022:1649:00", "ccp"),
        function("0000:10:00.0", "0x030000", "1a03:2000:41", "ast"),
    )
    cards = {card.pci_address: card for card in found.accelerators}
    assert set(cards) == {"0000:03:00.0", "0000:0f:00.0"}
    radeon, graphics = cards["0000:03:00.0"], cards["0000:0f:00.0"]
    assert (radeon.name, radeon.segment, radeon.tier, radeon.suffix) == (
        "AMD Radeon RX 7900 XTX", "consumer", "900", "XTX",
    )  # fmt: skip
    assert (radeon.architecture, radeon.memory_total_bytes) == ("RDNA 3", 24 * GIB)
    assert (graphics.name, graphics.segment, graphics.unified_memory) == ("AMD Radeon 610M", "integrated", True)
    assert graphics.memory_total_bytes == found.memory.total_bytes, "the machine's memory, and not the carve-out"
    assert found.probes["amd"].outcome is Outcome.OK
    assert (found.probes["intel"].outcome, found.probes["apple"].outcome) == (Outcome.ABSENT, Outcome.ABSENT)


def test_a_server_with_intels_gpus_and_one_given_to_a_virtual_machine(tmp_path: Path) -> None:
    found = survey(
        tmp_path,
        function("0000:3a:00.0", "0x038000", "8086:0bda:2f", "xe"),
        function("0000:3b:00.0", "0x038000", "8086:0bda:2f", "vfio-pci"),
        function("0000:00:02.0", "0x030000", "8086:4680:0c", "i915"),
    )
    cards = {card.pci_address: card for card in found.accelerators}
    used, given, graphics = (cards[f"0000:{place}.0"] for place in ("3a:00", "3b:00", "00:02"))
    assert (used.name, used.segment, used.architecture) == (
        "Intel(R) Data Center GPU Max 1100", "data-center", "Xe-HPC",
    )  # fmt: skip
    assert (used.usable, given.usable) == (None, False)
    assert "virtual machine" in (given.why_not or "")
    assert (graphics.segment, graphics.unified_memory) == ("integrated", True)
    assert graphics.memory_total_bytes == found.memory.total_bytes


def test_a_card_whose_driver_is_missing_is_named_all_the_same(tmp_path: Path) -> None:
    [card] = survey(tmp_path, function("0000:01:00.0", "0x030000", "10de:2684:a1", "nouveau")).accelerators
    assert (card.name, card.generation, card.tier) == ("NVIDIA GeForce RTX 4090", "GeForce RTX 40", "90")
    assert (card.usable, card.kernel_driver) == (False, "nouveau")


def test_a_laptops_card_is_not_given_its_desktop_namesakes_figures(tmp_path: Path) -> None:
    [card] = survey(tmp_path, function("0000:01:00.0", "0x030000", "10de:2757:a1", "")).accelerators
    assert (card.name, card.segment) == ("NVIDIA GeForce RTX 4090 Laptop GPU", "laptop")


def test_a_card_is_read_where_the_machines_own_memory_cannot_be(tmp_path: Path) -> None:
    found = survey(
        tmp_path,
        function("0000:03:00.0", "0x030000", "1002:744c:c8", "amdgpu", mem_info_vram_total=str(24 * GIB)),
        {"proc/meminfo": "", **{f"sys/devices/system/node/node{node}/meminfo": "" for node in (0, 1)}},
    )
    assert found.probes["memory"].outcome is Outcome.FAILED
    assert found.probes["amd"].outcome is Outcome.OK
    assert [card.memory_total_bytes for card in found.accelerators] == [24 * GIB]
