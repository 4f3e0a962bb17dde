"""AMD's cards from sysfs alone: what the amdgpu driver tells of each, without ROCm.

Files: Documentation/gpu/amdgpu (driver-misc, thermal, ras) and, for compute, the kernel's KFD topology
(drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
"""

import re
from dataclasses import dataclass, replace

from probes.gpu.amd_processes import read_processes
from probes.gpu.hwmon import MOST_MEMORY_BYTES, Sensors, read_sensors
from probes.gpu.naming import with_name_facts
from probes.hardware import Accelerator
from probes.names.gpu import parse_gpu_name
from probes.reading import Root, clean, parse_fields, parse_int

DRIVER = "amdgpu"
_NODES = "/sys/class/kfd/kfd/topology/nodes"
_MAX_NODES = 256
_MAX_ERRORS = 1 << 48
# More than any card has: what is beyond is no figure but an error.
_MOST_SIMDS, _MOST_BUS_BITS, _MOST_MEGAHERTZ = 1 << 16, 1 << 16, 100_000
# LLVM, "User Guide for AMDGPU Backend", Processors: the instruction set's name by generation.
_ARCHITECTURES = (
    (r"gfx90[0246c9]", "GCN 5"),
    (r"gfx908", "CDNA"),
    (r"gfx90a", "CDNA 2"),
    (r"gfx94[012]", "CDNA 3"),
    (r"gfx950", "CDNA 4"),
    (r"gfx101\d", "RDNA"),
    (r"gfx103\d", "RDNA 2"),
    (r"gfx110\d", "RDNA 3"),
    (r"gfx115\d", "RDNA 3.5"),
    (r"gfx120\d", "RDNA 4"),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU in the kernel's compute topology."""

    bus_address: str  # domain:bus:device, without the function: partitions of one card are functions here
    number: int | None = None  # KFD's own, by which it tells who uses the card
    gfx_target: str | None = None
    compute_units: int | None = None
    memory_bus_bits: int | None = None
    memory_clock_maximum_hz: int | None = None


def read_amd(root: Root, card: Accelerator, available_bytes: int | None = None) -> Accelerator:
    """What amdgpu adds to a card that it drives. available_bytes: what the machine's own memory has left."""
    folder = f"/sys/bus/pci/devices/{card.pci_address}"
    nodes = [node for node in read_nodes(root) if str(card.pci_address).startswith(f"{node.bus_address}.")]
    named = _name_by_board(card, clean(root.read(f"{folder}/product_name")))
    told = replace(
        named,
        id=_read_uuid(root, folder) or card.id,
        driver_version=clean(root.read(f"/sys/module/{DRIVER}/version")) or card.driver_version,
        utilization_percent=_read_percent(root, f"{folder}/gpu_busy_percent"),
        graphics_clock_maximum_hz=parse_highest_clock(root.read(f"{folder}/pp_dpm_sclk")),
        memory_clock_maximum_hz=parse_highest_clock(root.read(f"{folder}/pp_dpm_mclk")),
    )
    told = _add_sensors(told, read_sensors(root, folder, DRIVER))
    told = _add_errors(root, folder, told)
    told = _add_node(root, told, nodes[0]) if len(nodes) == 1 else told  # several: each partition is its own device
    return _add_memory(root, folder, told, available_bytes)


def _name_by_board(card: Accelerator, board: str | None) -> Accelerator:
    """The card under the words on its board, which say more than its PCI ids do and may be in no table
    (`AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2`): what it is then follows from the name that the ids gave it."""
    if board is None or parse_gpu_name(board) is not None:
        return with_name_facts(replace(card, name=board or card.name))
    facts = with_name_facts(card)
    return replace(facts, name=board)


def read_nodes(root: Root) -> tuple[Node, ...]:
    """The GPUs of the compute topology; a processor is a node without SIMD units."""
    return root.remember("kfd-nodes", lambda: _read_nodes(root))


def _read_nodes(root: Root) -> tuple[Node, ...]:
    found = (_read_node(root, f"{_NODES}/{name}") for name in root.list(_NODES)[:_MAX_NODES])
    return tuple(node for node in found if node is not None)


def _read_node(root: Root, folder: str) -> Node | None:
    fields = _parse_properties(root.read(f"{folder}/properties"))
    bank = _parse_properties(root.read(f"{folder}/mem_banks/0/properties"))
    location, simds, per_unit = fields.get("location_id"), fields.get("simd_count", 0), fields.get("simd_per_cu", 0)
    if location is None or simds <= 0:
        return None
    place = f"{fields.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    width, clock = bank.get("width", 0), bank.get("mem_clk_max", 0)
    return Node(
        bus_address=place,
        number=root.read_int(f"{folder}/gpu_id"),
        gfx_target=name_target(fields.get("gfx_target_version", 0)),
        compute_units=simds // per_unit if 0 < per_unit <= simds <= _MOST_SIMDS else None,
        memory_bus_bits=width if 0 < width <= _MOST_BUS_BITS else None,
        memory_clock_maximum_hz=clock * 1_000_000 if 0 < clock <= _MOST_MEGAHERTZ else None,
    )


def name_target(version: int) -> str | None:
    """110000 is gfx1100, 90010 gfx90a: major, minor and stepping in two decimal digits each; the last two in hex."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if 0 < major < 100 and minor < 16 and stepping < 16 else None


def name_architecture(target: str | None) -> str | None:
    return next((name for pattern, name in _ARCHITECTURES if re.fullmatch(pattern, target or "")), None)


def parse_highest_clock(text: str | None) -> int | None:
    """The highest of the levels in pp_dpm_sclk (`1: 2525Mhz *`), in hertz."""
    found = [
        int(number) for number in re.findall(r"^\s*\w+:\s*(\d{1,6})\s*MHz", text or "", re.MULTILINE | re.IGNORECASE)
    ]
    return max(found) * 1_000_000 or None if found else None


def parse_error_counts(text: str | None) -> tuple[int | None, int | None]:
    """(corrected, uncorrected) of ras/umc_err_count: `ue: 0` and `ce: 2` on a line each."""
    fields = parse_fields(text or "")
    return _count(fields.get("ce")), _count(fields.get("ue"))


def _count(text: str | None) -> int | None:
    number = parse_int(text)
    return number if number is not None and 0 <= number < _MAX_ERRORS else None


def _add_sensors(card: Accelerator, sensors: Sensors | None) -> Accelerator:
    if sensors is None:
        return card
    return replace(
        card,
        temperature_celsius=sensors.temperature("edge", "junction", "temp1"),
        power_watts=sensors.power_watts,
        power_limit_watts=sensors.power_limit_watts,
        power_limit_default_watts=sensors.power_limit_default_watts,
        graphics_clock_hz=sensors.clocks_hz.get("sclk"),
        memory_clock_hz=sensors.clocks_hz.get("mclk"),
    )


def _add_errors(root: Root, folder: str, card: Accelerator) -> Accelerator:
    """Bit 0 of the RAS feature mask is the memory controller's (AMDGPU_RAS_BLOCK__UMC)."""
    corrected, uncorrected = parse_error_counts(root.read(f"{folder}/ras/umc_err_count"))
    mask = re.search(r"feature mask:\s*0x([0-9a-f]{1,16})", root.read(f"{folder}/ras/features") or "", re.IGNORECASE)
    enabled = bool(int(mask[1], 16) & 1) if mask else None
    return replace(card, ecc_enabled=enabled, ecc_corrected_errors=corrected, ecc_uncorrected_errors=uncorrected)


def _add_node(root: Root, card: Accelerator, node: Node) -> Accelerator:
    return replace(
        card,
        processes=None if node.number is None else read_processes(root, node.number),
        gfx_target=node.gfx_target,
        architecture=card.architecture or name_architecture(node.gfx_target),
        multiprocessors=node.compute_units,
        memory_bus_bits=node.memory_bus_bits if card.unified_memory is not True else None,
        memory_clock_maximum_hz=card.memory_clock_maximum_hz or node.memory_clock_maximum_hz,
    )


def _add_memory(root: Root, folder: str, card: Accelerator, available_bytes: int | None) -> Accelerator:
    """A card's own memory; of a GPU that shares the machine's, the pool that compute draws from.

    Such a GPU has a carve-out ("VRAM") and a share of the machine's memory ("GTT"). Compute takes the larger one: the
    driver puts every allocation into GTT where that is larger (`apu_prefer_gtt` in amdgpu_device.c), and it can never
    be given more of it than the machine has left. Without both figures the pool is not known here.
    """
    total, free = _read_pool(root, folder, "vram")
    if card.unified_memory is not True:
        return replace(card, memory_total_bytes=total or card.memory_total_bytes, memory_free_bytes=free)
    shared, shared_free = _read_pool(root, folder, "gtt")
    if total is None or shared is None:
        return card
    if total >= shared:
        return replace(card, memory_total_bytes=total, memory_free_bytes=free)
    known = [bytes_left for bytes_left in (shared_free, available_bytes) if bytes_left is not None]
    return replace(card, memory_total_bytes=shared, memory_free_bytes=min(known) if shared_free is not None else None)


def _read_pool(root: Root, folder: str, pool: str) -> tuple[int | None, int | None]:
    total = root.read_int(f"{folder}/mem_info_{pool}_total")
    used = root.read_int(f"{folder}/mem_info_{pool}_used")
    if total is None or not 0 < total <= MOST_MEMORY_BYTES:
        return None, None
    return total, total - used if used is not None and 0 <= used <= total else None


def _read_uuid(root: Root, folder: str) -> str | None:
    """As ROCm names the card (`GPU-` and 16 digits); None for cards without a number of their own."""
    number = parse_int(root.read(f"{folder}/unique_id"), 16)
    return f"GPU-{number:016x}" if number is not None and 0 < number < 1 << 64 else None


def _read_percent(root: Root, path: str) -> float | None:
    number = root.read_int(path)
    return float(number) if number is not None and 0 <= number <= 100 else None


def _parse_properties(text: str | None) -> dict[str, int]:
    """`simd_count 192` lines."""
    numbers = {name: parse_int(value) for name, value in parse_fields(text or "", " ").items()}
    return {name: number for name, number in numbers.items() if number is not None}
