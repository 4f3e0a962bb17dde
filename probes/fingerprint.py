"""The fingerprint: what a profile was measured on, in 16 hexadecimal digits.

It is made of the machine's identity: the facts that change how fast and how large something trains, and none that
pass. IDENTITY names them, field by field; docs/decisions/0006-what-the-fingerprint-is.md says why each is in or out.
"""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from probes.gpu.renamed import may_rename, renamed_devices
from probes.hardware import (
    Accelerator,
    CoreCluster,
    Cpu,
    Driver,
    Memory,
    Outcome,
    ProbeReport,
    Software,
    Survey,
    Torch,
)

# Part of the identity -> its facts; None: what should have told of it failed. Plain JSON, so that it can be stored.
Identity: TypeAlias = dict[str, Any]

# The fields that the identity is made of. A field of another fact, or one that is not named here, never changes it.
# Those of a cluster count where only some of the CPUs may be used, and those of a card behind its driver's version
# where torch's names stand for other kinds of card than where none is hidden.
IDENTITY: dict[type, frozenset[str]] = {
    Cpu: frozenset(
        {
            "name",
            "vendor_id",
            "architecture",
            "sockets",
            "physical_cores",
            "logical_cores",
            "instruction_sets",
            "torch_instruction_set",
            "usable_cores",
            "clusters",
        }
    ),
    CoreCluster: frozenset({"physical_cores", "logical_cores", "allowed_physical_cores", "allowed_logical_cores"}),
    Memory: frozenset({"limit_bytes"}),
    Accelerator: frozenset(
        {
            "id",
            "vendor",
            "name",
            "driver_version",
            "torch_device",
            "kernel_driver",
            "pci_address",
            "parent_id",
            "mig_mode",
            "memory_total_bytes",
            "compute_capability",
            "gfx_target",
            "pcie_generation_maximum",
            "pcie_lanes_slot",
        }
    ),
    Driver: frozenset({"vendor", "kernel_module_version"}),
    Torch: frozenset({"version", "cuda_version", "hip_version", "xpu_version"}),
    Software: frozenset({"torch", "nvidia_driver", "drivers"}),
}
# Which probes tell of each part. One that is not taken (an older survey) does not count.
_TOLD_BY = {
    "cpu": ("cpu",),
    "limits": ("limits", "memory"),
    "accelerators": ("pci", "nvidia", "amd", "intel", "apple", "drivers"),
    "torch": ("software",),
}
# Endings that say nothing about the machine; `absent`, `denied` and `unsupported` are answers.
_SILENT = (Outcome.TIMEOUT, Outcome.FAILED, Outcome.PENDING)
# CUDA's failures are answers too, for they last: only while it is late nothing is known.
_LATE = (Outcome.TIMEOUT, Outcome.PENDING)
# Flags that kernels are chosen by. Others come and go with microcode and kernel versions (md_clear, rtm).
SPEED_FLAGS = ("avx", "amx", "fma", "f16c", "neon", "asimd", "sve", "bf16", "i8mm", "vsx", "altivec", "rvv")
# The one part that is there only where it says something: what torch's names stand for.
DEVICES = "devices"
# Linux's word on x86 where a processor does not say its name. It is no name, and yet it stays in fingerprints: they
# were made of it before it was read as none.
_NAMELESS = "unknown"
_X86 = ("x86_64", "i686")


class HasIdentity(Protocol):
    """A survey, or the facts that one is made of."""

    @property
    def cpu(self) -> Cpu: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def accelerators(self) -> tuple[Accelerator, ...]: ...
    @property
    def software(self) -> Software: ...


def compute_fingerprint(facts: HasIdentity) -> str:
    """16 hexadecimal digits that change when CPU, limits, GPUs, driver or torch change: never with load or time."""
    return hash_identity(read_identity(facts))


def read_identity(facts: HasIdentity) -> Identity:
    """The parts of the identity. A card's id is kept as a hash: what is stored must not lead to a serial number. What
    was added since there are fingerprints is in it only where a machine is not as it comes: others keep theirs."""
    cpu, torch, cards = facts.cpu, facts.software.torch, facts.accelerators
    return {
        "cpu": identify_cpu(cpu),
        "limits": {
            "usable_cores": cpu.usable_cores,
            "memory_limit_bytes": facts.memory.limit_bytes,
            **_some("cores", _allowed_cores(cpu)),
        },
        "accelerators": {
            "cards": sorted((_identify(card) for card in cards), key=str),
            "drivers": _driver_versions(facts),
        },
        "torch": {name: getattr(torch, name) for name in sorted(IDENTITY[Torch])} if torch else {},
        **_some(DEVICES, {name: _identify(card) for name, card in sorted(renamed_devices(cards).items())}),
    }


