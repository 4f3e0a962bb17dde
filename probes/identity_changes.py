"""What changed between two identities of a machine, in words."""

from collections.abc import Callable, Iterator
from typing import Any

from probes.figures import format_gib
from probes.fingerprint import DEVICES, Identity

_ALL_CORES = "all"


def explain_changes(before: Identity, after: Identity) -> tuple[str, ...]:
    """Sentences' ends as `NVIDIA driver 550.54 -> 560.28`; empty when nothing changed that both know."""
    words: list[str] = []
    before, after = _with_all_cores(before), _with_all_cores(after)
    for part, explain in _EXPLAINED.items():
        usual: Any = {} if part == DEVICES else None  # that part is there only where it says something
        old, new = before.get(part, usual), after.get(part, usual)
        if old != new and isinstance(old, dict) and isinstance(new, dict):
            words += explain(old, new)
    return tuple(words)


def _with_all_cores(identity: Identity) -> Identity:
    """With the word for it where all cores are allowed. Without that and without numbers of them nobody knows which
    are: so it is under a quota, and was wherever only some were before they were told."""
    cpu, limits = identity.get("cpu") or {}, identity.get("limits") or {}
    usable, online = limits.get("usable_cores"), cpu.get("logical_cores")
    if limits.get("cores") or usable is None or online is None or usable < online:
        return identity
    return {**identity, "limits": {**limits, "cores": _ALL_CORES}}


def _explain_cpu(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    yield from _explain_named(old, new, "CPU", "name")
    yield from _explain_named(old, new, "architecture", "architecture")
    yield from _explain_named(old, new, "sockets", "sockets")
    yield from _explain_named(old, new, "physical cores", "physical_cores")
    yield from _explain_named(old, new, "logical cores", "logical_cores")
    yield from _explain_set("instruction set", old.get("instruction_sets"), new.get("instruction_sets"))
    yield from _explain_named(old, new, "torch's instruction set", "torch_instruction_set")


def _explain_limits(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    yield from _explain_named(old, new, "usable cores", "usable_cores")
    if old.get("cores") and new.get("cores"):
        yield from _explain_named(old, new, "allowed cores", "cores", _write_cores)
    yield from _explain_named(old, new, "memory limit", "memory_limit_bytes", _write_bytes)


def _explain_accelerators(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    before, after = _cards(old), _cards(new)
    gone = sorted(before[key] for key in before.keys() - after.keys())
    come = sorted(after[key] for key in after.keys() - before.keys())
    for name in [name for name in gone if name in come]:  # its driver came or went, or it was exchanged
        gone.remove(name)
        come.remove(name) if name in come else gone.append(name)
    yield from (f"{name} removed" for name in gone)
    yield from (f"{name} added" for name in come)
    yield from (f"{before[key]} -> {after[key]}" for key in before.keys() & after.keys() if before[key] != after[key])
    drivers, others = old.get("drivers") or {}, new.get("drivers") or {}
    for vendor in sorted(drivers.keys() | others.keys()):
        if drivers.get(vendor) != others.get(vendor):
            yield f"{vendor} driver {_write_versions(drivers.get(vendor))} -> {_write_versions(others.get(vendor))}"


def _explain_torch(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    yield from _explain_named(old, new, "torch", "version")
    yield from _explain_named(old, new, "torch's CUDA", "cuda_version")
    yield from _explain_named(old, new, "torch's ROCm", "hip_version")
    yield from _explain_named(old, new, "torch's XPU", "xpu_version")


def _explain_devices(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What torch's names stand for, where that is another kind of card than usual."""
    for device in sorted(old.keys() | new.keys()):
        if old.get(device) != new.get(device):
            yield f"{device} {_write_card(old.get(device))} -> {_write_card(new.get(device))}"


_EXPLAINED: dict[str, Callable[[dict[str, Any], dict[str, Any]], Iterator[str]]] = {
    "cpu": _explain_cpu,
    "limits": _explain_limits,
    "accelerators": _explain_accelerators,
    "torch": _explain_torch,
    DEVICES: _explain_devices,
}


def _explain_named(
    old: dict[str, Any], new: dict[str, Any], name: str, key: str, write: Callable[[Any], str] | None = None
) -> Iterator[str]:
    write = write or _write
    if old.get(key) != new.get(key):
        yield f"{name} {write(old.get(key))} -> {write(new.get(key))}"


def _explain_set(name: str, old: Any, new: Any) -> Iterator[str]:
    before, after = set(old or ()), set(new or ())
    yield from (f"{name} {item} gone" for item in sorted(before - after))
    yield from (f"{name} {item} new" for item in sorted(after - before))


def _cards(part: dict[str, Any]) -> dict[str, str]:
    return {str(key): str(name or "a card without a name") for key, name in part.get("cards") or ()}


def _write(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _write_bytes(value: Any) -> str:
    return "none" if value is None else format_gib(value)


def _write_cores(clusters: Any) -> str:
    """Of each kind of core, as `4 (8 threads) + 0`."""
    if clusters == _ALL_CORES:
        return _ALL_CORES
    return " + ".join(f"{cpus}" if cores in (None, cpus) else f"{cores} ({cpus} threads)" for cores, cpus in clusters)


def _write_card(told: Any) -> str:
    return "the usual card" if told is None else str(told[1] or "a card without a name")


def _write_versions(versions: Any) -> str:
    return ", ".join(map(str, versions)) if versions else "none"
