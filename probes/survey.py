"""One reading of the whole machine: every probe with its outcome, what they found, and what that means."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from probes.cpu import CpuReading, read_cpu, with_limits
from probes.cpuinfo import read_cpuinfo
from probes.diagnose import Facts, diagnose
from probes.fingerprint import compute_fingerprint
from probes.gpu.amd import DRIVER as AMD_DRIVER
from probes.gpu.amd import read_amd
from probes.gpu.amdsmi import outcome_with, read_amdsmi, with_amdsmi
from probes.gpu.apple import read_apple
from probes.gpu.cuda import CudaReading, read_cuda
from probes.gpu.driver import join_answers, read_drivers
from probes.gpu.hip import read_hip
from probes.gpu.intel import DRIVERS as INTEL_DRIVERS
from probes.gpu.intel import read_intel
from probes.gpu.judge import judge_accelerators
from probes.gpu.nvml_process import NvidiaReading, read_nvidia
from probes.gpu.pci import explain_pci, read_pci_accelerators
from probes.gpu.xid import read_xids
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
)
from probes.limits import UsableCores, read_usable_cores
from probes.load import explain_load, read_load
from probes.memory import read_memory
from probes.reading import Root, Unreadable
from probes.resources import explain_resources, read_resources
from probes.running import Answer, Told, run_probes
from probes.software import explain_software, read_software
from probes.storage import read_storage
from probes.system import read_system
from probes.topology import Topology, read_listed, read_online
from probes.torch_facts import with_torch_facts as add_torch_facts

__all__ = ["PROBES", "compute_fingerprint", "take_survey", "with_torch_facts"]

_BUS = "/sys/bus/pci/devices"
_CHILD_SHARE = (
    0.8  # of the deadline, for the NVML process: it must be ended and its words taken before the probe's is up
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a probe needs to know."""

    root: Root
    deadline_seconds: float
    storage_paths: tuple[Path, ...] = ()
    read_nvidia: Callable[[float], NvidiaReading] = read_nvidia


def probe_cpu(request: Request) -> Told:
    reading = read_cpu(request.root)
    return Told(reading, reading.outcome, reading.reason)


def probe_limits(request: Request) -> UsableCores:
    online = read_listed(request.root) or read_online(request.root, read_cpuinfo(request.root))
    if not online and request.root.is_linux:
        raise Unreadable(Outcome.FAILED, "no CPU is known to be online, so there is nothing to limit")
    return read_usable_cores(request.root, online)


def probe_memory(request: Request) -> Told:
    reading = read_memory(request.root)
    return Told(reading.memory, Outcome.FAILED if reading.reason else Outcome.OK, reading.reason)


def probe_resources(request: Request) -> Told:
    limits = read_resources(request.root)
    outcome = Outcome.ABSENT if limits == Limits() else Outcome.OK
    return Told(limits, outcome, explain_resources(limits))


def probe_load(request: Request) -> Told:
    load = read_load(request.root, lately=True)
    outcome = Outcome.ABSENT if load == Load() and not request.root.is_host else Outcome.OK
    return Told(load, outcome, explain_load(request.root, load))


def probe_storage(request: Request) -> Told:
    storage = read_storage(request.root, request.storage_paths)
    return Told(storage) if storage else Told((), Outcome.ABSENT, "/proc/mounts tells of no mount to look at")


def probe_system(request: Request) -> System:
    return read_system(request.root)


def probe_software(request: Request) -> Told:
    software = read_software(request.root)
    return Told(software, reason=explain_software(software))


def _shows_bus(root: Root) -> bool:
    """Whether cards could be seen. A capture may lack the bus, or hold nothing but links to functions that it lacks."""
    if root.is_host and root.exists("/sys/devices"):
        return True  # what a running kernel does not show is not there
    if any(name.startswith("pci") for name in root.list("/sys/devices")):
        return True
    names = root.list(_BUS)
    return any(root.exists(f"{_BUS}/{name}") for name in names) if names else root.exists(_BUS)


def probe_pci(request: Request) -> Told:
    if not _shows_bus(request.root):
        return Told((), Outcome.ABSENT, "there is no PCI bus in /sys")
    reason = explain_pci(request.root)
    return Told(read_pci_accelerators(request.root), Outcome.FAILED if reason else Outcome.OK, reason)


def probe_nvidia(request: Request) -> Told:
    if not request.root.is_host:
        reason = "a captured machine's driver cannot be asked"
        saved = NvidiaReading(Outcome.UNSUPPORTED, reason, xids=read_xids(request.root))
        return Told(saved, Outcome.UNSUPPORTED, reason)
    reading = request.read_nvidia(request.deadline_seconds * _CHILD_SHARE)
    return Told(reading, reading.outcome, reading.reason)


def probe_cuda(request: Request) -> Told:
    if not request.root.is_host:
        return Told(None, Outcome.UNSUPPORTED, "a captured machine's CUDA cannot be asked")
    reading = read_cuda(request.deadline_seconds * _CHILD_SHARE)
    return Told(reading, reading.outcome, reading.reason)


def probe_hip(request: Request) -> Told:
    if not request.root.is_host:
        return Told(None, Outcome.UNSUPPORTED, "a captured machine's HIP cannot be asked")
    if not _list_driven(request.root, (AMD_DRIVER,)):
        return Told(None, Outcome.ABSENT, f"the driver {AMD_DRIVER} drives no card here")
    reading = read_hip(request.deadline_seconds * _CHILD_SHARE)
    return Told(reading, reading.outcome, reading.reason)