def identify_cpu(cpu: Cpu) -> Identity:
    """The identity's part of this name."""
    nameless = _NAMELESS if cpu.architecture in _X86 and cpu.instruction_sets else None
    return {
        "name": cpu.name or nameless,
        "vendor": cpu.vendor_id or nameless,
        "architecture": cpu.architecture,
        "sockets": cpu.sockets,
        "physical_cores": cpu.physical_cores,
        "logical_cores": cpu.logical_cores,
        "instruction_sets": sorted({flag for flag in cpu.instruction_sets if flag.startswith(SPEED_FLAGS)}),
        "torch_instruction_set": cpu.torch_instruction_set,
    }


def hash_identity(identity: Identity) -> str:
    return _hash(json.dumps(identity, sort_keys=True))


def settle_identity(
    survey: Survey, before: Identity | None, environment: Mapping[str, str] = MappingProxyType({})
) -> Identity:
    """The survey's identity; parts whose probes failed are as they were `before`, for a driver that hangs is no
    removed card. None where neither tells. Another CPU is another machine: nothing is taken over from it. environment:
    of the process that surveys, which may hide cards from it."""
    seen = read_identity(survey)
    silent = silent_parts(survey.probes)
    known = before or {}
    if "cpu" not in silent and seen["cpu"] != known.get("cpu"):
        known = {}
    settled = {part: known.get(part) if part in silent else seen[part] for part in _TOLD_BY}
    if "cpu" in silent and settled["limits"] is not None:  # of which kinds the allowed cores are, it would have told
        settled["limits"] = {**settled["limits"], **_some("cores", (known.get("limits") or {}).get("cores"))}
    devices = seen.get(DEVICES, {})
    if silent & {"accelerators", "torch"}:
        devices = known.get(DEVICES) or {}
    elif _awaits_names(survey) and may_rename(environment, survey.accelerators):
        devices = known.get(DEVICES, {}) if known else None
    return settled if devices == {} else {**settled, DEVICES: devices}


def of_another_process(identity: Identity) -> Identity:
    """The same, but for what is a process's own: what it was shown under torch's names."""
    return {**identity, DEVICES: None}


def silent_parts(probes: Mapping[str, ProbeReport]) -> frozenset[str]:
    """Parts of the identity that this survey could not read."""
    silent = {
        part
        for part, names in _TOLD_BY.items()
        if any(probes[name].outcome in _SILENT for name in names if name in probes)
    }
    return frozenset(silent | {"accelerators"} if _awaits_cuda(probes) else silent)


def _awaits_names(survey: Survey) -> bool:
    """Whether the library that says what torch's names stand for is late."""
    torch = survey.software.torch or Torch()
    asked = [name for name, is_built in (("cuda", torch.cuda_version), ("hip", torch.hip_version)) if is_built]
    return any(name in survey.probes and survey.probes[name].outcome in _LATE for name in asked)


def _awaits_cuda(probes: Mapping[str, ProbeReport]) -> bool:
    """Where NVML tells nothing, cards of NVIDIA's may be CUDA's to tell alone (a Jetson)."""
    cuda, nvidia = probes.get("cuda"), probes.get("nvidia")
    has_nvml = nvidia is not None and nvidia.outcome is Outcome.OK
    return cuda is not None and cuda.outcome in _LATE and not has_nvml


def _allowed_cores(cpu: Cpu) -> list[list[int | None]]:
    """Of each cluster the cores and CPUs that affinity and cpusets leave; empty where they leave all, or where their
    number says it all, as all cores are alike and have one thread."""
    are_alike = len(cpu.clusters) < 2 and cpu.physical_cores == cpu.logical_cores
    if are_alike or all(one.allowed_logical_cores in (None, one.logical_cores) for one in cpu.clusters):
        return []
    return [[one.allowed_physical_cores, one.allowed_logical_cores] for one in cpu.clusters]


def _identify(card: Accelerator) -> list[str | None]:
    return [_hash(card.id), card.name or card.vendor]


def _some(name: str, facts: Any) -> dict[str, Any]:
    return {name: facts} if facts else {}


def _driver_versions(facts: HasIdentity) -> dict[str, list[str]]:
    """Vendor -> versions of its driver, as the cards, the kernel module and /proc tell."""
    found: dict[str, set[str]] = {}
    told = [(card.vendor, card.driver_version) for card in facts.accelerators]
    told += [(driver.vendor, driver.kernel_module_version) for driver in facts.software.drivers]
    told.append(("NVIDIA", facts.software.nvidia_driver))
    for vendor, version in told:
        if version:
            found.setdefault(vendor or "another", set()).add(version)
    return {vendor: sorted(versions) for vendor, versions in sorted(found.items())}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
