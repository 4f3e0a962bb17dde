"""The instruction sets that matter to torch: what a CPU shows of them, and which one torch takes.

Pure code; the names and their sources are in instruction_sets.toml.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from probes.names.microarchitecture import expected_instruction_sets

__all__ = [
    "choose_torch_instruction_set",
    "expected_instruction_sets",
    "matters",
    "parse_instruction_sets",
    "sve_bits_of",
]


_MAX_FLAGS = 2000  # an x86 CPU of 2026 has about 170
_AVX512 = frozenset({"avx512vl", "avx512bw", "avx512dq", "fma"})
_AVX2 = frozenset({"avx2", "fma"})


@cache
def _read_table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("instruction_sets.toml").read_text("utf-8"))


@cache
def matters(name: str) -> bool:
    """Whether torch, or a library below it, chooses its code by this instruction set."""
    rows = _read_table()["matter"]
    return any(name in row["exact"] or name.startswith(tuple(row["prefixes"])) for row in rows)


def parse_instruction_sets(flags: str, processor: str = "") -> tuple[str, ...]:
    """Those that matter among the kernel's flags, sorted, each once.

    flags: /proc/cpuinfo's `flags`, `Features` or `isa`, as it stands. processor: POWER's `cpu` line, its only witness.
    """
    words = _split_isa(flags) if flags.startswith("rv") else flags.split()[:_MAX_FLAGS]
    words = [*words, *_power_sets(processor)]
    return tuple(sorted({word for word in words if len(word) < 64 and matters(word)}))


def _split_isa(isa: str) -> list[str]:
    """RISC-V's `rv64imafdcv_zba_zvfh`: single letters after the width, then names between underscores."""
    base, *names = isa.split()[0].split("_")[:_MAX_FLAGS]
    return [*base[4:], *names]


def _power_sets(processor: str) -> list[str]:
    """`POWER9 (raw), altivec supported`, `POWER8NVL (raw), …`; VSX came with Power ISA 2.06, which is POWER7."""
    found = re.match(r"POWER(\d{1,2})(?!\d)", processor, re.ASCII)
    sets = ["altivec"] if "altivec supported" in processor else []
    return [*sets, "vsx"] if sets and found and int(found[1]) >= 7 else sets


def choose_torch_instruction_set(
    architecture: str | None,
    instruction_sets: Iterable[str],
    sve_bits: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """What torch.backends.cpu.get_cpu_capability() answers; None where no torch is built for the architecture.

    sve_bits: the width of SVE's vectors. environment: ATEN_CPU_CAPABILITY overrides the choice, unchecked on x86.
    Rules: torch's DispatchStub.cpp; checked against the installed torch in tests/probes/test_instruction_sets.py.
    """
    sets = frozenset(instruction_sets)
    wanted = (environment or {}).get("ATEN_CPU_CAPABILITY")
    if architecture in ("x86_64", "AMD64"):
        return _choose_x86(sets, wanted)
    if architecture == "aarch64":
        return _choose_arm(sets, sve_bits, wanted)
    if architecture in ("ppc64le", "s390x"):
        return "DEFAULT" if wanted == "default" else _choose_other(architecture, sets)
    return None


def _choose_x86(sets: frozenset[str], wanted: str | None) -> str:
    overrides = {"avx512": "AVX512", "avx2": "AVX2", "default": "DEFAULT"}
    if wanted in overrides:
        return overrides[wanted]
    return "AVX512" if sets >= _AVX512 else "AVX2" if sets >= _AVX2 else "DEFAULT"


def _choose_arm(sets: frozenset[str], sve_bits: int | None, wanted: str | None) -> str | None:
    """256-bit SVE with bfloat16 has kernels of its own; every other width takes those for NEON."""
    if wanted == "default" or not sets >= {"sve", "bf16"}:
        return "DEFAULT"
    return None if sve_bits is None else "SVE256" if sve_bits == 256 else "DEFAULT"


def _choose_other(architecture: str, sets: frozenset[str]) -> str:
    if architecture == "s390x":
        return "Z VECTOR" if "vxe" in sets else "DEFAULT"
    return "VSX"


def sve_bits_of(microarchitecture: str | None) -> int | None:
    """The width of SVE's vectors in this design; None where the table does not have it."""
    found = _read_table()["sve_bits"].get(microarchitecture)
    return found if isinstance(found, int) else None
