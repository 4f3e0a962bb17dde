"""The schemas of all documents. Imported only when the API's description is asked for. What a member is says the
string beneath it, here or in the class that it is made of (app.api.field_texts)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - pydantic reads the standard ones from 3.12 on only

from app.advisor import recommendation
from app.advisor.recommendation import Basis, Breakdown, CrossoverKind, Interval, MachineLoad, MemoryParts, Reason
from app.api import bodies, plan_schema, profile_schema
from app.api.bodies import CalibrationBody, MeasurementBody, RecommendBody
from app.api.field_texts import in_words_of_json, read_texts
from app.api.plan_schema import PlanName
from app.api.profile_schema import Profile
from app.jobs import Kind, State
from probes import accelerator, hardware, machine_facts, measurement, software_facts
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.names import gpu
from probes.names.gpu import GpuName
from probes.workload import catalogue, description


class RecommendedPlan(PlanName):
    environment: dict[str, str]
    batch_size: int
    """That was asked for."""


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
    relieved: bool
    fits_up_to: int | None


# By itself, as its member is a word of Python's.
CrossoverStart = TypedDict(
    "CrossoverStart", {"from": Annotated[PlanName, Field(description="The plan that is overtaken.")]}
)


class CrossoverDocument(CrossoverStart):
    """Where `to` overtakes `from` as the batch grows."""

    to: PlanName
    data: str
    kind: CrossoverKind
    batch_size: int | None
    low: int | None
    high: int | None
    medians_cross_at: int | None
    launch_bound_until: int | None
    launch_bound_at_largest: bool | None
    break_even_steps: int | None
    basis: Basis
    looked_at: list[int]


class CurveDocument(PlanName):
    step_seconds: list[float | None]


class Curves(TypedDict):
    batch_sizes: list[int]
    """At which the plans' steps are told."""
    plans: list[CurveDocument]
    """The recommended one and those in `crossovers`."""


class WorkloadDocument(TypedDict):
    model: str
    """Its name, or what it is called where it has none."""
    batch_size: int
    mode: str
    optimizer: str
    data: str
    log_every: int | None
    parameters: int | None
    """Trainable scalars; null: it was not traced."""
    all_parameters: int | None
    """Scalars, trained or not; null: it was not traced."""
    flops_per_step: int | None
    """Floating-point operations of one step at this batch, a multiplication and an addition as two; null: it was not
    traced."""


class Settings(TypedDict):
    """What to set for the recommended plan; only what has evidence here."""

    environment: NotRequired[dict[str, str]]
    """Variables, to be set before torch is imported."""
    memory_format: NotRequired[Literal["channels_last"]]
    """channels_last: of the model; images follow its weights."""
    compile: NotRequired[Literal[True]]
    """Call the model through torch.compile."""
    set_flush_denormal: NotRequired[Literal[True]]
    """As torch's function of that name."""
    pin_memory: NotRequired[Literal[True]]
    """Of the DataLoader."""


class Recommendation(TypedDict):
    """Where to train, with which settings, and why."""

    schema_version: str
    workload: WorkloadDocument
    recommended: RecommendedPlan | None
    verdict: str
    confidence: float | None
    options: list[OptionDocument]
    crossovers: list[CrossoverDocument]
    curves: Curves
    """Medians over the batch size, fed as asked."""
    settings: Settings
    reasons: list[Reason]
    load: MachineLoad | None
    snippet: str | None
    saved: bool
    """Whether all that was found out could be kept; the answer is whole in any case."""


class MeasurementResult(TypedDict):
    measurements: list[Measurement]
    """A row a plan and batch size."""


class Job(TypedDict):
    """A measurement or calibration."""

    id: str
    """By which it is asked for."""
    kind: Kind
    """measurement or calibration."""
    state: State
    """queued: it waits for the machine; running; succeeded: `result` holds what came of it; failed: `code` and `reason`
    say why; cancelled: on request."""
    progress: float
    """How far it is, 0 to 1."""
    message: str
    """What it does at the moment, in words."""
    created_at: str
    """When it was asked for."""
    finished_at: str | None
    """When it ended; null: it has not."""
    code: str | None
    """Why it failed or was cancelled, stable (docs/protocol.md); null: it did not."""
    reason: str | None
    """The same in a sentence; null: it did not."""
    saved: bool | None
    """Whether the result could be kept; null: there is none."""
    not_saved_because: str | None
    """Why it could not, in a sentence; null: it was, or there is none."""
    result: NotRequired[MeasurementResult | Profile | None]
    """Null until it has succeeded, and of older calibrations (their profiles: /profiles); not in lists and events."""


class JobList(TypedDict):
    measurements: NotRequired[list[Job]]
    """The latest, newest first, without their results."""
    calibrations: NotRequired[list[Job]]
    """The latest, newest first, without their results."""


class MachineState(TypedDict):
    seen_at: str
    """When it was first seen so."""
    fingerprint: str
    """Of the machine as it was then."""
    changes: list[str]
    """What had changed since the state before, in words; []: it is the first that was seen."""


class History(TypedDict):
    history: list[MachineState]
    """States of this machine, newest first, a hundred at most."""


