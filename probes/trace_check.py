"""Whether a trace that somebody else wrote can be reckoned with: known words, bounded numbers, no negative work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

from probes import bounds
from probes.checked import Refused, check_choice, check_list, check_number, check_object, check_text, told_as_newer
from probes.issued_check import check_issued
from probes.trace import CURVES, ISSUED, PEAKS, SCHEMA_VERSION, Affine, Kind, Knot, Operation, Phase, Trace
from probes.workload.description import MODES, OPTIMIZERS

KINDS: tuple[str, ...] = get_args(Kind)
PHASES: tuple[str, ...] = get_args(Phase)
# Schemas whose traces are read as today's, what was added since being left empty: a profile is raw material, and its
# traces cannot be made again.
READABLE = tuple(str(version) for version in range(1, int(SCHEMA_VERSION) + 1))
COUNTS = (
    "parameters",
    "frozen_parameters",
    "parameter_tensors",
    "parameter_bytes",
    "buffer_bytes",
    "gradient_bytes",
    "optimizer_bytes",
)


def check_trace(document: Any, place: str) -> Trace:
    """Raises Refused."""
    row = check_object(document, place)
    if newer := told_as_newer(row.get("schema_version"), SCHEMA_VERSION, "traces"):
        raise Refused(newer)
    if row.get("schema_version") not in READABLE:
        raise Refused(f'{place}.schema_version has to be one of "1" to "{SCHEMA_VERSION}"')
    for name in ("operations", "autocast_operations"):
        check_list(row.get(name, ()), f"{place}.{name}", bounds.MAX_TRACE_OPERATIONS)
    for name in ISSUED:
        check_issued(row.get(name), f"{place}.{name}")
    device = row.get("device")
    row = {**row, "device": None}
    try:
        trace = Trace.from_json(_as_today(row))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise Refused(f"{place} is no trace as this crosspoint writes them") from None
    _check(trace, place)
    if device is None:
        return trace
    return replace(
        trace, device=check_trace({**check_object(device, f"{place}.device"), "device": None}, f"{place}.device")
    )


def _as_today(row: dict[str, Any]) -> dict[str, Any]:
    """Up to schema 3 kernels' peaks were lines; profiles carry none. Packed texts of others are not opened."""
    lines = {"1", "2", "3"}
    without: dict[str, Any] = {"allocations": "", "autocast_allocations": ""}
    without |= {"kernel_peaks": (), "autocast_kernel_peaks": ()} if row["schema_version"] in lines else {}
    return {**row, **without, "schema_version": SCHEMA_VERSION}


def _check(trace: Trace, place: str) -> None:
    check_choice(trace.mode, f"{place}.mode", MODES)
    check_choice(trace.optimizer, f"{place}.optimizer", OPTIMIZERS)
    for name in ("model_key", "torch_version"):
        check_text(getattr(trace, name), f"{place}.{name}", bounds.MAX_NAME_CHARACTERS)
    for name in COUNTS:
        check_number(getattr(trace, name), f"{place}.{name}", 0, bounds.MAX_POINT_QUANTITY)
    check_text(trace.autocast_refused, f"{place}.autocast_refused", bounds.MAX_SAID_CHARACTERS)
    check_text(trace.cpu, f"{place}.cpu", bounds.MAX_NAME_CHARACTERS)
    check_number(trace.layers_dropped, f"{place}.layers_dropped", 0, 1)
    for name in ("evenly_routed", "compiled", "devices"):
        if not isinstance(getattr(trace, name), bool):
            raise Refused(f"{place}.{name} is neither true nor false")
    if len(check_list(trace.batch_sizes, f"{place}.batch_sizes", 2)) != 2:
        raise Refused(f"{place}.batch_sizes has to be the two that were traced")
    for batch in trace.batch_sizes:
        check_number(batch, f"{place}.batch_sizes", 1, bounds.MAX_BATCH_SIZE)
    for name in ("activation_bytes", "input_bytes"):
        _check_line(getattr(trace, name), f"{place}.{name}")
    for name in PEAKS:
        for line in getattr(trace, name):
            _check_line(line, f"{place}.{name}")
    for name in CURVES:
        _check_knots(getattr(trace, name), f"{place}.{name}")
    for name in ("operations", "autocast_operations"):
        for index, operation in enumerate(getattr(trace, name)):
            _check_operation(operation, f"{place}.{name}[{index}]")


def _check_operation(operation: Operation, place: str) -> None:
    check_choice(operation.kind, f"{place}.kind", KINDS)
    check_choice(operation.phase, f"{place}.phase", PHASES)
    check_text(operation.name, f"{place}.name", bounds.MAX_NAME_CHARACTERS)
    check_text(operation.dtype, f"{place}.dtype", 64)
    check_text(operation.variant, f"{place}.variant", 64)
    check_number(operation.count, f"{place}.count", 0, bounds.MAX_MODULES * 100)
    check_number(operation.grain, f"{place}.grain", 0, bounds.MAX_POINT_QUANTITY)
    for name in ("flops", "read_bytes", "written_bytes"):
        line = getattr(operation, name)
        _check_line(line, f"{place}.{name}")
        if line.per_sample < 0 or line.at(1) < 0:
            raise Refused(f"{place}.{name} is negative at some batch size")
    for shape in check_list(operation.shapes, f"{place}.shapes", bounds.MAX_MODULES):
        for size in check_list(shape, f"{place}.shapes", 64):
            check_number(size, f"{place}.shapes", 0, bounds.MAX_POINT_QUANTITY)


def _check_knots(knots: Sequence[Knot], place: str) -> None:
    """Two at least, over growing batch sizes; or none."""
    check_list(knots, place, bounds.MAX_KNOTS)
    for knot in knots:
        check_number(knot.batch_size, place, 1, bounds.MAX_POINT_QUANTITY)
        check_number(knot.bytes, place, 0, bounds.MAX_POINT_QUANTITY)
    sizes = [knot.batch_size for knot in knots]
    if len(sizes) == 1 or any(a >= b for a, b in pairwise(sizes)):
        raise Refused(f"{place} does not go on from batch size to batch size")


def _check_line(line: Affine, place: str) -> None:
    for number in line:
        check_number(number, place, -bounds.MAX_POINT_QUANTITY, bounds.MAX_POINT_QUANTITY)
