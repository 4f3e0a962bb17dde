"""Which microarchitecture a CPU has, from /proc/cpuinfo and archspec's data.

archspec tells from the instruction sets, on this host only; here its data answer for any machine's cpuinfo. On x86
family and model tell too (cpu_models.toml). They can disagree in a virtual machine: flags that are missing are only
masked, and family and model are believed; flags that the model cannot have mean that the model is made up, and then
there is no name but a reason.
"""

import json
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from probes.cpuinfo import FLAG_KEYS, CpuInfo
from probes.reading import parse_int

_RISCV_NAMES = {"sifive,u74-mc": "u74mc", "spacemit,x60": "x60", "Spacemit(R) X60": "x60"}  # as archspec's detect.py
_NAMES = {  # archspec's names as their makers write them, where capitals and spaces alone do not do
    "sandybridge": "Sandy Bridge",
    "ivybridge": "Ivy Bridge",
    "skylake_avx512": "Skylake AVX-512",
    "cascadelake": "Cascade Lake",
    "cannonlake": "Cannon Lake",
    "icelake": "Ice Lake",
    "sapphirerapids": "Sapphire Rapids",
    "alderlake": "Alder Lake",
    "arrowlake": "Arrow Lake",
    "arrowlake_s": "Arrow Lake-S",
    "mic_knl": "Knights Landing",
    "core2": "Core 2",
    "thunderx2": "ThunderX2",
    "a64fx": "A64FX",
    "cortex_a72": "Cortex-A72",
    "neoverse_v3ae": "Neoverse V3AE",
    "ampere1": "Ampere-1",
    "ampere1a": "Ampere-1A",
    "u74mc": "U74-MC",
    "x60": "X60",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One of archspec's microarchitectures."""

    name: str
    vendor: str
    features: frozenset[str]
    ancestors: frozenset[str]
    generation: int
    cpu_part: str


def identify(cpuinfo: CpuInfo, architecture: str | None) -> tuple[str | None, str | None]:
    """Name and, where it needs explaining, the reason for it or for its absence."""
    by_flags = match_target(cpuinfo, architecture)
    row = _find_row(cpuinfo) if architecture in ("x86_64", "i686") else None
    if row is None:
        return (write_out(by_flags.name), None) if by_flags else (None, None)
    return _weigh(row, by_flags)


def _weigh(row: dict[str, Any], by_flags: Target | None) -> tuple[str | None, str | None]:
    target = load_targets()[row["target"]]
    name = row.get("name") or write_out(row["target"])
    if by_flags is None or by_flags.name == target.name or by_flags.name in target.ancestors:
        return name, None
    if "name" in row and by_flags.vendor == "generic":
        return name, None
    return None, (
        f"microarchitecture: family and model say {name}, the instruction sets say {write_out(by_flags.name)}; "
        "neither was believed"
    )


def match_target(cpuinfo: CpuInfo, architecture: str | None) -> Target | None:
    """The newest of archspec's targets that this CPU satisfies (archspec.cpu.detect.host); None for a generic one."""
    targets = load_targets()
    family = {"i686": "x86_64", "arm64": "aarch64"}.get(architecture or "", architecture or "")
    if family not in targets:
        return None
    flags = frozenset((cpuinfo.first(*FLAG_KEYS) or "").split())
    kin = [target for target in targets.values() if family == target.name or family in target.ancestors]
    candidates = [target for target in kin if _satisfies(target, family, flags, cpuinfo)]
    levels = [target for target in candidates if target.vendor == "generic"]
    if not levels:
        return None
    level = max(levels, key=lambda target: len(target.ancestors))
    # A part that lacks a feature of its generic level is archspec's way to see that it is another part.
    named = [target for target in candidates if target.vendor != "generic" and level.name in target.ancestors]
    return max(named, key=lambda target: (len(target.ancestors), len(target.features)), default=None)


def _satisfies(target: Target, family: str, flags: frozenset[str], cpuinfo: CpuInfo) -> bool:
    if target.vendor == "generic":  # levels such as x86_64_v3; ARM's cannot be told from the flags
        return target.features <= flags and (family != "aarch64" or target.name == family)
    if family == "x86_64":
        return target.vendor == cpuinfo.first("vendor_id") and target.features <= flags
    if family == "aarch64":  # only an exact part: what merely has the same features is another design
        return target.cpu_part == (cpuinfo.first("CPU part") or "").lower() and _is_maker(target, cpuinfo)
    if family.startswith("ppc64"):
        found = re.search(r"POWER(\d{1,2})", cpuinfo.first("cpu") or "")
        return found is not None and target.generation == int(found.group(1))
    return target.name == _RISCV_NAMES.get(cpuinfo.first("uarch") or cpuinfo.first("model name") or "")


def _is_maker(target: Target, cpuinfo: CpuInfo) -> bool:
    makers: dict[str, str] = load_database()["conversions"]["arm_vendors"]
    return makers.get(cpuinfo.first("CPU implementer") or "") == target.vendor


def write_out(name: str) -> str:
    """archspec's `zen4` as people write it: `Zen 4`."""
    if name in _NAMES:
        return _NAMES[name]
    if found := re.fullmatch(r"power(\d+)(le)?", name):
        return f"POWER{found.group(1)}"
    if found := re.fullmatch(r"(zen)(\d)", name):
        return f"Zen {found.group(2)}"
    if found := re.fullmatch(r"neoverse_([a-z]\d)", name):
        return f"Neoverse {found.group(1).upper()}"
    return name.upper() if re.fullmatch(r"[a-z]\d+", name) else name.replace("_", " ").title()


@lru_cache(maxsize=1)
def load_database() -> dict[str, Any]:
    """archspec's microarchitectures.json, found without importing archspec (which takes 25 ms)."""
    spec = find_spec("archspec")
    if spec is None or not spec.submodule_search_locations:
        return {"microarchitectures": {}, "conversions": {"arm_vendors": {}}}
    path = Path(next(iter(spec.submodule_search_locations))) / "json" / "cpu" / "microarchitectures.json"
    database: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return database


@lru_cache(maxsize=1)
def load_targets() -> dict[str, Target]:
    rows = load_database()["microarchitectures"]

    def ancestors(name: str) -> frozenset[str]:
        parents = rows[name]["from"]
        return frozenset(parents).union(*(ancestors(parent) for parent in parents))

    return {
        name: Target(
            name,
            row["vendor"],
            frozenset(row["features"]),
            ancestors(name),
            row.get("generation") or 0,
            (row.get("cpupart") or "").lower(),
        )
        for name, row in rows.items()
    }


@lru_cache(maxsize=1)
def _load_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("cpu_models.toml").read_text("utf-8"))["row"]
    return rows


def _find_row(cpuinfo: CpuInfo) -> dict[str, Any] | None:
    vendor, family = cpuinfo.first("vendor_id"), parse_int(cpuinfo.first("cpu family"))
    model, stepping = parse_int(cpuinfo.first("model")), parse_int(cpuinfo.first("stepping"))
    for row in _load_rows():
        if row["vendor"] != vendor or row["family"] != family or row["target"] not in load_targets():
            continue
        if "steppings" in row and stepping not in row["steppings"]:
            continue
        if "models" not in row and "ranges" not in row:
            return row
        if model in row.get("models", ()) or any(low <= (model or 0) <= high for low, high in row.get("ranges", ())):
            return row
    return None
