"""The schemas of all documents. Imported only when the API's description is asked for."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - pydantic reads the standard ones from 3.12 on only

from app.advisor.recommendation import Basis, Breakdown, CrossoverKind, Interval, MemoryParts, Reason
from app.api.bodies import CalibrationBody, MeasurementBody, RecommendBody
from app.api.plan_schema import PlanName
from app.api.profile_schema import Profile
from app.jobs import Kind, State
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.names.gpu import GpuName


class RecommendedPlan(PlanName):
    environment: dict[str, str]
    batch_size: int


class OptionDocument(PlanName):
    environment: dict[str, str]
    fits: bool | None
    why_not: str | None
    basis: Basis | None
    step_seconds: Interval | None
    samples_per_second: float | None
    breakdown_seconds: Breakdown
    memory: MemoryParts
    max_batch_size: int | None
    note: str | None
    cannot_run: bool
    crowded: bool


CrossoverDocument = TypedDict(
    "CrossoverDocument",
    {
        "from": PlanName,
        "to": PlanName,
        "data": str,
        "kind": CrossoverKind,
        "batch_size": int | None,
        "low": int | None,
        "high": int | None,
        "medians_cross_at": int | None,
        "launch_bound_until": int | None,
        "launch_bound_at_largest": bool | None,
        "break_even_steps": int | None,
        "basis": Basis,
        "looked_at": list[int],
    },
)


class CurveDocument(PlanName):
    step_seconds: list[float | None]


class Curves(TypedDict):
    batch_sizes: list[int]
    plans: list[CurveDocument]


class WorkloadDocument(TypedDict):
    model: str
    batch_size: int
    mode: str
    optimizer: str
    data: str
    log_every: int | None
    parameters: int | None
    flops_per_step: int | None


class Settings(TypedDict):
    """What to set for the recommended plan; only what has evidence here. environment: variables, to be set before
    torch is imported. memory_format: `channels_last`, of the model and its images. compile: call the model through
    torch.compile. set_flush_denormal: as torch's function of that name. pin_memory: of the DataLoader."""

    environment: NotRequired[dict[str, str]]
    memory_format: NotRequired[Literal["channels_last"]]
    compile: NotRequired[Literal[True]]
    set_flush_denormal: NotRequired[Literal[True]]
    pin_memory: NotRequired[Literal[True]]


class Recommendation(TypedDict):
    """Options, best first."""

    schema_version: str
    workload: WorkloadDocument
    recommended: RecommendedPlan | None
    verdict: str
    confidence: float | None
    options: list[OptionDocument]
    crossovers: list[CrossoverDocument]
    curves: Curves
    settings: Settings
    reasons: list[Reason]
    snippet: str | None
    saved: bool


class MeasurementResult(TypedDict):
    measurements: list[Measurement]


class Job(TypedDict):
    """A measurement or calibration; progress from 0 to 1; code and reason say why it failed."""

    id: str
    kind: Kind
    state: State
    progress: float
    message: str
    created_at: str
    finished_at: str | None
    code: str | None
    reason: str | None
    saved: bool | None
    not_saved_because: str | None
    result: NotRequired[MeasurementResult | Profile | None]


class JobList(TypedDict):
    measurements: NotRequired[list[Job]]
    calibrations: NotRequired[list[Job]]


class MachineState(TypedDict):
    seen_at: str
    fingerprint: str
    changes: list[str]


class History(TypedDict):
    history: list[MachineState]


class ProfileSummary(TypedDict):
    """this_machine: it answers for this machine as it is now. points, networks: how many. calibrations: of how many
    its times are means."""

    name: str
    machine: str
    created_at: str
    fingerprint: str
    effort: str
    software: dict[str, str]
    noise: dict[str, float | None]
    points: int
    networks: int
    calibrations: int
    age_seconds: float | None
    this_machine: bool


class ProfileList(TypedDict):
    profiles: list[ProfileSummary]


class ProfileKept(TypedDict):
    name: str
    this_machine: bool


class ModelRow(TypedDict):
    name: str
    family: str
    summary: str
    parameters: int
    source: str


class ModelList(TypedDict):
    models: list[ModelRow]


class CatalogueModel(ModelRow):
    model: dict[str, Any]


class StoreHealth(TypedDict):
    """trouble: why nothing is saved; null where all is."""

    trouble: str | None


class LabHealth(TypedDict):
    """waiting: measurements that wait for their turn. tracer_is_warm: the next trace needs no new process."""

    measuring: bool
    waiting: int
    tracer_is_warm: bool


class CalibrationHealth(TypedDict):
    """What the service calibrates by itself. reason: why it waits, failed or is off."""

    state: Literal["unknown", "off", "waiting", "running", "done", "failed"]
    reason: str | None


class Health(TypedDict):
    """warnings: what is wrong with the machine or the store. probes: name -> outcome."""

    status: Literal["ok", "starting"]
    warnings: NotRequired[list[str]]
    probes: NotRequired[dict[str, str]]
    store: NotRequired[StoreHealth]
    lab: NotRequired[LabHealth]
    calibration: NotRequired[CalibrationHealth]


class ProblemError(TypedDict):
    pointer: str
    message: str


class Problem(TypedDict):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[ProblemError]]
    suggestions: NotRequired[list[str]]


ANSWERS: tuple[Any, ...] = (
    Profile,
    ProfileList,
    ProfileKept,
    Survey,
    History,
    GpuName,
    Recommendation,
    Job,
    JobList,
    ModelList,
    CatalogueModel,
    Health,
    Problem,
)
BODIES: tuple[type[BaseModel], ...] = (RecommendBody, MeasurementBody, CalibrationBody)


def collect_schemas(reference: str) -> dict[str, Any]:
    """Name -> JSON schema, of every document and everything in it."""
    schemas: dict[str, Any] = {}
    for answer in ANSWERS:
        schema = TypeAdapter(answer).json_schema(ref_template=reference, mode="serialization")
        schemas.update(schema.pop("$defs", {}))
        schemas[answer.__name__] = schema
    for body in BODIES:
        schema = body.model_json_schema(ref_template=reference)
        schemas.update(schema.pop("$defs", {}))
        schemas[body.__name__] = schema
    return schemas
