"""The machine that figures were measured on, from our own survey."""

from __future__ import annotations

import re
from typing import Any

import psutil

from app.labjobs import describe_machine
from probes.survey import take_survey


def read_machine() -> dict[str, Any]:
    """In words, and what matters for the figures; without names that tell whose machine it is."""
    survey = take_survey()
    torch = survey.software.torch
    return {
        "machine": describe_machine(survey),
        "slug": slug_of(
            " ".join(filter(None, [survey.cpu.name, survey.cpu.microarchitecture])),
            survey.cpu.usable_cores,
            [gpu.name for gpu in survey.accelerators if gpu.usable],
        ),
        "microarchitecture": survey.cpu.microarchitecture,
        "instruction_sets": list(survey.cpu.instruction_sets),
        "virtualization": survey.system.virtualization,
        "kernel": survey.system.kernel,
        "python": survey.software.python,
        "torch": torch.version if torch else None,
        "load_average": psutil.getloadavg()[0],
        "findings": [finding.code for finding in survey.findings],
    }


def slug_of(cpu: str | None, cores: float | None, accelerators: list[str | None]) -> str:
    """For a folder's name: `amd-epyc-zen-5-2-cores-h200`. cpu: hypervisors hide its number, not what it is."""
    words = " ".join(filter(None, [cpu or "unknown", f"{cores:g} cores" if cores else "", *accelerators]))
    return re.sub(r"[^a-z0-9]+", "-", words.lower().replace("(r)", "").replace("(tm)", "")).strip("-")[:60]
