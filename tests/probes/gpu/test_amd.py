"""AMD's cards as the amdgpu driver writes them into sysfs (Documentation/gpu/amdgpu)."""

from dataclasses import replace
from pathlib import Path

import pytest

from probes.gpu.amd import name_architecture, name_target, parse_error_counts, parse_highest_clock, read_amd
from probes.gpu.naming import with_name_facts
from probes.hardware import Accelerator
from probes.reading import Root
from tests.probes.machines import GIB, Files, write_machine

CARD = Accelerator("pci-0000:c3:00.0", vendor="AMD", pci_address="0000:c3:00.0", kernel_driver="amdgpu")
FOLDER = "sys/bus/pci/devices/0000:c3:00.0"
NODES = "sys/class/kfd/kfd/topology/nodes"


def device(**files: str) -> Files:
    return {f"{FOLDER}/{name}": text for name, text in files.items()}


def sensors(folder: str = f"{FOLDER}/hwmon/hwmon5", **files: str) -> Files:
    return {f"{folder}/{name}": text for name, text in {"name": "amdgpu\n", **files}.items()}


def node(number: int, location: int = 0xC300, **properties: int) -> Files:
    rows = {"simd_count": 192, "simd_per_cu": 2, "gfx_target_version": 110000, "location_id": location, "domain": 0}
    text = "".join(f"{name} {value}\n" for name, value in (rows | properties).items())
    return {f"{NODES}/{number}/properties": text, f"{NODES}/0/properties": "cpu_cores_count 16\nsimd_count 0\n"}


RADEON = (
    device(
        unique_id="a1b2c3d4e5f60718\n",
        gpu_busy_percent="37\n",
        mem_info_vram_total=f"{24 * GIB}\n",
        mem_info_vram_used=f"{2 * GIB}\n",
        mem_info_gtt_total=f"{32 * GIB}\n",
        mem_info_gtt_used="0\n",
        pp_dpm_sclk="0: 500Mhz *\n1: 2371Mhz \n2: 2525Mhz \n",
        pp_dpm_mclk="0: 96Mhz *\n1: 1249Mhz\n",
    )
    | sensors(
        temp1_input="41000\n", temp1_label="edge\n", temp2_input="47000\n", temp2_label="junction\n",
        power1_average="18000000\n", power1_cap="327000000\n", power1_cap_default="339000000\n",
        freq1_input="500000000\n", freq1_label="sclk\n", freq2_input="96000000\n", freq2_label="mclk\n",
    )
    | node(1)
    | {f"{NODES}/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 25753026560\nwidth 384\nmem_clk_max 1249\n"}
)  # fmt: skip


def read(folder: Path, files: Files, card: Accelerator = CARD, available_bytes: int | None = None) -> Accelerator:
    return read_amd(Root(write_machine(folder, files)), card, available_bytes)


def test_a_radeon_tells_all_of_itself(tmp_path: Path) -> None:
    card = read(tmp_path, RADEON)
    assert (card.id, card.gfx_target, card.architecture) == ("GPU-a1b2c3d4e5f60718", "gfx1100", "RDNA 3")
    assert (card.memory_total_bytes, card.memory_free_bytes) == (24 * GIB, 22 * GIB)
    assert (card.multiprocessors, card.memory_bus_bits, card.utilization_percent) == (96, 384, 37.0)
    assert (card.temperature_celsius, card.power_watts) == (41.0, 18.0)
    assert (card.power_limit_watts, card.power_limit_default_watts) == (327.0, 339.0)
    assert (card.graphics_clock_hz, card.graphics_clock_maximum_hz) == (500_000_000, 2_525_000_000)
    assert (card.memory_clock_hz, card.memory_clock_maximum_hz) == (96_000_000, 1_249_000_000)


@pytest.mark.parametrize("missing", sorted(name for name in RADEON if not name.endswith(("/name", "_label"))))
def test_one_missing_file_is_not_the_cards_end(tmp_path: Path, missing: str) -> None:
    card = read(tmp_path, {name: text for name, text in RADEON.items() if name != missing})
    whole = read(tmp_path / "whole", RADEON)
    lost = [name for name in Accelerator.__dataclass_fields__ if getattr(card, name) != getattr(whole, name)]
    assert all(getattr(card, name) in (None, CARD.id, 47.0) for name in lost), "47: the junction, for want of the edge"


def test_nothing_but_a_bound_driver_is_all_null(tmp_path: Path) -> None:
    assert read(tmp_path, {}) == CARD


def test_an_instinct_has_its_name_and_its_errors(tmp_path: Path) -> None:
    files = device(product_name="AMD Instinct MI210\n", unique_id="0\n")
    files |= {f"{FOLDER}/ras/features": "feature mask: 0x17f7f\n", f"{FOLDER}/ras/umc_err_count": "ue: 1\nce: 20\n"}
    files |= sensors(temp2_input="52000\n", temp2_label="junction\n", power1_input="44000000\n")
    card = read(tmp_path, files | node(2, gfx_target_version=90010, simd_count=416, simd_per_cu=4))
    assert (card.id, card.name, card.segment) == (CARD.id, "AMD Instinct MI210", "data-center")
    assert (card.gfx_target, card.architecture, card.multiprocessors) == ("gfx90a", "CDNA 2", 104)
    assert (card.ecc_enabled, card.ecc_corrected_errors, card.ecc_uncorrected_errors) == (True, 20, 1)
    assert (card.temperature_celsius, card.power_watts) == (52.0, 44.0)


