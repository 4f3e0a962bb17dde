"""An examination for people: each card's chain, what was found, and what to do; on a terminal or as Markdown."""

from __future__ import annotations

from typing import Any

from app.cli.finding_view import show_finding
from app.cli.output import Column, print_heading, print_pairs, print_table, print_text
from app.cli.units import UNKNOWN, format_bytes, format_number

Document = dict[str, Any]

_STATES = {"ok": "ok", "broken": "BROKEN", "unknown": "unknown", "not-reached": "-"}


def show_examination(document: Document) -> None:
    for chain in document["chain"]:
        print_heading(name_chain(chain))
        rows = [[link["name"], _STATES[link["state"]], link["evidence"]] for link in chain["links"]]
        print_table((Column("link"), Column("state"), Column("what was seen", prose=True)), rows)
    for finding in document["findings"]:
        show_finding(finding, with_page=True)
        print_text()
    failed = list_failed(document)
    if failed:
        print_heading("Not read")
        print_pairs([(name, f"{outcome}, {reason}") for name, outcome, reason in failed])
    print_heading(say_verdict(document))


def list_failed(document: Document) -> list[tuple[str, str, str]]:
    """Probes that should have answered and did not; `absent` is an answer, `unsupported` a capture's silence."""
    rows = document["probes"].items()
    silent = ("ok", "absent", "unsupported")
    return [(name, row["outcome"], row["reason"] or UNKNOWN) for name, row in rows if row["outcome"] not in silent]


def name_chain(chain: Document) -> str:
    words = [chain["subject"], *([chain["pci_address"]] if chain["pci_address"] else [])]
    return f"{words[0]} ({words[1]})" if len(words) > 1 and words[1] != words[0] else words[0]


def say_verdict(document: Document) -> str:
    blocking = [finding for finding in document["findings"] if finding["blocking"]]
    if blocking:
        things = "One thing stands" if len(blocking) == 1 else f"{len(blocking)} things stand"
        return f"{things} in the way of training: {', '.join(dict.fromkeys(finding['code'] for finding in blocking))}."
    unknown = sum(link["state"] == "unknown" for chain in document["chain"] for link in chain["links"])
    left = [f"{unknown} of its links"] * bool(unknown) + [name for name, _, _ in list_failed(document)]
    rest = f" Not to be seen: {', '.join(left)}." if left else ""
    return f"Nothing that was looked at stands in the way of training.{rest}"


def write_markdown(document: Document) -> str:
    """For a bug report; the document is anonymous already."""
    parts = ["## crosspoint doctor", say_verdict(document), _machine(document["machine"])]
    for chain in document["chain"]:
        parts.append(f"### {escape(name_chain(chain))}")
        rows = [(link["name"], _STATES[link["state"]], link["evidence"]) for link in chain["links"]]
        parts.append(_table(("link", "state", "what was seen"), rows))
    if document["findings"]:
        parts.append("### Findings")
        found = [
            (item["code"], item["severity"], item["subject"], item["message"], item["fix"])
            for item in document["findings"]
        ]
        parts.append(_table(("code", "severity", "subject", "message", "fix"), found))
    failed = list_failed(document)
    if failed:
        parts += ["### Not read", _table(("probe", "outcome", "reason"), failed)]
    return "\n\n".join(parts)


def _machine(machine: Document) -> str:
    system, cpu, software = machine["system"], machine["cpu"], machine["software"]
    torch = software["torch"]
    rows = [
        ("crosspoint", machine["crosspoint"]),
        (
            "system",
            _words(
                system["os"], system["kernel"], system["architecture"], system["virtualization"], system["container"]
            ),
        ),
        (
            "cpu",
            _words(
                cpu["name"],
                cpu["microarchitecture"],
                f"{format_number(cpu['usable_cores'])} of {format_number(cpu['logical_cores'])} logical cores usable",
            ),
        ),
        (
            "memory",
            f"{format_bytes(machine['memory']['available_bytes'])} available of "
            f"{format_bytes(machine['memory']['total_bytes'])}",
        ),
        *[
            ("accelerator", _words(card["name"] or card["vendor"], card["pci_address"], card["driver_version"]))
            for card in machine["accelerators"]
        ],
        ("python", software["python"]),
        (
            "torch",
            _words(torch["version"], torch["cuda_version"] and f"CUDA {torch['cuda_version']}")
            if torch
            else "not installed"
            if software["python"]
            else UNKNOWN,
        ),
        (
            "NVIDIA driver",
            _words(
                software["nvidia_driver"], software["cuda_driver_version"] and f"CUDA {software['cuda_driver_version']}"
            ),
        ),
    ]
    return _table(("", ""), rows)


def _words(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part) or UNKNOWN


def _table(titles: tuple[str, ...], rows: list[Any]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join("| " + " | ".join(escape(cell) for cell in line) + " |" for line in lines)


def escape(text: Any) -> str:
    """Fit for a cell of a table: what a card or a program calls itself may hold anything."""
    shown = UNKNOWN if text is None else str(text)
    for letter in "\\`*<>|[]":
        shown = shown.replace(letter, "\\" + letter)
    return " ".join(shown.split())
