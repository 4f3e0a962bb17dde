from pathlib import Path

import pytest

from probes.gpu.pcie_link import Link, parse_generation, read_link
from probes.reading import Root
from tests.probes.machines import write_machine

DEVICES = "sys/devices/pci0000:00"
BUS = "sys/bus/pci/devices"


def write_way(folder: Path, *functions: tuple[str, str, str, str, str]) -> Root:
    """Functions one behind the other: address, vendor, class, speed now and at most (`2.5/16`), lanes (`1/16`)."""
    place = DEVICES
    for address, vendor, class_code, speeds, lanes in functions:
        place = f"{place}/{address}"
        (speed, speed_maximum), (lane, lane_maximum) = speeds.split("/"), lanes.split("/")
        files = {
            "vendor": vendor,
            "class": class_code,
            "current_link_speed": f"{speed} GT/s PCIe",
            "max_link_speed": f"{speed_maximum} GT/s PCIe",
            "current_link_width": lane,
            "max_link_width": lane_maximum,
        }
        write_machine(folder, {f"{place}/{name}": f"{text}\n" for name, text in files.items()})
        (folder / BUS).mkdir(parents=True, exist_ok=True)
        (folder / BUS / address).symlink_to(Path("../../../..") / place)
    return Root(folder)


ROOT_PORT = ("0000:00:01.0", "0x8086", "0x060400", "16.0/32.0", "8/16")


def test_an_idle_card_is_told_with_what_it_can_do(tmp_path: Path) -> None:
    root = write_way(tmp_path, ROOT_PORT, ("0000:01:00.0", "0x10de", "0x030000", "2.5/16.0", "8/16"))
    assert read_link(root, "0000:01:00.0") == Link(1, 4, 8, 16, 16)


def test_a_slot_narrower_than_its_card_is_told(tmp_path: Path) -> None:
    narrow = ("0000:00:01.0", "0x1022", "0x060400", "16.0/16.0", "4/4")
    root = write_way(tmp_path, narrow, ("0000:01:00.0", "0x10de", "0x030000", "16.0/16.0", "4/16"))
    assert read_link(root, "0000:01:00.0") == Link(4, 4, 4, 16, 4)


def test_a_new_card_in_an_older_slot_is_as_fast_as_it_can_be(tmp_path: Path) -> None:
    older = ("0000:00:01.0", "0x8086", "0x060400", "8.0/8.0", "16/16")
    root = write_way(tmp_path, older, ("0000:01:00.0", "0x1002", "0x030000", "8.0/16.0", "16/16"))
    assert read_link(root, "0000:01:00.0") == Link(3, 3, 16, 16, 16)


def test_a_card_with_a_switch_of_its_own_is_told_by_its_outermost_bridge(tmp_path: Path) -> None:
    """Intel's Arc says generation 1 with one lane of itself and of its inner bridge (Syllo/nvtop#344)."""
    root = write_way(
        tmp_path,
        ROOT_PORT,
        ("0000:01:00.0", "0x8086", "0x060400", "16.0/16.0", "8/16"),
        ("0000:02:01.0", "0x8086", "0x060400", "2.5/2.5", "1/1"),
        ("0000:03:00.0", "0x8086", "0x030000", "2.5/2.5", "1/1"),
    )
    assert read_link(root, "0000:03:00.0") == Link(4, 4, 8, 16, 16)


def test_a_boards_switch_is_a_slot_and_no_part_of_the_card(tmp_path: Path) -> None:
    root = write_way(
        tmp_path,
        ("0000:00:01.0", "0x1022", "0x060400", "32.0/32.0", "16/16"),
        ("0000:01:00.0", "0x10b5", "0x060400", "16.0/16.0", "16/16"),
        ("0000:02:00.0", "0x1002", "0x038000", "16.0/16.0", "16/16"),
    )
    assert read_link(root, "0000:02:00.0") == Link(4, 4, 16, 16, 16)


def test_a_root_port_is_the_processors_even_of_the_cards_vendor(tmp_path: Path) -> None:
    root = write_way(tmp_path, ROOT_PORT, ("0000:01:00.0", "0x8086", "0x038000", "32.0/32.0", "16/16"))
    assert read_link(root, "0000:01:00.0") == Link(5, 5, 16, 16, 16)


@pytest.mark.parametrize(
    ("text", "generation"),
    [("32.0 GT/s PCIe\n", 5), ("2.5 GT/s PCIe", 1), ("64.0 GT/s PCIe", 6), ("Unknown", None), ("", None), (None, None)],
)
def test_a_speed_is_a_generation(text: str | None, generation: int | None) -> None:
    assert parse_generation(text) == generation


def test_no_link_at_all_is_unknown(tmp_path: Path) -> None:
    """A part of the processor has 255 lanes in sysfs, and a virtual machine's card may have none."""
    root = write_way(tmp_path, ("0000:00:02.0", "0x8086", "0x030000", "Unknown/Unknown", "0/255"))
    assert read_link(root, "0000:00:02.0") == Link()
    assert read_link(root, "0000:09:00.0") == Link()
