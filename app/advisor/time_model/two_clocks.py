"""A device's step at a batch that did not run, from those that did: the host's clock and the device's, each put right
by itself (docs/decisions/0016-a-device-has-two-clocks.md)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.advisor.time_model.intervals import BETWEEN_PROCESSES_OF_DEVICES
from app.advisor.time_model.measured import BEYOND, MeasuredTime, carried_share
from app.advisor.time_model.predicted import PredictedTime
from probes.measurement import Measurement

# Issuing a step takes the same at any batch: where it would have to take more than at another one by more than
# processes differ, the device was the limit there.
SAME_HOST = BETWEEN_PROCESSES_OF_DEVICES


# What carrying adds to the spread, by octaves from the nearest batch that ran and at most: four in five of batches left
# out between two others were told within 0.06 (a factor of 4 from either) and 0.13 and 0.14 (of 8 to 64; H100, H200);
# from one batch, where the host is the limit at both, within 0.07 and 0.14 (a factor of 4) and 0.20 and 0.145 at any
# (python -m benchmarks.device_between). A clock that was the limit at none is known as well as it was predicted.
BETWEEN_AN_OCTAVE, MOST_BETWEEN = 0.03, 0.14
BEYOND_AN_OCTAVE, MOST_BEYOND = BEYOND, 0.17


class Off(NamedTuple):
    """Logarithms of what the host, the device, and what shows beside both took over what they are told to take."""

    host: float
    device: float
    beside: float


class _Ran(NamedTuple):
    """A batch that ran. most: what each is off by as if it were the limit: neither is more. clocked: of host and device
    by their own clocks; None: nobody looked. waits: whether the device waits for the host, by these, or as told."""

    batch_size: int
    most: Off
    clocked: Off | None
    waits: bool


@dataclass(frozen=True, slots=True)
class TwoClocks:
    """What one plan's clocks are off by, at the batches that ran. data: how these were fed. waits: whether the device
    waited for the host there."""

    predicted: PredictedTime
    data: str
    batch_sizes: tuple[int, ...]
    off: tuple[Off, ...]
    waits: tuple[bool, ...]

    def seconds(self, batch_size: int) -> float | None:
        """What was measured, where this ran. None where the profile has no copies of that kind."""
        told = self.predicted.clocks(batch_size, self.data)
        if told is None:
            return None
        host, device, beside = map(math.exp, self.at(batch_size))
        return max(host * told.host, device * told.device) + beside * told.beside

    def issuing(self, batch_size: int) -> float:
        """How many times as long as told the host takes, against what the device computes."""
        off = self.at(batch_size)
        return math.exp(off.host if self._is_copied_for_longer(batch_size) else off.host - off.device)

    def _is_copied_for_longer(self, batch_size: int) -> bool:
        """Than it computes, from pinned memory: what the device's clock is off by is the copy then, not kernels."""
        told, computing = (self.predicted.clocks(batch_size, data) for data in (self.data, "resident"))
        return told is not None and computing is not None and told.device > computing.device

    def spread(self, batch_size: int) -> float:
        """What carrying to this batch adds."""
        around = self._around(batch_size)
        told = self.predicted.clocks(batch_size, self.data)
        if told is None:
            return self.predicted.model.fit.spread
        known = self.predicted.spread(batch_size, self.data)
        off = self.at(batch_size)
        waits = math.exp(off.host) * told.host > math.exp(off.device) * told.device
        if waits not in {self.waits[place] for place in around}:
            return known
        octaves = min(abs(math.log2(batch_size / self.batch_sizes[place])) for place in around)
        if len(set(around)) > 1:
            return min(BETWEEN_AN_OCTAVE * octaves, MOST_BETWEEN)
        return min(BEYOND_AN_OCTAVE * octaves, MOST_BEYOND if waits else known)

    def at(self, batch_size: int) -> Off:
        """Between batches that ran on a line of logarithms; beyond them the host's whole, as issuing does not hang on
        the batch, and of the others' the less the further away."""
        left, right = self._around(batch_size)
        before, after, size = self.off[left], self.off[right], self.batch_sizes[left]
        if left == right:
            share = carried_share(batch_size, size)
            return Off(before.host, before.device * share, before.beside * share)
        share = math.log(batch_size / size) / math.log(self.batch_sizes[right] / size)
        return Off(*(one + share * (other - one) for one, other in zip(before, after, strict=True)))

    def _around(self, batch_size: int) -> tuple[int, int]:
        """The places of the batches that ran on either side; the same twice beyond them."""
        right = bisect_left(self.batch_sizes, batch_size)
        return max(right - 1, 0), min(right, len(self.batch_sizes) - 1)


