"""Cards whose files say anything at all: no crash, and no figure that cannot be."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from probes.gpu.amd import read_amd
from probes.gpu.intel import read_intel
from probes.gpu.pci import read_pci_accelerators
from probes.hardware import Accelerator
from probes.reading import Root
from tests.probes.gpu.test_amd import FOLDER, RADEON
from tests.probes.gpu.test_intel import XE
from tests.probes.machines import Files

PLACE = "0000:c3:00.0"
BUS: Files = {f"{FOLDER}/{name}": text for name, text in
              {"class": "0x030000", "vendor": "0x1002", "device": "0x744c", "revision": "0xc8"}.items()}  # fmt: skip
FILES: Files = RADEON | BUS | {name.replace("0000:03:00.0", PLACE): text for name, text in XE.items()}
NUMBERS = (
    "utilization_percent", "memory_total_bytes", "memory_free_bytes", "power_watts", "power_limit_watts",
    "power_limit_default_watts", "multiprocessors", "memory_bus_bits", "graphics_clock_hz", "graphics_clock_maximum_hz",
    "memory_clock_hz", "memory_clock_maximum_hz", "ecc_corrected_errors", "ecc_uncorrected_errors", "pcie_generation",
    "pcie_lanes",
)  # fmt: skip

TEXTS = st.one_of(
    st.text(max_size=40),
    st.integers().map(str),
    st.sampled_from(
        ["", "-1", "0", "N/A", "0x", "nan", "1e400", "\0\0", "9" * 5000, "18446744073709551615", "1\n2\n3"]
    ),
)
CHANGES = st.dictionaries(st.sampled_from(sorted(FILES)), TEXTS | st.none(), max_size=8)


def write(folder: Path, changes: dict[str, str | None]) -> Root:
    """None: a folder in the file's place."""
    for name, text in (FILES | changes).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.mkdir()
        else:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return Root(folder)


def check(card: Accelerator) -> None:
    for name in NUMBERS:
        value = getattr(card, name)
        assert value is None or 0 <= value < 1 << 60, name
    if card.memory_free_bytes is not None:
        assert card.memory_total_bytes is not None
        assert card.memory_free_bytes <= card.memory_total_bytes
    assert card.temperature_celsius is None or -100 < card.temperature_celsius < 200
    assert card.name is None or card.name.isprintable()


@settings(max_examples=60, deadline=None)
@given(CHANGES)
def test_whatever_its_files_say_a_card_has_only_figures_that_can_be(changes: dict[str, str | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write(Path(folder), changes)
        for card in read_pci_accelerators(root):
            check(card)
            check(read_amd(root, card, 1))
            check(read_intel(root, card))
        shared = Accelerator("x", vendor="AMD", pci_address=PLACE, unified_memory=True)
        check(read_amd(root, shared, 1 << 40))
