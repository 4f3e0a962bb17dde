"""The schema of a profile as it is written (probes.profile.Profile.to_json): not that of the class it is read to."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - pydantic reads the standard ones from 3.12 on only

from probes.issued import Issued
from probes.machine_facts import MachineFacts
from probes.measurement import Timing
from probes.profile import CalibrationEffort
from probes.workload.description import Mode


class ProfilePlan(TypedDict):
    """As torch runs it unasked: a calibration clocks nothing else."""

    device: str
    """As torch calls it: cpu, cuda:0."""
    precision: str
    """Of the numbers that operations compute with."""
    threads: int | None
    """On a CPU; null on a device."""
    environment: dict[str, str]
    """Variables that its process is started with."""


class ProfilePoint(TypedDict):
    """A constant's point: one execution of what the parameters describe, timed."""

    constant: str
    """What was measured: dispatch, matmul, convolution, bandwidth and their like."""
    plan: int
    """Its place in `plans`."""
    parameters: dict[str, float]
    """Sizes that tell points of one constant apart, by name: m, n, k; bytes; …."""
    flops: float
    """Floating-point operations of one execution; 0 where that makes no sense."""
    bytes: float
    """That one execution moves; 0 where that makes no sense."""
    seconds: Timing
    """Of one execution."""
    reckoned: NotRequired[Literal[True]]
    """It met slow cores alone, and its times are reckoned back to calm ones; left out where it is not so."""


class ProfileNetwork(TypedDict):
    """A micro-network's whole step, timed."""

    name: str
    """Of the micro-network."""
    batch_size: int
    """Of each step."""
    plan: int
    """Its place in `plans`."""
    seconds: Timing
    """Of one step."""
    page_faults: float
    """Of a step, counted while it was timed."""
    trace: int
    """Its place in `traces`."""
    reckoned: NotRequired[Literal[True]]
    """It met slow cores alone, and its times are reckoned back to calm ones; left out where it is not so."""


class ProfileStep(TypedDict):
    """Which operations a network's step ran."""

    network: str
    """The micro-network's name."""
    batch_size: int
    """Of the step."""
    mode: Mode
    """training or inference."""
    issued: Issued | None
    """What issues its operations, counted: Python calls, nodes of autograd's graph, operations nested in others. Null:
    not counted."""
    operations: list[int | tuple[int, int]]
    """Each operation's place in `operations`, with how often where not once."""


class ProfileContext(TypedDict):
    """A step's operations, clocked."""

    step: int
    """Its place in `steps`."""
    plan: int
    """Its place in `plans`."""
    nanoseconds: list[float]
    """Of each operation, in the step's order. Nanoseconds."""
    spreads: list[float]
    """Of these times. Percent."""
    clock: NotRequired[Literal["device"]]
    """device: that took the times; left out: the host."""
    reckoned: NotRequired[Literal[True]]
    """It met slow cores alone, and its times are reckoned back to calm ones; left out where it is not so."""


class Profile(TypedDict):
    """A machine's calibrations, as `crosspoint profile export` writes them."""

    schema_version: str
    """Of this document."""
    name: str
    """By which it is asked for."""
    created_at: str
    """When the newest of its calibrations was made."""
    fingerprint: str
    """Of the machine when it was measured."""
    machine: str
    """That was measured, in words."""
    software: dict[str, str]
    """Versions that were measured with, by name: torch, python."""
    effort: CalibrationEffort
    """Of the newest of its calibrations that is full, else of the newest: quick, within 30 s, or full, within 60."""
    duration_seconds: float
    """What that one took."""
    noise: dict[str, float | None]
    """How quiet the machine was, each a number or null: load_average; steal_fraction (taken by the hypervisor); spread
    of the points; contention (of the cores measured on, what others wanted); waiting_fraction (of the time, without a
    core); busy (1: too little was left to trust it to a few percent); drift and hindrance of the figures; slow_fraction
    (of its times, those that met slow cores alone); device_busy_fraction (0 to 1, of the time just before, that others
    computed on a measured device; null: nobody knows; not there without devices)."""
    process_base_bytes: int | None
    """Resident set of a process that imported torch and did nothing; null: not measured."""
    context_bytes: dict[str, int] | None
    """By device, what its context takes with libraries at work; null: not measured."""
    workspace_bytes: dict[str, int] | None
    """By device, what libraries keep of torch's allocator once at work; null: not measured."""
    start_seconds: dict[str, float] | None
    """By device, from when a process first asks for it until its context is there and the libraries have worked; null:
    not measured."""
    hardware: MachineFacts | None
    """Of the machine that was measured; null: made before it was kept."""
    paces: dict[str, float]
    """By CPU threads, what fixed work takes on cores as quick as they get. Seconds."""
    like: dict[str, str]
    """By device, the one that was measured in its place: a card like it."""
    calibrations: int
    """Of how many its times are means."""
    method: int
    """Counted up with each change of how calibrations measure; of several calibrations the oldest's."""
    plans: list[ProfilePlan]
    """That were measured under; elsewhere stand their places here."""
    points: list[ProfilePoint]
    """What constants took."""
    networks: list[ProfileNetwork]
    """What whole steps of micro-networks took."""
    kernels: list[list[Any]]
    """What operations of any size share; elsewhere stand their places here."""
    operations: list[list[float]]
    """Rows of place in `kernels`, FLOPs, bytes read, bytes written, and grain where there is one."""
    steps: list[ProfileStep]
    """Which operations the networks' steps ran."""
    contexts: list[ProfileContext]
    """What each operation took inside these steps."""
    traces: list[dict[str, Any]]
    """Of `networks`, as functions of the batch size; elsewhere stand their places here."""
