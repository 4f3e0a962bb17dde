"""What a diagnosis starts from: the facts that the probes found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from probes.diagnose.candidates import is_candidate
from probes.gpu.visible import Visibility, find_visible
from probes.hardware import (
    Accelerator,
    Cpu,
    Driver,
    Limits,
    Load,
    Memory,
    Outcome,
    ProbeReport,
    Software,
    Survey,
    System,
    Torch,
)

_BUS_PROBE = "pci"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the probes found; `environment` is this process's, empty for a captured machine."""

    system: System = field(default_factory=System)
    cpu: Cpu = field(default_factory=Cpu)
    memory: Memory = field(default_factory=Memory)
    accelerators: tuple[Accelerator, ...] = ()
    software: Software = field(default_factory=Software)
    environment: Mapping[str, str] = field(default_factory=dict)
    accelerators_known: bool = True  # False: the probes that look for them failed
    limits: Limits = field(default_factory=Limits)
    load: Load = field(default_factory=Load)
    probes: Mapping[str, ProbeReport] = field(default_factory=dict)
    torch_error: str | None = None  # why torch ended when it was started; only `crosspoint doctor` starts it
    _visible: dict[str, Visibility] = field(init=False, repr=False, compare=False, default_factory=dict)

    @classmethod
    def of(cls, survey: Survey, environment: Mapping[str, str]) -> Facts:
        bus = survey.probes.get(_BUS_PROBE)
        return cls(
            system=survey.system,
            cpu=survey.cpu,
            memory=survey.memory,
            accelerators=survey.accelerators,
            software=survey.software,
            environment=environment,
            accelerators_known=bus is not None and bus.outcome is Outcome.OK,
            limits=survey.limits,
            load=survey.load,
            probes=survey.probes,
        )

    @property
    def is_live(self) -> bool:
        """Whether this is the machine that we run on: of a captured one no software is known."""
        return self.software.python is not None

    @property
    def torch(self) -> Torch | None:
        return self.software.torch

    @property
    def container(self) -> str | None:
        """The kind of container that devices must be given to; WSL, which `system.container` names too, is none."""
        return None if self.system.container == "wsl" else self.system.container

    @property
    def has_virtual_cpus(self) -> bool:
        """In a virtual machine; WSL is one, too."""
        return self.system.virtualization not in (None, "none")

    def find_visible(self, vendor: str) -> Visibility:
        """What the environment leaves of a vendor's cards; found once, as each card's chain asks for it."""
        if vendor not in self._visible:
            self._visible[vendor] = find_visible(self.environment, vendor, self.accelerators)
        return self._visible[vendor]

    def driver_of(self, vendor: str | None) -> Driver | None:
        return next((driver for driver in self.software.drivers if driver.vendor == vendor), None)

    @property
    def silent_card(self) -> Accelerator | None:
        """An NVIDIA card of which only its failing driver tells: under WSL, on a Jetson, behind a hidden bus."""
        report = self.probes.get("nvidia")
        failed = report is not None and report.outcome in (Outcome.FAILED, Outcome.TIMEOUT, Outcome.DENIED)
        if not failed or not self.is_live or any(card.vendor == "NVIDIA" for card in self.accelerators):
            return None
        return Accelerator("nvidia", vendor="NVIDIA", name="NVIDIA GPU")

    @property
    def training_cards(self) -> tuple[Accelerator, ...]:
        """Cards that torch could train on: no graphics built into a PC's processor that it does not use, no part of a
        card."""
        return tuple(card for card in self.accelerators if is_candidate(card))
