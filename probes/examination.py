"""What `crosspoint doctor` looks at: a survey, the load just now, torch as it really starts, each card's chain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from probes.diagnose import Chain, Facts, build_chains, diagnose
from probes.hardware import Finding, Load, Survey
from probes.load import measure_load
from probes.reading import Root
from probes.survey import take_survey
from probes.torch_facts import with_torch_facts
from probes.torch_start import TorchStart, start_torch

_LOAD_SECONDS = 0.5
# torch from a cold disk took 20 s; a driver that hangs takes for ever.
TORCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Examination:
    """survey: with the findings in it; chains: one a card."""

    survey: Survey
    chains: tuple[Chain, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.survey.findings

    @property
    def is_blocked(self) -> bool:
        """Whether something stands in the way of training."""
        return any(finding.blocking for finding in self.findings)


def examine(sysroot: Path = Path("/"), *, deadline_seconds: float = 5.0, ask_torch: bool = True) -> Examination:
    """Never raises. ask_torch: start torch, which takes seconds; of a captured machine it is never asked."""
    root = Root(sysroot)
    with ThreadPoolExecutor() as pool:
        load = pool.submit(measure_load, root, _LOAD_SECONDS) if root.is_host else None
        survey = take_survey(sysroot, deadline_seconds=deadline_seconds)
        measured = load.result() if load else None
    # After the load was measured: starting torch is load itself.
    asked = root.is_host and ask_torch and survey.software.torch is not None
    start = start_torch(TORCH_SECONDS) if asked else TorchStart()
    return judge(survey, measured, start, dict(os.environ) if root.is_host else {})


def judge(survey: Survey, load: Load | None, start: TorchStart, environment: Mapping[str, str]) -> Examination:
    """Pure: from what was seen to what it means."""
    if start.ready is not None:
        survey = with_torch_facts(survey, start.ready)
    if load is not None:
        survey = replace(survey, load=load)
    facts = replace(Facts.of(survey, environment), torch_error=start.error)
    return Examination(replace(survey, findings=diagnose(facts)), build_chains(facts))
