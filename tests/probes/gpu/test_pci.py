from pathlib import Path

import pytest

from probes.diagnose.candidates import is_candidate
from probes.gpu.pci import NO_INTEL_GPU, PciFunction, _is_intel_graphics, normalize_address, read_pci_accelerators
from probes.hardware import Accelerator
from probes.reading import Root
from tests.probes.machines import Files, write_machine

BUS = "sys/bus/pci/devices"


def function(address: str, class_code: str, vendor: str, device: str, folder: str = BUS) -> Files:
    names = {"class": class_code, "vendor": vendor, "device": device}
    return {f"{folder}/{address}/{name}": f"{value}\n" for name, value in names.items()}


def read(folder: Path, files: Files) -> list[Accelerator]:
    return list(read_pci_accelerators(Root(write_machine(folder, files))))


@pytest.mark.parametrize(
    ("class_code", "vendor", "device", "name"),
    [
        ("0x030000", "0x10de", "0x2204", "NVIDIA"),
        ("0x030200", "0x10de", "0x2330", "NVIDIA"),
        ("0x038000", "0x1002", "0x740f", "AMD"),
        ("0x120000", "0x1da3", "0x1020", "Habana"),
        ("0x0b4000", "0x1bcf", "0x001c", "NEC"),
        ("0x0b4000", "0x1e60", "0x45c4", "Hailo"),
        ("0x0b4000", "0x8086", "0x225c", "Intel"),  # Xeon Phi
        ("0x120000", "0x19e5", "0xd801", "Huawei"),  # Ascend 910
        ("0x120000", "0xffff", "0x0001", None),
    ],
)
def test_what_can_compute_is_an_accelerator(
    tmp_path: Path, class_code: str, vendor: str, device: str, name: str | None
) -> None:
    [card] = read(tmp_path, function("0000:01:00.0", class_code, vendor, device))
    assert (card.vendor, card.pci_address, card.segment) == (name, "0000:01:00.0", None)


@pytest.mark.parametrize(
    ("class_code", "vendor", "device"),
    [
        ("0x030000", "0x1a03", "0x2000"),  # ASPEED, a server's management chip
        ("0x030000", "0x102b", "0x0534"),  # Matrox G200, another
        ("0x030000", "0x1234", "0x1111"),  # QEMU's VGA
        ("0x030000", "0x15ad", "0x0405"),  # VMware SVGA
        ("0x030000", "0x1013", "0x00b8"),  # Cirrus, as QEMU emulates it
        ("0x038000", "0x1af4", "0x1050"),  # virtio-gpu
        ("0x030000", "0x1414", "0x5353"),  # Hyper-V video
        ("0x030000", "0x1002", "0x515e"),  # ATI ES1000, a server's console
        ("0x030000", "0x18ca", "0x0020"),  # XGI Z7
        ("0x040300", "0x10de", "0x228e"),  # a GeForce's sound
        ("0x0b4000", "0x8086", "0x37c8"),  # QuickAssist encrypts
        ("0x0b4000", "0x8086", "0x4948"),  # QuickAssist of a later generation
        ("0x0b4000", "0x8086", "0x2710"),  # the Dynamic Load Balancer of every Sapphire Rapids
        ("0x0b4000", "0x8086", "0x2714"),  # its next generation
        ("0x0b4000", "0x10de", "0x0aa3"),  # the power management of NVIDIA's nForce chipsets
        ("0x0b4000", "0x177d", "0x0011"),  # Cavium's encryption
        ("0x120000", "0x19e5", "0xa250"),  # a Kunpeng's compression
        ("0x120000", "0x19e5", "0xa251"),  # the same in a virtual machine
        ("0x020000", "0x8086", "0x1521"),
    ],
)
def test_what_cannot_compute_is_none(tmp_path: Path, class_code: str, vendor: str, device: str) -> None:
    assert read(tmp_path, function("0000:03:00.0", class_code, vendor, device)) == []


def test_intels_own_graphics_are_integrated(tmp_path: Path) -> None:
    files = function("0000:00:02.0", "0x030000", "0x8086", "0x4680") | function(
        "0000:03:00.0", "0x030000", "0x8086", "0x56a0"
    )
    assert [card.segment for card in read(tmp_path, files)] == ["integrated", None]


