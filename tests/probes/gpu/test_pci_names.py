from pathlib import Path

import pytest

from probes.gpu.pci_names import Ids, name_card, parse_amdgpu_list, parse_database
from probes.names.gpu import parse_gpu_name
from probes.reading import Root
from tests.probes.machines import write_machine

DATABASE = """#
# A comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]
\t\t1002 0e3b  RX 7900 GRE [XFX]
10de  NVIDIA Corporation
\t1c82  GP107 [GeForce GTX 1050 Ti]
\t\t1043 8613  Card of a partner [Not its name]
\t28e0  AD107M [GeForce RTX 4060 Max-Q / Mobile]
\t1db5  GV100GL [Tesla V100 SXM2 32GB]
\t0001  A chip without a marketing name
10df  Emulex Corporation
\t1c83  Somebody else's [GeForce]
C 03  Display controller
\t1c84  A class [Not a card]
"""


@pytest.mark.parametrize(
    ("vendor", "device", "name"),
    [
        (0x10DE, 0x1C82, "NVIDIA GeForce GTX 1050 Ti"),
        (0x10DE, 0x28E0, "NVIDIA GeForce RTX 4060 Laptop GPU"),
        (0x10DE, 0x1DB5, "NVIDIA Tesla V100 SXM2 32GB"),
        (0x10DE, 0x0001, None),
        (0x10DE, 0x1C83, None),
        (0x10DE, 0x1C84, None),
        (0x10DE, 0x8613, None),
        (0x1002, 0x744C, "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M"),
        (0x1234, 0x744C, None),
    ],
)
def test_the_public_database_gives_what_stands_in_brackets(vendor: int, device: int, name: str | None) -> None:
    assert parse_database(DATABASE, Ids(vendor, device)) == name


def test_a_chip_of_several_cards_is_taken_for_none_of_them() -> None:
    name = parse_database(DATABASE, Ids(0x1002, 0x744C))
    assert name is not None
    assert parse_gpu_name(name) is None


@pytest.mark.parametrize("text", ["", "10de", "10de  NVIDIA\n\t1c82  GP107 [", "\n\n\t\t[x]", "10de \x00\n\t1c82  []"])
def test_a_broken_database_names_nothing(text: str) -> None:
    assert parse_database(text, Ids(0x10DE, 0x1C82)) is None


LIST = "1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n1F00,\t01,\tA\n1F00,\t01,\tB\n"


def test_amds_list_tells_cards_apart_by_revision() -> None:
    assert parse_amdgpu_list(LIST, Ids(0x1002, 0x744C, 0xC8)) == "AMD Radeon RX 7900 XTX"
    assert parse_amdgpu_list(LIST, Ids(0x1002, 0x744C, 0xC9)) is None
    assert parse_amdgpu_list(LIST, Ids(0x1002, 0x744C)) is None
    assert parse_amdgpu_list(LIST, Ids(0x1002, 0x1F00, 1)) is None, "two names for one chip"


@pytest.mark.parametrize(
    ("vendor", "device", "revision", "name"),
    [
        (0x8086, 0x56A0, 0x08, "Intel(R) Arc(TM) A770 Graphics"),
        (0x8086, 0x0BDA, 0x2F, "Intel(R) Data Center GPU Max 1100"),
        (0x1002, 0x744C, 0xC8, "AMD Radeon RX 7900 XTX"),
        (0x1002, 0x744C, 0x00, None),
        (0x10DE, 0x2330, 0xA1, "NVIDIA H100 80GB HBM3"),
        (0x10DE, 0x2717, 0xA1, "NVIDIA GeForce RTX 4090 Laptop GPU"),
        (0x10DE, 0xFFFF, None, None),
    ],
)
def test_ids_name_a_card_on_a_machine_without_lists(
    tmp_path: Path, vendor: int, device: int, revision: int | None, name: str | None
) -> None:
    assert name_card(Root(tmp_path), Ids(vendor, device, revision)) == name


def test_a_card_is_not_taken_for_a_processors_graphics_of_its_name(tmp_path: Path) -> None:
    """Intel's DG1 and its processors' graphics are both "Iris Xe Graphics"."""
    name = name_card(Root(tmp_path), Ids(0x8086, 0x4908))
    assert name is not None
    assert parse_gpu_name(name) is None


def test_the_machines_own_lists_are_used(tmp_path: Path) -> None:
    write_machine(
        tmp_path, {"usr/share/hwdata/pci.ids": DATABASE, "usr/share/libdrm/amdgpu.ids": "744C,\tD9,\tAMD X\n"}
    )
    root = Root(tmp_path)
    assert name_card(root, Ids(0x10DE, 0x1C82)) == "NVIDIA GeForce GTX 1050 Ti"
    assert name_card(root, Ids(0x1002, 0x744C, 0xD9)) == "AMD X"