def two_clocks(predicted: PredictedTime, measured: MeasuredTime) -> TwoClocks | None:
    """None where nothing is told of a batch that ran."""
    ran = [_ran(predicted, measured, size) for size in measured.batch_sizes]
    known = [each for each in ran if each is not None]
    if not known or len(known) < len(ran):
        return None
    waits = _waits(known)
    return TwoClocks(predicted, measured.data, measured.batch_sizes, tuple(_off(known, waits)), waits)


def _ran(predicted: PredictedTime, measured: MeasuredTime, batch_size: int) -> _Ran | None:
    told = predicted.clocks(batch_size, measured.data) or predicted.clocks(batch_size, "resident")
    took = measured.measured(batch_size)
    if told is None or took is None or max(told.host, told.device) <= 0:
        return None
    # Where a step took less than told its copy did, too: else there might be nothing left of it to compute in.
    beside = min(took.median / told.step, 1.0)
    seconds = took.median - beside * told.beside
    most = Off(_log_ratio(seconds, told.host), _log_ratio(seconds, told.device), math.log(beside))
    parts = _clocked(measured.rows[batch_size])
    if parts is None:
        return _Ran(batch_size, most, None, told.host > told.device)
    host, device = parts
    clocked = Off(_log_ratio(host, told.host), _log_ratio(device, told.device), most.beside)
    return _Ran(batch_size, most, clocked, (host > device or told.device <= 0) and told.host > 0)


def _clocked(row: Measurement) -> tuple[float, float] | None:
    """Seconds that the host issued the step for, and that the device computed for, or was copied to meanwhile; None
    where nobody looked."""
    overheads, step = row.overheads, row.step
    if overheads is None or step is None or not overheads.launch_seconds:
        return None
    if overheads.device_busy:
        # Of kernels alone, while a copy from pinned memory may be the device's limit (PredictedTime.clocks).
        ahead = (overheads.transfer_seconds or 0.0) if row.data == "pinned" else 0.0
        return overheads.launch_seconds, max(overheads.device_busy * step.median, ahead)
    computes_on = overheads.launch_seconds < (overheads.compute_seconds or 0.0)  # as measured_breakdown has it
    return (overheads.launch_seconds, step.median) if computes_on else None


def _log_ratio(seconds: float, told: float) -> float:
    """Infinite where nothing is told: it may have taken anything."""
    return math.log(seconds / told) if told > 0 else math.inf


def _waits(ran: Sequence[_Ran]) -> tuple[bool, ...]:
    """Where the device waited for the host: by their clocks, or as told, but where issuing would have to have taken
    longer than at another batch."""
    least = min((each.most.host for each in ran if each.waits), default=math.inf)

    def is_alike(each: _Ran) -> bool:
        return each.most.host <= least + SAME_HOST or math.isinf(each.most.device)

    return tuple(each.waits and (each.clocked is not None or is_alike(each)) for each in ran)


def _off(ran: Sequence[_Ran], waits: Sequence[bool]) -> list[Off]:
    """Of the one that is the limit what it took; of the other what its own clock, or the nearest batch of which it is
    the limit, tells, and no more than it can have been."""
    hosts = {each.batch_size: each.most.host for each, waited in zip(ran, waits, strict=True) if waited}
    devices = {each.batch_size: each.most.device for each, waited in zip(ran, waits, strict=True) if not waited}
    found = []
    for size, most, clocked, _ in ran:
        if size in hosts:
            told, share = _nearest(devices, size)
            device = told * share if clocked is None else clocked.device
            found.append(most._replace(device=_at_most(device, most.device)))
        else:
            host = _nearest(hosts, size)[0] if clocked is None else clocked.host
            found.append(most._replace(host=_at_most(host, most.host)))
    return found


def _at_most(log_ratio: float, most: float) -> float:
    return 0.0 if math.isinf(most) else min(log_ratio, most)


def _nearest(known: Mapping[int, float], batch_size: int) -> tuple[float, float]:
    """With the share of it that is left at this batch; 0 where nothing is known."""
    if not known:
        return 0.0, 0.0
    nearest = min(known, key=lambda size: abs(math.log(size / batch_size)))
    return known[nearest], carried_share(batch_size, nearest)
