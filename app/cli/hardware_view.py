"""A survey for people: what the machine is, then what is in the way."""

from __future__ import annotations

from typing import Any

from app.cli.finding_view import show_finding
from app.cli.machine_view import describe_processor, describe_room, join_words
from app.cli.output import Column, print_heading, print_pairs, print_table, print_text
from app.cli.units import UNKNOWN, format_bytes, format_share

Document = dict[str, Any]


def show_survey(survey: Document) -> None:
    """survey: the document of GET /hardware."""
    print_heading(f"{survey['system']['hostname'] or 'This machine'}: {survey['cpu']['name'] or 'unknown CPU'}")
    print_pairs(
        [
            ("system", _system(survey["system"])),
            *describe_processor(survey["cpu"]),
            *describe_room(survey["memory"], survey["limits"], survey["load"]),
            *[("storage", _storage(storage)) for storage in survey["storage"]],
            ("software", _software(survey["software"])),
        ]
    )
    if survey["accelerators"]:
        _show_accelerators(survey["accelerators"])
    for finding in survey["findings"]:
        show_finding(finding)
    _show_failures(survey["probes"])


def _system(system: Document) -> str:
    virtual, container = system["virtualization"], system["container"]
    return join_words(
        system["os"],
        system["kernel"] and f"kernel {system['kernel']}",
        system["architecture"],
        virtual and virtual != "none" and f"virtual machine ({virtual})",
        container and f"container ({container})",
    )


def _storage(storage: Document) -> str:
    return (
        f"{storage['mount']}: {storage['kind'] or 'unknown kind'}, "
        f"{format_bytes(storage['free_bytes'])} free of {format_bytes(storage['total_bytes'])}"
    )


def _software(software: Document) -> str:
    torch = software["torch"]
    return join_words(
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
        join_words(accelerator["name"] or accelerator["vendor"]),
        join_words(accelerator["architecture"], accelerator["compute_capability"]),
        f"{format_bytes(accelerator['memory_free_bytes'])} free of {format_bytes(accelerator['memory_total_bytes'])}",
        format_share(None if busy is None else busy / 100),
        verdict[accelerator["usable"]],
    ]


def _show_failures(probes: Document) -> None:
    """Probes that should have answered and did not; `absent` is an answer."""
    failed = [(name, report) for name, report in probes.items() if report["outcome"] not in ("ok", "absent")]
    if failed:
        print_heading("Not read")
        print_pairs([(name, join_words(report["outcome"], report["reason"])) for name, report in failed])


def show_states(states: list[Document]) -> None:
    """states: the rows of GET /hardware/history, newest first."""
    if not states:
        print_text("Nothing is known of this machine's past.")
        return
    columns = (Column("since"), Column("fingerprint", needed=False), Column("what had changed", prose=True))
    rows = [[state["seen_at"], state["fingerprint"], "; ".join(state["changes"])] for state in states]
    rows[-1][-1] = rows[-1][-1] or "first seen"
    print_table(columns, rows)
