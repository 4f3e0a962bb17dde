"""A profile: what calibrations measured on one machine.

Raw points with spread, units and provenance; never fitted coefficients, so that a better model can be fitted to an
old profile. Made by `probes.microtrain.calibrate`, kept by the store, read by the advisor.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from probes import bounds
from probes.checked import (
    Refused,
    check_choice,
    check_count,
    check_list,
    check_number,
    check_object,
    check_place,
    check_text,
    member,
    told_as_newer,
)
from probes.context import Context, contexts_to_json
from probes.context_check import check_contexts
from probes.machine_facts import DEVICE_PATTERN, MAX_BYTES, MachineFacts
from probes.plan_bounds import check_plans
from probes.plan_check import check_devices
from probes.point_check import check_network, check_point, check_written_plan
from probes.points import NetworkPoint, Point, network_to_json, point_to_json
from probes.strict_json import parse_strict_json
from probes.traces_of_rows import TracesOfRows
from probes.workload.description import Plan

SCHEMA_VERSION = "4"
# 1: contexts at length; 2: each step once; 3: each plan and each kernel once; 4: contexts by a device's clock.
READABLE_VERSIONS = ("1", "2", "3", SCHEMA_VERSION)
# How calibrations measure: what those of another method measured is not taken into one mean with theirs. To be counted
# up with each change after which an operation's time or name is another. 0: all before it was counted; 1: operations
# are clocked on settled heaps, and told apart by the kernels that their arguments choose; 2: on memory that was touched
# before, and of a network of wide layers at a larger batch; 3: cores that share no cache are heard, and do not count as
# calm. Whole steps of a user's own model are counted by themselves (probes.measurement.METHOD): those of another method
# are not read at all, where a profile is, since a measurement takes seconds to make again.
METHOD = 3

CalibrationEffort = Literal["quick", "full"]
EFFORTS: tuple[CalibrationEffort, ...] = get_args(CalibrationEffort)

MAX_DIGITS = 9  # of a number of threads
WHOLE_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"  # Python reads a day or a week alone, too
GZIP = b"\x1f\x8b"  # what a compressed file begins with (RFC 1952)


class InvalidProfile(ValueError):
    """A document that is not a profile of this schema; the message says what is wrong. theirs: as Refused has it."""

    def __init__(self, message: str, theirs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.theirs = theirs


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    created_at: str  # RFC 3339, UTC
    fingerprint: str  # of the survey it was made under
    machine: str  # in words: "AMD EPYC, 2 cores, 23 GiB"
    software: dict[str, str]  # torch, python, …
    effort: str  # quick or full
    duration_seconds: float
    noise: dict[str, float | None]  # Noise.figures (probes.microtrain.quiet.noise), drift, hindrance, slow_fraction
    points: tuple[Point, ...]
    networks: tuple[NetworkPoint, ...]
    process_base_bytes: int | None = None  # resident set of a process that imported torch and did nothing
    context_bytes: dict[str, int] | None = None  # device -> bytes its context takes, with libraries at work
    workspace_bytes: dict[str, int] | None = None  # device -> what libraries keep of torch's allocator once at work
    # Device -> seconds from when a process first asks for it until its context is there and the libraries have worked.
    start_seconds: dict[str, float] | None = None
    contexts: tuple[Context, ...] = ()  # operations timed inside the networks' steps
    hardware: MachineFacts | None = None  # of the machine it was measured on; None: made before it was kept
    # By CPU threads, seconds that fixed work takes on cores as quick as they get (probes.microtrain.quiet.pace).
    paces: dict[int, float] = field(default_factory=dict)
    # Device -> the one that was measured in its place: a card like it, of the same name, memory and link.
    like: dict[str, str] = field(default_factory=dict)
    calibrations: int = 1  # whose means its times are; created_at is the latest's
    method: int = METHOD  # of measuring; of several calibrations the oldest
    schema_version: str = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """A plan stands once, in `plans`, and a trace in `traces`, though many plans ran its network: elsewhere are
        their places."""
        traces = list({id(point.trace): point.trace for point in self.networks}.values())
        places = {id(trace): place for place, trace in enumerate(traces)}
        rows: tuple[Point | NetworkPoint | Context, ...] = (*self.points, *self.networks, *self.contexts)
        plans = {row.plan.key: row.plan for row in rows}
        places_of_plans = {key: place for place, key in enumerate(plans)}

        def place_of(plan: Plan) -> int:
            return places_of_plans[plan.key]

        document = asdict(replace(self, points=(), networks=(), contexts=()))
        document["paces"] = {str(threads): seconds for threads, seconds in self.paces.items()}
        document["plans"] = [plan.to_json() for plan in plans.values()]
        document["points"] = [point_to_json(point, place_of(point.plan)) for point in self.points]
        document |= contexts_to_json(self.contexts, place_of)
        document["traces"] = [trace.to_json() for trace in traces]
        document["networks"] = [
            network_to_json(point, place_of(point.plan), places[id(point.trace)]) for point in self.networks
        ]
        return document

    @classmethod
    def from_json(cls, document: Any) -> Profile:
        """Members that are not known are passed over. Raises InvalidProfile when the document is not a profile of this
        schema, or holds what no calibration can have measured."""
        if not isinstance(document, dict) or document.get("schema_version") not in READABLE_VERSIONS:
            raise InvalidProfile(_not_readable(document))
        try:
            return _profile_from_json(document)
        except Refused as error:
            raise InvalidProfile(f"the profile cannot be used: {error}", error.theirs) from None


def _not_readable(document: Any) -> str:
    version = document.get("schema_version") if isinstance(document, dict) else None
    newer = told_as_newer(version, SCHEMA_VERSION, "profiles")
    if newer is None and isinstance(document, dict) and "schema_version" in document:
        known = ", ".join(f'"{each}"' for each in READABLE_VERSIONS)
        return f"this is not a crosspoint profile that can be read: its schema_version is none of {known}"
    return newer or "this is not a crosspoint profile"


def parse_profile(content: bytes) -> Profile:
    """A profile's file. Raises InvalidProfile."""
    if content.startswith(GZIP):
        raise InvalidProfile("it is compressed: unpack it first (`gunzip`)")
    if len(content) > bounds.MAX_PROFILE_BYTES:
        raise InvalidProfile(f"it is larger than {bounds.MAX_PROFILE_BYTES // 2**20} MiB, and no profile is")
    try:
        document = parse_strict_json(content)
    except Refused as error:
        raise InvalidProfile(f"{error}: export it again where it was made, and copy it whole") from None
    return Profile.from_json(document)


