"""Measurements for people: plans by their times, with spread, overheads and memory."""

from __future__ import annotations

from typing import Any

from app.advisor.explanations.slow_cores_reason import FELT, OFTEN
from app.cli.output import Column, print_pairs, print_table
from app.cli.recommend_view import plan_label
from app.cli.units import UNKNOWN, format_bytes, format_seconds, format_share, format_timing

Document = dict[str, Any]

COLUMNS = (
    Column("plan"),
    Column("batch", "right"),
    Column("one step", "right"),
    Column("start-up", "right", needed=False),
    Column("transfer", "right", needed=False),
    Column("launch", "right", needed=False),
    Column("read back", "right", needed=False),
    Column("compute", "right", needed=False),
    Column("busy", "right", needed=False),
    Column("memory", "right", needed=False),
)


def show_measurements(measurements: list[Document]) -> None:
    """measurements: documents of probes.measurement.Measurement; the fastest comes first."""
    ordered = sorted(measurements, key=lambda row: row["step"]["median"] if row["step"] else float("inf"))
    print_table(COLUMNS, [_row(measurement) for measurement in ordered])
    notes = [(plan_label(row["plan"]), _note(row)) for row in ordered if _note(row)]
    if notes:
        print_pairs(notes)


def _row(measurement: Document) -> list[str]:
    overheads = measurement["overheads"] or {}
    step = format_timing(measurement["step"]) if measurement["step"] else measurement["outcome"]
    parts = ("transfer_seconds", "launch_seconds", "synchronize_seconds", "compute_seconds")
    return [
        plan_label(measurement["plan"]),
        str(measurement["batch_size"]),
        step if measurement["steady"] or not measurement["step"] else f"{step} *",
        format_seconds(measurement["startup_seconds"]),
        *(format_seconds(overheads.get(part)) for part in parts),
        format_share(overheads.get("device_busy")),
        _memory(measurement["memory"]),
    ]


def _memory(memory: Document | None) -> str:
    if memory is None:
        return UNKNOWN
    return format_bytes(memory["reserved_bytes"] if memory["reserved_bytes"] is not None else memory["process_bytes"])


def _note(measurement: Document) -> str:
    if measurement["reason"]:
        return str(measurement["reason"])
    notes = []
    if measurement["step"] and not measurement["steady"]:
        notes.append("* the time was over before the steps had settled; give it more with --seconds")
    if (measurement.get("slow_share") or 0.0) >= OFTEN:
        notes.append(_slow(measurement["slow_share"], measurement["slowdown"]))
    return "; ".join(notes)


def _slow(share: float, slowdown: float | None) -> str:
    """Of a machine whose cores were slow meanwhile (probes.microtrain.quiet.pace)."""
    met = f"the cores were slow in {format_share(share)} of its blocks, as beside others' work"
    if slowdown is None and share < 1.0:
        return f"{met}: the calm ones took no less, so something else was in their way, and it is what steps took"
    if slowdown is None:
        return (
            f"{met}: no block was calm, so it is what steps took, reckoned back where a neighbour may have slowed them"
        )
    return f"{met}, which hardly took longer" if slowdown < FELT else f"{met}: those took {slowdown:.2f} times as long"
