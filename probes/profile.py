"""A profile: what calibrations measured on one machine.

Raw points with spread, units and provenance; never fitted coefficients, so that a better model can be fitted to an
old profile. Made by `probes.microtrain.calibrate`, kept by the store, read by the advisor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from probes.measurement import Timing
from probes.trace import Trace
from probes.workload.description import Plan

SCHEMA_VERSION = "1"


class InvalidProfile(ValueError):
    """A document that is not a profile of this schema; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Point:
    """One constant, measured once over: `seconds` for ONE execution of what `parameters` describe.

    constant: one of the names in `probes.microtrain.constants` (dispatch, matmul, convolution, bandwidth, …).
    parameters: sizes that tell points of one constant apart (m, n, k; bytes; …). flops, bytes: moved and computed
    by one execution, 0 where it makes no sense.
    """

    constant: str
    plan: Plan
    parameters: dict[str, float]
    flops: float
    bytes: float
    seconds: Timing


@dataclass(frozen=True, slots=True)
class NetworkPoint:
    """A whole micro-network's step under a plan: what operations cost in context."""

    name: str
    batch_size: int
    plan: Plan
    seconds: Timing
    trace: Trace


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    created_at: str  # RFC 3339, UTC
    fingerprint: str  # of the survey it was made under
    machine: str  # in words: "AMD EPYC, 2 cores, 23 GiB"
    software: dict[str, str]  # torch, python, …
    effort: str  # quick or full
    duration_seconds: float
    noise: dict[str, float | None]  # load_average, steal_fraction, spread (median relative spread of the points)
    points: tuple[Point, ...]
    networks: tuple[NetworkPoint, ...]
    process_base_bytes: int | None = None  # resident set of a process that imported torch and did nothing
    context_bytes: dict[str, int] | None = None  # device -> bytes its context takes
    schema_version: str = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """A trace stands once, in `traces`, though many plans ran its network: `trace` of a network is its place."""
        traces = list({id(point.trace): point.trace for point in self.networks}.values())
        places = {id(trace): place for place, trace in enumerate(traces)}
        document = asdict(replace(self, networks=()))
        document["traces"] = [trace.to_json() for trace in traces]
        document["networks"] = [_network_to_json(point, places[id(point.trace)]) for point in self.networks]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Profile:
        """Raises InvalidProfile when the document is not a profile of this schema."""
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise InvalidProfile(f"this is not a crosspoint profile of schema version {SCHEMA_VERSION}")
        try:
            values = dict(document)
            values["points"] = tuple(_point_from_json(row) for row in values["points"])
            traces = [Trace.from_json(row) for row in values.pop("traces", ())]
            values["networks"] = tuple(_network_from_json(row, traces) for row in values["networks"])
            return cls(**values)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InvalidProfile(f"the profile is damaged ({type(error).__name__})") from error


def _point_from_json(row: dict[str, Any]) -> Point:
    return Point(
        row["constant"],
        Plan.from_json(row["plan"]),
        dict(row["parameters"]),
        row["flops"],
        row["bytes"],
        Timing.from_json(row["seconds"]),
    )


def _network_to_json(point: NetworkPoint, place: int) -> dict[str, Any]:
    return {
        "name": point.name,
        "batch_size": point.batch_size,
        "plan": point.plan.to_json(),
        "seconds": asdict(point.seconds),
        "trace": place,
    }


def _network_from_json(row: dict[str, Any], traces: list[Trace]) -> NetworkPoint:
    """A trace may also stand in the row itself."""
    trace = row["trace"]
    return NetworkPoint(
        row["name"],
        row["batch_size"],
        Plan.from_json(row["plan"]),
        Timing.from_json(row["seconds"]),
        traces[trace] if isinstance(trace, int) else Trace.from_json(trace),
    )