def test_amds_own_graphics_have_the_processors_functions_beside_them(tmp_path: Path) -> None:
    files = function("0000:04:00.0", "0x030000", "0x1002", "0x15bf")
    files |= function("0000:04:00.2", "0x108000", "0x1022", "0x15c7")  # the security processor
    files |= function("0000:03:00.0", "0x030000", "0x1002", "0x744c")
    files |= function("0000:03:00.1", "0x040300", "0x1002", "0xab30")  # a card's sound
    cards = {card.pci_address: card for card in read(tmp_path, files)}
    assert (cards["0000:04:00.0"].segment, cards["0000:04:00.0"].unified_memory) == ("integrated", True)
    assert (cards["0000:03:00.0"].segment, cards["0000:03:00.0"].unified_memory) == (None, None)


def test_what_the_kernel_bound_a_card_to_is_told(tmp_path: Path) -> None:
    files = function("0000:01:00.0", "0x030000", "0x10de", "0x2204") | function(
        "0000:02:00.0", "0x030000", "0x10de", "0x2204"
    )
    files[f"{BUS}/0000:02:00.0/uevent"] = "DRIVER=nouveau\n"
    write_machine(tmp_path, files)
    (tmp_path / BUS / "0000:01:00.0/driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")
    assert [card.kernel_driver for card in read(tmp_path, files)] == ["vfio-pci", "nouveau"]


def test_a_card_without_a_driver_is_named_by_its_ids(tmp_path: Path) -> None:
    files = function("0000:01:00.0", "0x030000", "0x10de", "0x2208")
    assert [card.name for card in read(tmp_path, files)] == ["NVIDIA GeForce RTX 3080 Ti"]


def test_devices_are_found_behind_bridges_where_the_bus_has_no_links(tmp_path: Path) -> None:
    bridge = "sys/devices/pci0000:00/0000:00:01.0"
    files = function("0000:00:01.0", "0x060400", "0x8086", "0x1901", "sys/devices/pci0000:00")
    files |= function("0000:01:00.0", "0x030000", "0x10de", "0x2204", bridge)
    assert [card.pci_address for card in read(tmp_path, files)] == ["0000:01:00.0"]


def test_uevent_serves_where_attributes_are_missing(tmp_path: Path) -> None:
    files = {f"{BUS}/0000:01:00.0/uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:20B0\n"}
    assert [card.vendor for card in read(tmp_path, files)] == ["NVIDIA"]


def test_the_link_is_told_as_it_is_and_as_it_could_be(tmp_path: Path) -> None:
    files = function("0000:01:00.0", "0x030000", "0x10de", "0x2204")
    files |= {
        f"{BUS}/0000:01:00.0/current_link_speed": "2.5 GT/s PCIe\n",
        f"{BUS}/0000:01:00.0/max_link_speed": "16.0 GT/s PCIe\n",
    }
    [card] = read(tmp_path, files)
    assert (card.pcie_generation, card.pcie_generation_maximum, card.pcie_lanes) == (1, 4, None)


def test_a_neural_processor_on_the_chip_is_a_part_of_the_cpu_that_torch_has_no_backend_for(tmp_path: Path) -> None:
    [card] = read(tmp_path, function("0000:00:0b.0", "0x120000", "0x8086", "0x7d1d"))
    assert (card.segment, card.usable) == ("integrated", False)
    assert "neural processor" in (card.why_not or "")


@pytest.mark.parametrize(
    ("class_code", "device"), [("0x120000", "0x0b30"), ("0x0b4000", "0x225c")], ids=["FPGA", "Xeon Phi"]
)
def test_what_else_intel_makes_is_no_gpu_without_a_driver(tmp_path: Path, class_code: str, device: str) -> None:
    files = function("0000:83:00.0", class_code, "0x8086", device)
    [card] = read(tmp_path / "unbound", files)
    assert (card.usable, card.why_not) == (False, NO_INTEL_GPU)
    assert not is_candidate(card)
    [driven] = read(tmp_path / "driven", files | {f"{BUS}/0000:83:00.0/uevent": "DRIVER=xe\n"})
    assert (driven.usable, is_candidate(driven)) == (None, True), "a GPU need not be a display controller"


