"""A step that was measured on a device, fed in another way than it was then."""

from __future__ import annotations

from dataclasses import replace

from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import shift
from app.advisor.time_model.measured import MeasuredTime
from app.advisor.time_model.predicted import PredictedTime
from app.advisor.time_model.transfer import hidden_transfer


def fed_otherwise(
    seconds: Interval, measured: MeasuredTime, predicted: PredictedTime | None, batch_size: int, data: str
) -> Interval | None:
    """What the step takes where its batches arrive as `data`. seconds: at this batch, fed as it was measured.

    None where it is not known what the copies take, or what of them shows. What the host issues and the device computes
    takes no less for being fed otherwise. Where pageable copies stand in for pinned ones, down to what it takes without
    any.
    """
    if data == measured.data:
        return seconds
    had, wanted = (_copy_seconds(measured, predicted, batch_size, way) for way in (measured.data, data))
    least = _issued_and_computed(measured, batch_size, seconds.median)
    told = None if predicted is None else _told_beside(predicted, batch_size)
    if had is None or wanted is None or (measured.data == "pinned" and told is None and not least):
        return None
    shown = hidden_transfer(had, max(least, told or 0.0), measured.data)
    beside = max(seconds.median - shown, least)
    there = shift(seconds, beside + hidden_transfer(wanted, beside, data) - seconds.median)
    if predicted is not None and predicted.model.feeding.bounds(data):
        return replace(there, low=shift(seconds, beside - seconds.median).low)
    return there


def _copy_seconds(measured: MeasuredTime, predicted: PredictedTime | None, batch_size: int, data: str) -> float | None:
    """One batch's copy: what it took where it ran, else the profile's, on the scale of what the nearest one took."""
    if data == "resident":
        return 0.0
    row = measured.rows[measured.nearest(batch_size)]
    took = None if row.overheads is None else row.overheads.transfer_seconds
    if took and (row.batch_size, measured.data) == (batch_size, data):
        return took
    if predicted is None:
        return None
    told, told_there = predicted.copy_at_most(batch_size, data), predicted.copy_seconds(row.batch_size, measured.data)
    return told if told is None or not took or not told_there else told * took / told_there


def _issued_and_computed(measured: MeasuredTime, batch_size: int, step: float) -> float:
    """Seconds of whichever takes longer, by what was measured at this batch; 0 where it was not. They overlap."""
    row = measured.rows.get(batch_size)
    if row is None or row.overheads is None:
        return 0.0
    return max(row.overheads.launch_seconds or 0.0, (row.overheads.device_busy or 0.0) * step)


def _told_beside(predicted: PredictedTime, batch_size: int) -> float:
    """Seconds of a step without its copy, as they are predicted."""
    parts = predicted.breakdown(batch_size, "resident")
    return (parts.launch or 0.0) + (parts.compute or 0.0)
