"""What a micro-training process said of torch's devices, and for how long that holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from probes.hardware import Outcome, Survey

# A driver that torch could not start may have been mended without a sign that a survey sees.
DOUBT_SECONDS = 600.0
# Twice as long after each answer that is the same: most likely it stays so, and asking takes seconds of a core.
LONGEST_DOUBT_SECONDS = 86400.0
# Whose answers say which cards this process is shown.
_LIBRARIES = ("cuda", "hip")


@dataclass(slots=True)
class TorchWord:
    """ready: the event (docs/protocol.md). told: what else told of torch and the cards by then; None: no survey was
    taken since. doubt_seconds: after which it is doubted, where a device did not start."""

    ready: dict[str, Any]
    clock: Callable[[], float] = time.monotonic
    told: dict[str, str | None] | None = None
    doubt_seconds: float = DOUBT_SECONDS
    heard_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.heard_at = self.clock()

    def holds_for(self, survey: Survey) -> bool:
        """Whether it is the same torch, and drivers tell of the same cards, as when it was said. survey: without
        torch's word."""
        torch, now = _told_of_torch(survey), _told_by_drivers(survey)
        # What was not known of torch then counts from when it is: no file of it may have been read then.
        self.told = then = {**torch, **(now if self.told is None else self.told)}
        return all(name in then and value in (None, then[name]) for name, value in {**now, **torch}.items())

    @property
    def is_doubtful(self) -> bool:
        """It was about a device that did not start, and that is a while ago."""
        devices = self.ready.get("devices")
        rows = devices if isinstance(devices, list | tuple) else ()
        failed = any(isinstance(row, dict) and row.get("why_not") for row in rows)
        return failed and self.clock() - self.heard_at > self.doubt_seconds

    def bears_out(self, ready: dict[str, Any]) -> bool:
        """Whether a newer process says the same of the devices; it holds longer then."""
        is_same: bool = ready.get("devices") == self.ready.get("devices")
        if is_same:
            self.hold_longer()
        return is_same

    def hold_longer(self) -> None:
        """From now on twice as long as before."""
        self.heard_at = self.clock()
        self.doubt_seconds = min(2 * self.doubt_seconds, LONGEST_DOUBT_SECONDS)


def _told_of_torch(survey: Survey) -> dict[str, str | None]:
    """The versions of the one that is installed, and of what it was built for; nothing where it was not read."""
    torch = survey.software.torch
    if torch is None:
        return {}
    built = (torch.version, torch.cuda_version, torch.hip_version, torch.xpu_version)
    return {f"torch {place}": version for place, version in enumerate(built)}


def _told_by_drivers(survey: Survey) -> dict[str, str | None]:
    """The cards that only torch can judge, with its name for each as CUDA or HIP count them; the drivers' versions; and
    the libraries that failed, with the reason. None of a value: not known now, as while a driver is slow."""
    software = survey.software
    versions = {"driver": software.nvidia_driver, "cuda driver": software.cuda_driver_version}
    reports = {name: survey.probes.get(name) for name in _LIBRARIES}
    failed = {
        name: report.reason
        for name, report in reports.items()
        if report is not None and report.outcome in (Outcome.FAILED, Outcome.ABSENT)
    }
    cards = {card.id: card.torch_device for card in survey.accelerators if card.usable is None}
    return {**versions, **failed, **cards}