def _profile_from_json(document: dict[str, Any]) -> Profile:
    def row(name: str) -> Any:
        return member(document, name, "")

    traces = TracesOfRows(document.get("traces", ()))
    rows = check_list(document.get("plans", ()), "plans", bounds.MAX_PROFILE_PLANS)
    plans = [check_written_plan(each, f"plans[{place}]") for place, each in enumerate(rows)]

    def plan_at(value: Any, place: str) -> Plan:
        """Schema versions 1 and 2 have the plan itself there."""
        if isinstance(value, dict):
            return check_written_plan(value, place)
        return plans[check_place(value, place, len(plans), "plan")]

    hardware, base = document.get("hardware"), document.get("process_base_bytes")
    profile = Profile(
        name=check_text(row("name"), "name", bounds.MAX_NAME_CHARACTERS),
        created_at=_time(row("created_at")),
        fingerprint=check_text(row("fingerprint"), "fingerprint", bounds.MAX_NAME_CHARACTERS),
        machine=check_text(row("machine"), "machine", 5 * bounds.MAX_NAME_CHARACTERS),
        software=_texts(row("software"), "software"),
        effort=check_choice(row("effort"), "effort", EFFORTS),
        duration_seconds=check_number(row("duration_seconds"), "duration_seconds", 0.0, bounds.MAX_POINT_SECONDS),
        noise=_noise(row("noise")),
        points=tuple(
            check_point(each, f"points[{place}]", plan_at)
            for place, each in enumerate(check_list(row("points"), "points", bounds.MAX_PROFILE_POINTS))
        ),
        networks=tuple(
            check_network(each, f"networks[{place}]", plan_at, traces)
            for place, each in enumerate(check_list(row("networks"), "networks", bounds.MAX_PROFILE_NETWORKS))
        ),
        process_base_bytes=None if base is None else check_count(base, "process_base_bytes", 0, MAX_BYTES),
        context_bytes=_device_bytes(document.get("context_bytes"), "context_bytes"),
        workspace_bytes=_device_bytes(document.get("workspace_bytes"), "workspace_bytes"),
        start_seconds=_device_seconds(document.get("start_seconds"), "start_seconds"),
        contexts=check_contexts(document, plan_at),
        hardware=None if hardware is None else MachineFacts.from_json(hardware),
        paces=_paces(document.get("paces")),
        like=_like(document.get("like")),
        calibrations=check_count(document.get("calibrations", 1), "calibrations", 1, bounds.MAX_CALIBRATIONS),
        method=check_count(document.get("method", 0), "method", 0, bounds.MAX_METHOD),
    )
    check_plans(profile)
    check_devices(profile)
    return profile