def test_the_parts_that_a_card_is_shared_out_in_are_no_cards_of_their_own(tmp_path: Path) -> None:
    """Virtual functions on the host; in the machine that has one, nothing says so."""
    whole, part = "0000:01:00.0", "0000:01:00.4"
    files = function(whole, "0x030200", "0x10de", "0x2235") | function(part, "0x030200", "0x10de", "0x2235")
    root = write_machine(tmp_path / "host", files | {f"{BUS}/{part}/uevent": "DRIVER=nvidia\n"})
    (root / BUS / part / "physfn").symlink_to(f"../{whole}")
    assert [card.pci_address for card in read_pci_accelerators(Root(root))] == [whole]
    assert [card.pci_address for card in read(tmp_path / "guest", files)] == [whole, part]


def test_of_intels_graphics_parts_are_integrated_too_and_a_card_in_their_place_is_none(tmp_path: Path) -> None:
    parts = function("0000:00:02.0", "0x030000", "0x8086", "0xa780") | function(
        "0000:00:02.1", "0x030000", "0x8086", "0xa780"
    )
    assert [card.segment for card in read(tmp_path / "parts", parts)] == ["integrated"] * 2
    [card] = read(tmp_path / "guest", function("0000:00:02.0", "0x030000", "0x8086", "0x56a0"))  # Arc A770
    assert card.segment != "integrated"


@pytest.mark.parametrize(
    ("address", "name", "is_integrated"),
    [
        ("0000:00:10.0", "UHD Graphics 770", True),
        ("0000:00:10.0", "DG2 [Arc A770]", False),
        ("0000:00:10.0", None, False),
        ("0000:00:02.0", None, True),
        ("0000:00:02.0", "Intel Arc A770 Graphics", False),
        ("0000:03:00.0", "Intel Graphics", False),
    ],
)
def test_a_virtual_machine_may_have_intels_graphics_or_a_card_anywhere_on_bus_0(
    address: str, name: str | None, *, is_integrated: bool
) -> None:
    assert _is_intel_graphics(PciFunction(address, 0x030000, 0x8086, 0xA780), name) is is_integrated


@pytest.mark.parametrize("address", ["0000:00:02.0", "0000:00:10.0"])
@pytest.mark.parametrize(
    ("device", "is_integrated"),
    [("0xe20b", False), ("0x56a0", False), ("0x56b1", False), ("0x56ba", False), ("0x4908", False), ("0x4905", False),
     ("0xa780", True), ("0x7d55", True), ("0x9a49", True), ("0xb080", True)],
    ids=["Arc B580", "Arc A770", "Arc Pro A40/A50", "Arc A380E", "DG1", "Xe MAX",
         "UHD 770", "Arc of Meteor Lake", "Iris Xe", "Arc B390"],
)  # fmt: skip
def test_intels_cards_are_none_of_a_processor_wherever_a_virtual_machine_has_them(
    tmp_path: Path, address: str, device: str, *, is_integrated: bool
) -> None:
    [card] = read(tmp_path, function(address, "0x030000", "0x8086", device))
    assert (card.segment == "integrated", card.unified_memory is True) == (is_integrated, is_integrated), card.name


@pytest.mark.parametrize(
    ("device", "segment"),
    [("0x740f", None), ("0x130f", "integrated"), ("0x9874", "integrated")],
    ids=["Instinct MI210", "Kaveri", "Carrizo"],
)
def test_a_virtual_machine_may_have_amds_card_where_old_processors_have_their_graphics(
    tmp_path: Path, device: str, segment: str | None
) -> None:
    [card] = read(tmp_path, function("0000:00:01.0", "0x038000", "0x1002", device))
    assert (card.segment, card.unified_memory) == (segment, True if segment else None)


def test_garbled_attributes_are_no_device(tmp_path: Path) -> None:
    assert read(tmp_path, function("0000:01:00.0", "0x0300zz", "10de", "")) == []
    assert read(tmp_path, {f"{BUS}/not-an-address/class": "0x030000"}) == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("x", None),
    ],
)
def test_addresses_are_written_as_sysfs_writes_them(text: str, address: str | None) -> None:
    assert normalize_address(text) == address
