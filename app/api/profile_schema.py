"""The schema of a profile as it is written (probes.profile.Profile.to_json): not that of the class it is read to."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - pydantic reads the standard ones from 3.12 on only

from app.api.plan_schema import PlanName
from probes.issued import Issued
from probes.machine_facts import MachineFacts
from probes.measurement import Timing
from probes.profile import CalibrationEffort
from probes.workload.description import Mode


class ProfilePlan(PlanName):
    environment: dict[str, str]


class ProfilePoint(TypedDict):
    """A constant's point: seconds of one execution of what the parameters describe. plan: its place in `plans`."""

    constant: str
    plan: int
    parameters: dict[str, float]
    flops: float
    bytes: float
    seconds: Timing


class ProfileNetwork(TypedDict):
    """A micro-network's whole step. plan, trace: places in `plans` and `traces`. page_faults: of a step."""

    name: str
    batch_size: int
    plan: int
    seconds: Timing
    page_faults: float
    trace: int


class ProfileStep(TypedDict):
    """Which operations a network's step ran: each the place in `operations`, with how often where not once. issued:
    what issues them, in counts."""

    network: str
    batch_size: int
    mode: Mode
    issued: Issued | None
    operations: list[int | tuple[int, int]]


class ProfileContext(TypedDict):
    """A step's operations, clocked. step, plan: places in `steps` and `plans`. nanoseconds: of each operation, in the
    step's order. spreads: of these, in percent. clock: `device` where that is not the host's."""

    step: int
    plan: int
    nanoseconds: list[float]
    spreads: list[float]
    clock: NotRequired[Literal["device"]]


class Profile(TypedDict):
    """A machine's calibrations, as `crosspoint profile export` writes them. paces: by CPU threads, seconds of fixed
    work on quick cores. like: device -> the one measured in its place. method: counted up with each change of how
    calibrations measure. kernels: what operations of any size share. operations: rows of place in `kernels`, FLOPs,
    bytes read, bytes written, and grain where there is one. traces: of `networks`."""

    schema_version: str
    name: str
    created_at: str
    fingerprint: str
    machine: str
    software: dict[str, str]
    effort: CalibrationEffort
    duration_seconds: float
    noise: dict[str, float | None]
    process_base_bytes: int | None
    context_bytes: dict[str, int] | None
    workspace_bytes: dict[str, int] | None
    hardware: MachineFacts | None
    paces: dict[str, float]
    like: dict[str, str]
    calibrations: int
    method: int
    plans: list[ProfilePlan]
    points: list[ProfilePoint]
    networks: list[ProfileNetwork]
    kernels: list[list[Any]]
    operations: list[list[float]]
    steps: list[ProfileStep]
    contexts: list[ProfileContext]
    traces: list[dict[str, Any]]