def _time(value: Any) -> str:
    text = check_text(value, "created_at", 40)
    with contextlib.suppress(ValueError):
        if re.match(WHOLE_TIME, text) is not None:
            datetime.fromisoformat(text)
            return text
    raise Refused("created_at is no time as RFC 3339 has it, such as 2026-11-30T12:00:00Z")


def moment_of(created_at: str) -> datetime:
    """Of a profile: in UTC where it says no zone."""
    moment = datetime.fromisoformat(created_at)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _texts(value: Any, place: str) -> dict[str, str]:
    rows = check_object(value, place, bounds.MAX_PROFILE_ENTRIES)
    return {
        check_text(name, f"a name in {place}", 64): check_text(text, f"a value in {place}", bounds.MAX_NAME_CHARACTERS)
        for name, text in rows.items()
    }


def _noise(value: Any) -> dict[str, float | None]:
    rows = check_object(value, "noise", bounds.MAX_PROFILE_ENTRIES)
    return {
        check_text(name, "a name in noise", 64): None
        if figure is None
        else check_number(figure, "a figure in noise", 0.0, bounds.MAX_POINT_SECONDS)
        for name, figure in rows.items()
    }


def _paces(value: Any) -> dict[int, float]:
    """A document's names are texts."""
    rows = check_object({} if value is None else value, "paces", bounds.MAX_PROFILE_PLANS)
    found = {}
    for name, seconds in rows.items():
        if not (name.isascii() and name.isdigit()) or len(name) > MAX_DIGITS:
            raise Refused("a name in paces is no number of threads")
        threads = check_count(int(name), "a number of threads in paces", 1, bounds.MAX_THREADS)
        found[threads] = check_number(seconds, "a time in paces", bounds.MIN_POINT_SECONDS, bounds.MAX_POINT_SECONDS)
    return found


def _device_bytes(value: Any, place: str) -> dict[str, int] | None:
    return (
        None
        if value is None
        else {name: check_count(size, f"a size in {place}", 0, MAX_BYTES) for name, size in _by_device(value, place)}
    )


def _device_seconds(value: Any, place: str) -> dict[str, float] | None:
    return (
        None
        if value is None
        else {
            name: check_number(seconds, f"a time in {place}", 0.0, bounds.MAX_POINT_SECONDS)
            for name, seconds in _by_device(value, place)
        }
    )


def _by_device(value: Any, place: str) -> list[tuple[str, Any]]:
    rows = check_object(value, place, bounds.MAX_DEVICES)
    return [(check_text(name, f"a name in {place}", 32, DEVICE_PATTERN), it) for name, it in rows.items()]


def _like(value: Any) -> dict[str, str]:
    rows = check_object({} if value is None else value, "like", bounds.MAX_DEVICES)
    return {
        check_text(name, "a name in like", 32, DEVICE_PATTERN): check_text(
            other, "a device in like", 32, DEVICE_PATTERN
        )
        for name, other in rows.items()
    }