def probe_amd(request: Request) -> Told:
    cards = _list_driven(request.root, (AMD_DRIVER,))
    if not cards:
        return Told((), Outcome.ABSENT, f"the driver {AMD_DRIVER} drives no card here")
    available = _read_available(request.root)
    told = tuple(read_amd(request.root, card, available) for card in cards)
    if not request.root.is_host:
        return Told(told)
    library = read_amdsmi(request.deadline_seconds * _CHILD_SHARE)
    reason = None if library.outcome is Outcome.ABSENT else library.reason  # /sys alone is enough
    joined = with_amdsmi(told, library)
    return Told(joined, outcome_with(joined, library), reason)


def _read_available(root: Root) -> int | None:
    """Of the machine's memory, which graphics inside a processor share; a card's own facts do not wait for it."""
    try:
        return read_memory(root).memory.available_bytes
    except Unreadable:
        return None


def probe_intel(request: Request) -> Told:
    cards = _list_driven(request.root, INTEL_DRIVERS)
    if not cards:
        return Told((), Outcome.ABSENT, f"no driver of Intel's ({' or '.join(INTEL_DRIVERS)}) drives a GPU here")
    return Told(tuple(read_intel(request.root, card) for card in cards))


def _list_driven(root: Root, drivers: tuple[str, ...]) -> list[Accelerator]:
    return [card for card in read_pci_accelerators(root) if card.kernel_driver in drivers]


def probe_apple(request: Request) -> Told:
    cards = read_apple(request.root, request.deadline_seconds * _CHILD_SHARE)
    return Told(cards) if cards else Told((), Outcome.ABSENT, "there is no GPU of Apple's here")


def probe_drivers(request: Request) -> tuple[Driver, ...]:
    return read_drivers(request.root)


PROBES: tuple[tuple[str, Callable[[Request], Any]], ...] = (
    ("system", probe_system),
    ("cpu", probe_cpu),
    ("limits", probe_limits),
    ("memory", probe_memory),
    ("resources", probe_resources),
    ("load", probe_load),
    ("storage", probe_storage),
    ("software", probe_software),
    ("pci", probe_pci),
    ("nvidia", probe_nvidia),
    ("cuda", probe_cuda),
    ("hip", probe_hip),
    ("amd", probe_amd),
    ("intel", probe_intel),
    ("apple", probe_apple),
    ("drivers", probe_drivers),
)


def take_survey(
    sysroot: Path = Path("/"),
    *,
    deadline_seconds: float = 5.0,
    storage_paths: tuple[Path, ...] = (),
    read_nvidia: Callable[[float], NvidiaReading] = read_nvidia,
) -> Survey:
    """Reads the machine, or the captured one below `sysroot`; never raises, takes little more than the deadline.

    storage_paths: folders whose mounts matter too, as the data folder's. read_nvidia: for who surveys often, as
    probes.gpu.nvidia_kept does.
    """
    root = Root(Path(sysroot), deadline_seconds)
    request = Request(root, deadline_seconds, storage_paths, read_nvidia)
    try:
        root.check()
    except Unreadable as unreadable:
        reports = {name: ProbeReport(unreadable.outcome, 0.0, unreadable.reason) for name, _ in PROBES}
        return assemble({name: Answer(None, report) for name, report in reports.items()}, {})
    answers = run_probes({name: partial(probe, request) for name, probe in PROBES}, deadline_seconds, root.path)
    return assemble(answers, dict(os.environ) if root.is_host else {})


def assemble(answers: dict[str, Answer], environment: dict[str, str]) -> Survey:
    """Answers to a survey; pure but for the clock."""
    values = {name: answer.value for name, answer in answers.items()}
    memory = values["memory"] or Memory()
    nvidia = values["nvidia"] or NvidiaReading(Outcome.FAILED)
    cuda: CudaReading | None = values["cuda"]
    # CUDA is the library that torch loads, perhaps of a compatibility package; NVML speaks for the driver.
    cuda_version = (cuda.driver_version if cuda else None) or nvidia.cuda_driver_version
    software = replace(values["software"] or Software(), cuda_driver_version=cuda_version)
    if nvidia.driver_version:
        software = replace(software, nvidia_driver=nvidia.driver_version)
    nvidia_report = answers["nvidia"].report
    others = [card for vendor in ("amd", "intel", "apple") for card in values[vendor] or ()]
    accelerators = judge_accelerators(
        values["pci"] or (), nvidia, nvidia_report, software, memory, others=others, cuda=cuda, hip=values["hip"]
    )
    drivers = join_answers(values["drivers"] or (), nvidia, cuda, accelerators, values["hip"])
    survey = Survey(
        surveyed_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        fingerprint="",
        system=values["system"] or System(),
        cpu=_limit_cpu(values["cpu"], values["limits"]),
        memory=memory,
        accelerators=accelerators,
        storage=values["storage"] or (),
        software=replace(software, drivers=drivers),
        findings=(),
        probes={name: answer.report for name, answer in answers.items()},
        limits=values["resources"] or Limits(),
        load=values["load"] or Load(),
    )
    return with_findings(replace(survey, fingerprint=compute_fingerprint(survey)), environment)


def with_findings(survey: Survey, environment: Mapping[str, str]) -> Survey:
    """The survey with what its own facts mean; environment: of the process that trains here."""
    return replace(survey, findings=diagnose(Facts.of(survey, environment)))


def with_torch_facts(survey: Survey, ready: dict[str, Any]) -> Survey:
    """The survey with what torch said when it started here, and with what that means."""
    environment = dict(os.environ) if survey.software.python else {}
    return with_findings(add_torch_facts(survey, ready), environment)


def _limit_cpu(reading: CpuReading | None, limits: UsableCores | None) -> Cpu:
    if reading is None:
        reading = CpuReading(Cpu(), Topology(0, None, None))
    return reading.cpu if limits is None else with_limits(reading, limits)
