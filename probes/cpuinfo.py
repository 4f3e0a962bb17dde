"""/proc/cpuinfo as the kernel writes it on every architecture: pure text to fields.

The keys that name the vendor and the model differ by architecture (util-linux's lscpu reads the same ones):
x86 `vendor_id`, `model name`; ARM `CPU implementer`, `CPU part`; POWER and SPARC `cpu`; MIPS `system type`, `cpu
model`; RISC-V `mvendorid`, `uarch`; LoongArch `Model Name`; s390 `vendor_id`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from probes.cpusets import MAX_CPUS
from probes.reading import LARGE_FILE_BYTES, Root

VENDOR_KEYS = ("vendor_id", "vendor", "CPU implementer", "mvendorid", "system type")
NAME_KEYS = ("model name", "Model Name", "cpu model", "cpu", "uarch")
FLAG_KEYS = ("flags", "Features", "features", "ASEs implemented", "isa", "ISA")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_STRANGE = re.compile(r"[^\t\n\r -~]")  # the kernel writes printable ASCII here, tabs and newlines
_MAX_FIELDS = 4096  # of one processor; s390 writes a line a processor into the common block


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """`processors`: each online CPU's own fields by its number; `common`: what is said once for all."""

    processors: dict[int, dict[str, str]] = field(default_factory=dict)
    common: dict[str, str] = field(default_factory=dict)

    def first(self, *keys: str) -> str | None:
        """The value of the first of these keys that any processor, or the common part, has."""
        holders = [*self.processors.values(), self.common]
        for key in keys:
            for holder in holders:
                if value := holder.get(key):
                    return value
        return None

    def of(self, cpu: int, *keys: str) -> str | None:
        """Like `first`, for one processor; the common part speaks where it is silent."""
        own = self.processors.get(cpu, {})
        return next((value for key in keys if (value := own.get(key) or self.common.get(key))), None)


def read_cpuinfo(root: Root) -> CpuInfo:
    """/proc/cpuinfo, read once for a root; without processors where it cannot be read."""
    return root.remember("cpuinfo", lambda: parse_cpuinfo(read_cpuinfo_text(root)))


def read_cpuinfo_text(root: Root) -> str:
    """What can be believed of /proc/cpuinfo, read once for a root; empty where it cannot be read."""
    return root.remember("cpuinfo text", lambda: keep_whole_lines(root.read("/proc/cpuinfo", LARGE_FILE_BYTES) or ""))


def keep_whole_lines(text: str) -> str:
    """Without lines that the kernel never writes, and without what was cut off at the end: half a name is a wrong one.

    Of a list of flags cut short, all but the last stand.
    """
    whole = text if _STRANGE.search(text) is None else _drop_strange_lines(text)
    if whole.endswith("\n") or not whole:
        return whole
    before, newline, last = whole.rpartition("\n")
    key, _, flags = last.partition(":")
    return f"{before}{newline}{last.rpartition(' ')[0]}\n" if key.strip() in FLAG_KEYS and flags else before + newline


def _drop_strange_lines(text: str) -> str:
    lines = (match[0] for match in _LINE.finditer(text))
    return "".join(line for line in lines if _STRANGE.search(line) is None)


def parse_cpuinfo(text: str) -> CpuInfo:
    """Any text gives a CpuInfo; one without processors when it is not a cpuinfo."""
    processors: dict[int, dict[str, str]] = {}
    common: dict[str, str] = {}
    for block in _split_blocks(text):
        number = block.get("processor", block.get("cpu number", ""))
        if number.isascii() and number.isdigit() and len(number) < 8 and int(number) < MAX_CPUS:
            processors.setdefault(int(number), {}).update(block)
        elif len(common) < _MAX_FIELDS:
            for key, value in block.items():
                common.setdefault(key, value)
    _add_s390(common, processors)
    return CpuInfo(processors, common)


def _split_blocks(text: str) -> Iterator[dict[str, str]]:
    """Blocks end at a blank line, or where a second `processor` begins without one."""
    block: dict[str, str] = {}
    for match in _LINE.finditer(text):
        key, colon, value = match[0].partition(":")
        key = key.strip()
        ends = not key if not colon else key == "processor" and "processor" in block
        if ends and block:
            yield block
            block = {}
        if colon and len(block) < _MAX_FIELDS:
            block.setdefault(key, value.strip())
    if block:
        yield block


def _add_s390(common: dict[str, str], processors: dict[int, dict[str, str]]) -> None:
    """Older s390 kernels write `processor 3: version = FF, …` in one common block."""
    for key in [key for key in common if key.startswith("processor ")]:
        number = key.removeprefix("processor ").strip()
        if number.isascii() and number.isdigit() and len(number) < 8 and int(number) < MAX_CPUS:
            processors.setdefault(int(number), {})
