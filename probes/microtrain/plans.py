"""The plans worth measuring on this machine: thread counts that have cores, precisions that have hardware."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from probes.cpuinfo import read_cpuinfo
from probes.limits import read_usable_cores
from probes.microtrain.devices import capability_of
from probes.reading import Root, Unreadable
from probes.topology import read_topology
from probes.workload.description import PRECISIONS, Plan, Precision

CPU_PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
AMPERE = (8, 0)  # first with tf32 and bf16 in tensor cores (CUDA C++ Programming Guide, "Compute capability 8.x")


@dataclass(frozen=True, slots=True)
class Cores:
    """usable: whole cores under affinity and quota, at least 1. physical: those that affinity and cpusets leave; None
    where nothing tells."""

    usable: int
    physical: int | None = None


def read_cores() -> Cores:
    """This process's, on this machine."""
    try:
        root = Root()
        topology = read_topology(root, read_cpuinfo(root))
        usable = read_usable_cores(root, topology.online)
    except Unreadable:
        return Cores(os.cpu_count() or 1)
    physical = topology.count_cores(topology.online if usable.some is None else usable.some) or None
    return Cores(max(1, int(usable.cores)) if topology.online else os.cpu_count() or 1, physical)


def thread_counts(cores: Cores) -> tuple[int, ...]:
    """One, the physical cores, the usable cores, and the powers of two between; never more than the usable cores."""
    counts = {1, min(cores.physical or cores.usable, cores.usable), cores.usable}
    power = 2
    while power < cores.usable:
        counts.add(power)
        power *= 2
    return tuple(sorted(counts))


def fewer_thread_counts(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """At most that many of the counts, the first and the last among them, evenly spread."""
    if len(counts) <= most:
        return tuple(counts)
    return tuple(counts[round(index * (len(counts) - 1) / (most - 1))] for index in range(most))


def sensible_plans(cores: Cores) -> tuple[Plan, ...]:
    """Every plan worth measuring on every device that torch has here."""
    cpu = [Plan("cpu", precision, threads) for threads in thread_counts(cores) for precision in CPU_PRECISIONS]
    return (*cpu, *cuda_plans())


def cuda_plans(wanted: Sequence[str] = ()) -> tuple[Plan, ...]:
    """wanted: the devices, by name, that are asked for; none: all. Another one's driver is left alone."""
    devices = [device for device in _cuda_devices() if not wanted or device in wanted]
    return tuple(Plan(device, precision) for device in devices for precision in cuda_precisions(device))


def cuda_precisions(device: str) -> tuple[Precision, ...]:
    """None where CUDA does not start: torch counts the driver's cards before it does, and may be too new for it."""
    try:
        capability = capability_of(device)
    except Exception:  # noqa: BLE001 - torch asks every card when it starts, and wraps what one of them answers
        return ()
    return PRECISIONS if capability >= AMPERE else ("fp32", "fp16")


def why_never(plan: Plan) -> str | None:
    """A sentence when no process can run the plan; None when one can."""
    if plan.precision not in PRECISIONS:
        return f"There is no such precision. There are: {', '.join(PRECISIONS)}."
    if plan.is_cpu and plan.precision == "tf32":
        return "tf32 is a precision of CUDA devices; on a CPU it is fp32."
    return None


def why_impossible(plan: Plan, cores: Cores) -> str | None:
    """A sentence when this process cannot run the plan; None when it can."""
    never = why_never(plan)
    if never is not None:
        return never
    if not plan.is_cpu and plan.device not in _cuda_devices():
        return f"torch has no such device here. It has: {', '.join(('cpu', *_cuda_devices()))}."
    if plan.is_cpu and plan.threads is not None and not 1 <= plan.threads <= cores.usable:
        return (
            f"{plan.threads} threads were asked for, and this process may use {cores.usable} cores: "
            "threads without a core make every parallel region wait."
        )
    unset = [name for name, value in plan.environment.items() if os.environ.get(name) != value]
    if unset:
        return f"{', '.join(sorted(unset))} has to be set before the measuring process starts."
    return None


def _cuda_devices() -> tuple[str, ...]:
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
