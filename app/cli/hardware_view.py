"""A survey for people: what the machine is, then what is in the way."""

from __future__ import annotations

from typing import Any

from app.cli.output import Column, print_heading, print_pairs, print_table, print_text
from app.cli.units import UNKNOWN, format_bytes, format_share

Document = dict[str, Any]

# Instruction sets that torch's kernels are chosen by; a CPU names dozens of others, which --json lists.
SPEED_PREFIXES = ("avx", "amx", "fma", "f16c", "neon", "asimd", "sve", "sme_", "bf16", "i8mm", "vsx", "altivec", "rvv")
CACHE_LEVELS = ("l1d", "l1i", "l2", "l3")


def show_survey(survey: Document) -> None:
    """survey: the document of GET /hardware."""
    print_heading(f"{survey['system']['hostname'] or 'This machine'}: {survey['cpu']['name'] or 'unknown CPU'}")
    print_pairs(
        [
            ("system", _system(survey["system"])),
            ("cpu", _cpu(survey["cpu"])),
            ("cores", _cores(survey["cpu"])),
            ("caches", _caches(survey["cpu"]["cache_bytes"])),
            ("instructions", _instructions(survey["cpu"]["instruction_sets"])),
            ("memory", _memory(survey["memory"])),
            *[("storage", _storage(storage)) for storage in survey["storage"]],
            ("software", _software(survey["software"])),
        ]
    )
    if survey["accelerators"]:
        _show_accelerators(survey["accelerators"])
    _show_findings(survey["findings"])
    _show_failures(survey["probes"])


def _words(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, "", False)) or UNKNOWN


def _system(system: Document) -> str:
    virtual, container = system["virtualization"], system["container"]
    return _words(
        system["os"],
        system["kernel"] and f"kernel {system['kernel']}",
        system["architecture"],
        virtual and virtual != "none" and f"virtual machine ({virtual})",
        container and f"container ({container})",
    )


def _cpu(cpu: Document) -> str:
    hertz = cpu["max_frequency_hz"]
    return _words(cpu["vendor"], cpu["microarchitecture"], hertz and f"up to {hertz / 1e9:.1f} GHz")


def _cores(cpu: Document) -> str:
    usable, limit = cpu["usable_cores"], cpu["usable_cores_limit"]
    kinds = (
        cpu["performance_cores"] and f"{cpu['performance_cores']} performance and {cpu['efficiency_cores']} efficiency"
    )
    return _words(
        f"{_number(cpu['physical_cores'])} physical, {_number(cpu['logical_cores'])} logical",
        cpu["efficiency_cores"] and kinds,
        f"{_number(usable)} usable" + (f" (limited by {limit})" if limit else ""),
        cpu["sockets"] and f"{cpu['sockets']} socket{'s' if cpu['sockets'] > 1 else ''}",
        cpu["numa_nodes"] and cpu["numa_nodes"] > 1 and f"{cpu['numa_nodes']} NUMA nodes",
    )


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


def _caches(sizes: Document) -> str:
    return _words(*(f"{level.upper()} {_binary(sizes[level])}" for level in CACHE_LEVELS if sizes[level] is not None))


def _binary(size: int) -> str:
    """Caches are sold in powers of two."""
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


def _instructions(names: list[str]) -> str:
    return _words(*(name for name in names if name.startswith(SPEED_PREFIXES)))


def _memory(memory: Document) -> str:
    total, usable, limit = memory["total_bytes"], memory["usable_bytes"], memory["limit_bytes"]
    return _words(
        total is not None and f"{format_bytes(total)} in all",
        usable is not None and f"{format_bytes(usable)} usable now",
        limit is not None and f"limited to {format_bytes(limit)} by cgroup",
    )


def _storage(storage: Document) -> str:
    return (
        f"{storage['mount']}: {storage['kind'] or 'unknown kind'}, "
        f"{format_bytes(storage['free_bytes'])} free of {format_bytes(storage['total_bytes'])}"
    )


def _software(software: Document) -> str:
    torch = software["torch"]
    return _words(
        software["python"] and f"Python {software['python']}",
        torch is not None and f"torch {torch['version'] or 'not installed'}",
        torch is not None and torch["cuda_version"] and f"CUDA {torch['cuda_version']}",
        software["nvidia_driver"] and f"NVIDIA driver {software['nvidia_driver']}",
    )


def _show_accelerators(accelerators: list[Document]) -> None:
    columns = (
        Column("device"),
        Column("accelerator", prose=True),
        Column("architecture", needed=False),
        Column("memory", "right"),
        Column("busy", "right", needed=False),
        Column("usable", prose=True),
    )
    print_table(columns, [_accelerator_row(accelerator) for accelerator in accelerators])


def _accelerator_row(accelerator: Document) -> list[str]:
    busy = accelerator["utilization_percent"]
    verdict = {True: "yes", False: f"no: {accelerator['why_not'] or 'unknown why'}", None: UNKNOWN}
    return [
        accelerator["torch_device"] or "-",
        _words(accelerator["name"] or accelerator["vendor"]),
        _words(accelerator["architecture"], accelerator["compute_capability"]),
        f"{format_bytes(accelerator['memory_free_bytes'])} free of {format_bytes(accelerator['memory_total_bytes'])}",
        format_share(None if busy is None else busy / 100),
        verdict[accelerator["usable"]],
    ]


def _show_findings(findings: list[Document]) -> None:
    for finding in findings:
        print_heading(f"{finding['severity']}: {finding['message']} [{finding['code']}]")
        if finding["fix"]:
            print_text(f"  {finding['fix']}")


def _show_failures(probes: Document) -> None:
    """Probes that should have answered and did not; `absent` is an answer."""
    failed = [(name, report) for name, report in probes.items() if report["outcome"] not in ("ok", "absent")]
    if failed:
        print_heading("Not read")
        print_pairs([(name, _words(report["outcome"], report["reason"])) for name, report in failed])
