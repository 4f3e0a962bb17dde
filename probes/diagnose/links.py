"""The chain from a card on the bus to torch: its links, walked from the bottom until one is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from probes.diagnose.facts import Facts
from probes.hardware import Accelerator, Driver, Finding


class State(StrEnum):
    OK = "ok"
    BROKEN = "broken"
    UNKNOWN = "unknown"  # nothing tells; what lies above it may
    NOT_REACHED = "not-reached"  # a link below is broken, and what this one would show follows from that


@dataclass(frozen=True, slots=True)
class Case:
    """One card, with its vendor's driver and everything else that is known."""

    facts: Facts
    card: Accelerator
    driver: Driver | None = None

    @property
    def subject(self) -> str:
        return self.card.torch_device or self.card.name or self.card.pci_address or self.card.id or "GPU"


@dataclass(frozen=True, slots=True)
class Checked:
    """What looking at one link gave. A finding beside an unbroken link costs something and stops nothing."""

    state: State
    evidence: str
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Link:
    name: str
    state: State
    evidence: str


@dataclass(frozen=True, slots=True)
class Chain:
    """findings: the first broken link's, and what the links below it had to say."""

    subject: str
    vendor: str | None
    pci_address: str | None
    links: tuple[Link, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def broken_at(self) -> str | None:
        return next((link.name for link in self.links if link.state is State.BROKEN), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "vendor": self.vendor,
            "pci_address": self.pci_address,
            "broken_at": self.broken_at,
            "finding": self.findings[-1].code if self.broken_at and self.findings else None,
            "links": [asdict(link) for link in self.links],
        }


Check = Callable[[Case], Checked]


def fine(evidence: str) -> Checked:
    return Checked(State.OK, evidence)


def unknown(evidence: str) -> Checked:
    return Checked(State.UNKNOWN, evidence)


def broken(finding: Finding) -> Checked:
    return Checked(State.BROKEN, finding.message, finding)


def walk(case: Case, checks: Sequence[tuple[str, Check]]) -> Chain:
    """From the bottom up; above the first broken link nothing is looked at."""
    links: list[Link] = []
    findings: list[Finding] = []
    below: str | None = None
    for name, check in checks:
        if below is not None:
            links.append(Link(name, State.NOT_REACHED, f"not looked at, as “{below}” is not so"))
            continue
        checked = check(case)
        links.append(Link(name, checked.state, checked.evidence))
        findings += [checked.finding] if checked.finding else []
        below = name if checked.state is State.BROKEN else None
    return Chain(case.subject, case.card.vendor, case.card.pci_address, tuple(links), tuple(findings))
