"""Whether a profile's points that somebody else wrote can be reckoned with: known words, bounded numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from probes import bounds
from probes.checked import (
    Refused,
    check_choice,
    check_count,
    check_flag,
    check_list,
    check_number,
    check_object,
    check_text,
    member,
)
from probes.machine_facts import DEVICE_PATTERN
from probes.measurement import Timing
from probes.plan_check import check_plan, check_rates
from probes.points import NetworkPoint, Point
from probes.traces_of_rows import TracesOfRows
from probes.workload.description import PLAN_CHANGES, PLAN_VARIABLES, PRECISIONS, Plan

PlanAt = Callable[[Any, str], Plan]  # what stands in a `plan` member, and where that is

CONSTANT_PATTERN = r"[a-z][a-z0-9_-]*"  # one that is not known is kept: a newer crosspoint measured more


def check_point(value: Any, place: str, plan_at: PlanAt) -> Point:
    row = check_object(value, place)
    constant = check_text(member(row, "constant", place), f"{place}.constant", 64, CONSTANT_PATTERN)
    parameters = check_object(member(row, "parameters", place), f"{place}.parameters", bounds.MAX_PROFILE_ENTRIES)
    point = Point(
        constant,
        plan_at(member(row, "plan", place), f"{place}.plan"),
        {
            check_text(name, f"a name in {place}.parameters", 64): check_number(
                number, f"a number in {place}.parameters", -bounds.MAX_POINT_QUANTITY, bounds.MAX_POINT_QUANTITY
            )
            for name, number in parameters.items()
        },
        _quantity(member(row, "flops", place), f"{place}.flops"),
        _quantity(member(row, "bytes", place), f"{place}.bytes"),
        _timing(member(row, "seconds", place), f"{place}.seconds"),
        check_flag(row.get("reckoned", False), f"{place}.reckoned"),
    )
    return check_rates(point, place)


def check_network(value: Any, place: str, plan_at: PlanAt, traces: TracesOfRows) -> NetworkPoint:
    row = check_object(value, place)
    trace = traces.at(member(row, "trace", place), f"{place}.trace")
    return NetworkPoint(
        check_text(member(row, "name", place), f"{place}.name", bounds.MAX_NAME_CHARACTERS),
        check_count(member(row, "batch_size", place), f"{place}.batch_size", 1, bounds.MAX_BATCH_SIZE),
        plan_at(member(row, "plan", place), f"{place}.plan"),
        _timing(member(row, "seconds", place), f"{place}.seconds"),
        trace,
        check_number(row.get("page_faults", 0.0), f"{place}.page_faults", 0.0, bounds.MAX_POINT_QUANTITY),
        check_flag(row.get("reckoned", False), f"{place}.reckoned"),
    )


def _quantity(value: Any, place: str) -> float:
    """0, or 1 and more: nothing computes or moves a fraction."""
    number = check_number(value, place, 0.0, bounds.MAX_POINT_QUANTITY)
    return number if number == 0.0 else check_number(number, place, 1.0, bounds.MAX_POINT_QUANTITY)


def _timing(value: Any, place: str) -> Timing:
    row = check_object(value, place)

    def seconds(value: Any, name: str) -> float:
        return check_number(value, f"{place}.{name}", bounds.MIN_POINT_SECONDS, bounds.MAX_POINT_SECONDS)

    low, middle, high = (seconds(member(row, name, place), name) for name in ("low", "median", "high"))
    if not low <= middle <= high:
        raise Refused(f"{place} is out of order: low, median and high have to rise")
    samples = check_list(row.get("samples", ()), f"{place}.samples", bounds.MAX_TIMING_SAMPLES)
    return Timing(middle, low, high, tuple(seconds(sample, "samples") for sample in samples))


def check_written_plan(value: Any, place: str) -> Plan:
    row = check_object(value, place)
    if changed := next((name for name in PLAN_CHANGES if row.get(name, False) is not False), None):
        raise Refused(f"{place}.{changed} has to be left out: calibrations clock plans as torch runs them")
    threads = row.get("threads")
    plan = Plan(
        check_text(member(row, "device", place), f"{place}.device", 32, DEVICE_PATTERN),
        check_choice(row.get("precision", "fp32"), f"{place}.precision", PRECISIONS),
        None if threads is None else check_count(threads, f"{place}.threads", 1, bounds.MAX_THREADS),
        _environment(row.get("environment"), f"{place}.environment"),
    )
    return check_plan(plan, place)


def _environment(value: Any, place: str) -> dict[str, str]:
    """A plan's variables end in a snippet that people run: they are those that crosspoint has plans with."""
    rows = check_object({} if value is None else value, place, bounds.MAX_PROFILE_ENTRIES)
    return {name: _variable(name, text, place) for name, text in rows.items()}


def _variable(name: str, text: Any, place: str) -> str:
    """Its value."""
    if name not in PLAN_VARIABLES:
        told = check_text(name, f"a name in {place}", 64)
        known = " and ".join(PLAN_VARIABLES)
        raise Refused(f"{place} sets {told}, which no plan does ({known} alone): leave it out", (told,))
    if not isinstance(text, str) or re.fullmatch(PLAN_VARIABLES[name], text) is None:
        raise Refused(f"{place}.{name} has to be a whole number of bytes, written as text")
    return text