class ProfileSummary(TypedDict):
    """What a list says of a profile."""

    name: str
    machine: str
    created_at: str
    fingerprint: str
    effort: str
    software: dict[str, str]
    noise: dict[str, float | None]
    points: int
    """How many constants' points it holds."""
    networks: int
    """How many whole steps of micro-networks it holds."""
    calibrations: int
    age_seconds: float | None
    """Since `created_at`; null: that lies in the future, so that a clock is wrong."""
    this_machine: bool
    """It answers for this machine as it is now, where a question names none."""


class ProfileList(TypedDict):
    profiles: list[ProfileSummary]
    """Newest first."""


class ProfileKept(TypedDict):
    name: str
    """By which it is asked for."""
    this_machine: bool
    """It answers for this machine as it is now."""


class ModelRow(TypedDict):
    name: str
    family: str
    summary: str
    parameters: int
    source: str


class ModelList(TypedDict):
    models: list[ModelRow]
    """The catalogue, in its order."""


class CatalogueModel(ModelRow):
    model: dict[str, Any]
    """Its description, as it may be changed and asked about."""


class StoreHealth(TypedDict):
    """Whether what is found out is kept."""

    trouble: str | None
    """Why nothing is saved; null: all is."""


class LabHealth(TypedDict):
    """What measures and traces."""

    measuring: bool
    """A measurement or calibration of this service runs."""
    waiting: int
    """Measurements that wait for their turn."""
    tracer_is_warm: bool
    """The next trace needs no new process."""


class CalibrationHealth(TypedDict):
    """What the service calibrates by itself."""

    state: Literal["unknown", "off", "waiting", "running", "done", "failed"]
    """unknown: it has not looked yet; off: it is not to; waiting: for its turn to measure, or for a survey that tells
    what this machine is; running; done: this machine has a profile, and further calibrations of it may follow while
    nobody computes; failed: `reason` says why, and when it is tried again, if it is."""
    reason: str | None
    """Why it waits, failed or is off, in a sentence; null: it does not say."""


class Health(TypedDict):
    """Whether it is alive, ready and well: /livez and /readyz give the first members of it."""

    status: Literal["ok", "starting"]
    """ok; starting: the first survey is not done or the store not opened."""
    warnings: NotRequired[list[str]]
    """What is wrong with the machine or the store, in sentences; none of it makes the service less ready."""
    probes: NotRequired[dict[str, str]]
    """How each probe ended, by its name."""
    store: NotRequired[StoreHealth]
    """Whether what is found out is kept."""
    lab: NotRequired[LabHealth]
    """What measures and traces."""
    calibration: NotRequired[CalibrationHealth]
    """What the service calibrates by itself."""


class ProblemError(TypedDict):
    pointer: str
    """Which member of the body is meant (RFC 6901)."""
    message: str
    """What is wrong with it, in a sentence."""


class Problem(TypedDict):
    """RFC 9457."""

    type: str
    """/problems/ and the code, which is stable (docs/http-api.md lists all)."""
    title: str
    """What kind of problem it is."""
    status: int
    """The answer's HTTP status."""
    detail: str
    """What is wrong and what to do, in sentences; of what was sent it repeats nothing but sizes, and words that
    crosspoint or transformers has itself."""
    errors: NotRequired[list[ProblemError]]
    """Which members of the body are wrong."""
    suggestions: NotRequired[list[str]]
    """Names near the one that is not known."""


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
# Whose classes say what their fields are; what others are like stands before them.
MODULES: tuple[ModuleType, ...] = (
    software_facts,
    accelerator,
    hardware,
    description,
    catalogue,
    measurement,
    machine_facts,
    gpu,
    recommendation,
    plan_schema,
    profile_schema,
    bodies,
    sys.modules[__name__],
)
# A document -> what it is made of, whose fields are its.
LIKE = {
    "PlanName": "Plan",
    "PlanBody": "Plan",
    "WorkloadBody": "Workload",
    "WorkloadDocument": "Workload",
    "OptionDocument": "Option",
    "CrossoverDocument": "Crossover",
    "CurveDocument": "Curve",
    "ModelRow": "CatalogueRow",
    "ProfileSummary": "Profile",
}


def collect_schemas(reference: str) -> dict[str, Any]:
    """Name -> JSON schema, of every document and everything in it, with what each member is."""
    answers = TypeAdapter(tuple[ANSWERS])  # type: ignore[valid-type]
    schemas: dict[str, Any] = answers.json_schema(ref_template=reference, mode="serialization")["$defs"]
    for body in BODIES:
        schema = body.model_json_schema(ref_template=reference)
        schemas.update(schema.pop("$defs", {}))
        schemas[body.__name__] = schema
    texts = read_texts(MODULES, LIKE)
    for name, schema in schemas.items():
        _describe(schema, texts.get(name, {}))
    return schemas


def _describe(schema: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Say what it is and what its members are, as far as it does not say so itself."""
    if "description" in schema:
        schema["description"] = in_words_of_json(schema["description"])
    for member, described in schema.get("properties", {}).items():
        if member in texts:
            described.setdefault("description", texts[member])