def test_a_board_whose_words_no_table_knows_is_what_its_pci_ids_say(tmp_path: Path) -> None:
    """Its own words stay its name: fingerprints are made of them."""
    plate = "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"
    by_ids = replace(CARD, name="AMD Instinct MI250X")
    card = read(tmp_path, device(product_name=f"{plate}\n"), by_ids)
    assert (card.name, card.generation, card.segment) == (plate, "Instinct MI200", "data-center")
    assert card.tier_meaning
    known = read(tmp_path / "known", device(product_name="AMD Instinct MI210\n"), by_ids)
    assert (known.name, known.tier) == ("AMD Instinct MI210", with_name_facts(replace(by_ids, name=known.name)).tier)


def test_a_card_split_into_partitions_has_no_units_of_its_own(tmp_path: Path) -> None:
    """Each partition is a node and a device of torch's; what one has is not what the card has."""
    card = read(tmp_path, node(1) | node(2, location=0xC301))
    assert (card.multiprocessors, card.gfx_target) == (None, None)


APU = Accelerator(CARD.id, vendor="AMD", pci_address=CARD.pci_address, segment="integrated", unified_memory=True)


@pytest.mark.parametrize(
    ("carve_out", "share", "available", "total", "free"),
    [
        (GIB // 2, 16 * GIB, None, 16 * GIB, 15 * GIB),  # the usual: half a gigabyte set aside
        (GIB // 2, 16 * GIB, 3 * GIB, 16 * GIB, 3 * GIB),
        (96 * GIB, 16 * GIB, 3 * GIB, 96 * GIB, 96 * GIB - 1),  # a firmware that sets most of it aside
        (GIB // 2, None, None, None, None),
        (None, 16 * GIB, None, None, None),
    ],
)
def test_a_shared_pool_is_told_and_not_the_carve_out(
    tmp_path: Path, carve_out: int | None, share: int | None, available: int | None, total: int | None, free: int | None
) -> None:
    files = device(mem_info_vram_used="1\n", mem_info_gtt_used=f"{GIB}\n")
    files |= device(mem_info_vram_total=f"{carve_out}\n") if carve_out else {}
    files |= device(mem_info_gtt_total=f"{share}\n") if share else {}
    card = read(tmp_path, files, APU, available)
    assert (card.memory_total_bytes, card.memory_free_bytes, card.unified_memory) == (total, free, True)


def test_an_mi300a_shares_its_memory_though_it_is_no_graphics_of_a_processor(tmp_path: Path) -> None:
    files = device(
        product_name="AMD Instinct MI300A\n", mem_info_vram_total="1\n", mem_info_vram_used="0\n",
        mem_info_gtt_total=f"{128 * GIB}\n", mem_info_gtt_used="0\n",
    )  # fmt: skip
    card = read(tmp_path, files)
    assert (card.unified_memory, card.segment, card.memory_total_bytes) == (True, "data-center", 128 * GIB)


@pytest.mark.parametrize(
    "garbage", ["", "x", "-1", "9" * 500, "\0", "0x", "nan", "1e9", "18446744073709551615", "-5\n-5", "\xff"]
)
def test_rubbish_is_no_fact(tmp_path: Path, garbage: str) -> None:
    card = read(tmp_path, dict.fromkeys((name for name in RADEON if not name.endswith("/name")), garbage))
    assert card.utilization_percent is None
    for name in ("power_watts", "temperature_celsius", "memory_free_bytes", "memory_bus_bits", "multiprocessors"):
        assert getattr(card, name) is None
    assert card.architecture is None


@pytest.mark.parametrize(
    ("version", "target", "architecture"),
    [
        (90006, "gfx906", "GCN 5"),
        (90008, "gfx908", "CDNA"),
        (90402, "gfx942", "CDNA 3"),
        (90500, "gfx950", "CDNA 4"),
        (100302, "gfx1032", "RDNA 2"),
        (110501, "gfx1151", "RDNA 3.5"),
        (120001, "gfx1201", "RDNA 4"),
        (130000, "gfx1300", None),
        (0, None, None),
        (-1, None, None),
        (10**30, None, None),
    ],
)
def test_a_number_of_the_kernels_is_an_instruction_set(
    version: int, target: str | None, architecture: str | None
) -> None:
    assert (name_target(version), name_architecture(target)) == (target, architecture)


def test_clocks_and_counts_are_read_as_the_driver_writes_them() -> None:
    assert parse_highest_clock("S: 19Mhz *\n0: 615Mhz\n1: 800Mhz\n") == 800_000_000
    assert parse_highest_clock("garbage") is None
    assert parse_error_counts("ue: 0\nce: 3\n") == (3, 0)
    assert parse_error_counts("ue: -1\nce: x\n") == (None, None)
