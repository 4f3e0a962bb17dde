"""What came of running a plan here, as far as it tells of the batch asked for and of the memory that is free now."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.advisor.memory_model.raised import Took
from app.advisor.memory_model.rooms import Room
from app.advisor.time_model.single_steps import single_steps
from probes.measurement import Measurement
from probes.workload.description import Workload

# Every sentence about a step that was not reached in time advises more of it (probes.microtrain, contest and measure;
# a test holds them to it).
OUT_OF_TIME = "more time"
# What ran out of memory is tried again once this many times as much is free: less changes from minute to minute.
MORE_FREE = 1.1


class DeviceBytes(NamedTuple):
    """Of torch's allocator at its peak; None: not measured, as on a CPU."""

    allocated: int | None
    reserved: int | None


NOT_MEASURED = DeviceBytes(None, None)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of running this very plan: the largest batch that ran more than one step (the first finds no state of
    an optimizer beside it) and would now, as all smaller ones; the smallest that ran out of memory where no more was
    free than is now; why it did not run, if it did not, and why it was not reached, if the time ran out before. sizes:
    batches that ran and would now, whatever smaller ones took. over: by batch size, the bytes of those that ran but
    took more than is free now. held_bytes, device: measured at the batch asked for, fed as asked; device: what torch's
    allocator there handed out and kept. took: at any batch. smallest: the smallest batch that torch takes."""

    room: Room
    ran: int | None = None
    too_big: int | None = None
    sizes: frozenset[int] = frozenset()
    over: Mapping[int, int] = field(default_factory=dict)
    refused: str | None = None
    not_reached: str | None = None
    begun_seconds: float | None = None  # of the first step at the batch asked for, where no other ran
    held_bytes: int | None = None
    device: DeviceBytes = NOT_MEASURED
    took: tuple[Took, ...] = ()
    smallest: int = 1

    @property
    def outgrown(self) -> tuple[int, int] | None:
        """The smallest batch that took more than is free now, and its bytes."""
        return min(self.over.items(), default=None)

    def most_at(self, batch_size: int) -> int | None:
        """Bytes that a batch takes at most, as one that is as large ran and would now; None where none did."""
        if self.ran is None or batch_size > self.ran:
            return None
        return min(
            (each.bytes for each in self.took if not each.ran_out and each.batch_size >= batch_size), default=None
        )

    @property
    def peak_bytes(self) -> int | None:
        """With what a device takes beside; None where that is not known, or nothing was measured."""
        return None if self.held_bytes is None or self.room.beside is None else self.held_bytes + self.room.beside


def tried(rows: Sequence[Measurement], workload: Workload, room: Room) -> Tried:
    """rows: one plan's, the newest last (with_data_set). room: on its device now. A measurement may be old, and memory
    may be taken since.

    What failed, was refused by torch, or was not reached, was so at its own batch; where nothing ran at any, what torch
    refused at one is taken to be refused at all. What ran, failed, or took too much memory, tells of other ways to feed
    it where those take no more, or no less."""
    batch_size = workload.batch_size
    rows = _without_disproved(rows, room)
    done = [row for row in rows if row.outcome == "ok"]
    light = [row for row in rows if _takes_no_more(row, workload)]
    # Of each size the newest's that took all that is asked for, else the newest's.
    by_what_it_tells = sorted(light, key=lambda row: _went_on(row) and _takes_no_less(row, workload))
    held_by = [(row.batch_size, row.held_bytes) for row in by_what_it_tells if row.outcome == "ok"]
    peaks = {size: peak + (room.beside or 0) for size, peak in held_by if peak is not None}
    over = {size: peak for size, peak in peaks.items() if room.free is not None and peak > room.free}
    too_big = min((row.batch_size for row in light if _is_too_big(row, room)), default=None)
    sizes = frozenset(size for size in _sizes_that_run(rows, workload, room) if size not in over)
    ran = max((size for size in sizes if size < min(over, default=math.inf)), default=None)
    first = single_steps(done).get(batch_size)
    begun = None if first is None else first.seconds
    refused, not_reached = _why_not([row for row in rows if row.batch_size == batch_size], workload)
    if refused is None and not done:
        refused = _refused_elsewhere(rows)
    held, device = _measured_bytes(done, workload)
    took = _took(light, workload, room)
    return Tried(room, ran, too_big, sizes, over, refused, not_reached, begun, held, device, took)


def tried_on_like_cards(
    own: Sequence[Measurement], alike: Sequence[Measurement], workload: Workload, room: Room
) -> Tried:
    """With what the same plan showed on cards that are like its own: what it takes, and whether torch has it, is theirs
    as well. alike: without what failed there. What came of the batch asked for is told by its own rows; what torch
    refused of them at another one counts where none of the cards ran any."""
    mine = tried(own, workload, room)
    if not alike:
        return mine
    both = tried(_in_turn(alike, own), workload, room)
    own_here = [row for row in own if row.batch_size == workload.batch_size]
    refused = _why_not(own_here, workload)[0] or both.refused
    told = replace(mine, ran=both.ran, too_big=both.too_big, sizes=both.sizes, over=both.over)
    return replace(told, refused=refused, took=both.took)


def tried_varied(own: Sequence[Measurement], plain: Sequence[Measurement], workload: Workload, room: Room) -> Tried:
    """Of a variant, which ran at one batch, with what its plain plan showed at any. own, plain: the rows of each.

    What it took where it ran is told by its own rows; and it is taken to take as much more than estimated as either
    did. Where it took more than the plain plan there, what that one ran says nothing of it."""
    in_turn = _in_turn(plain, own)
    mine, without, both = (tried(rows, workload, room) for rows in (own, plain, in_turn))
    held, before, known = mine.held_bytes, without.held_bytes, mine.sizes | mine.over.keys()
    if held is not None:
        both = replace(both, held_bytes=held, device=mine.device)
    over = {size: peak for size, peak in both.over.items() if size not in known} | dict(mine.over)
    ours = frozenset(size for size in mine.sizes if both.too_big is None or size < both.too_big)
    both = replace(both, sizes=(both.sizes - known) | ours, over=over, took=(*without.took, *mine.took))
    takes_more = held is not None and before is not None and held > MORE_FREE * before
    return replace(both, ran=mine.ran, sizes=ours) if takes_more else both


def _in_turn(others: Sequence[Measurement], own: Sequence[Measurement]) -> list[Measurement]:
    return sorted((*others, *own), key=lambda row: row.measured_at or 0.0)


def with_data_set(rows: Sequence[Measurement], data_set: int) -> Sequence[Measurement]:
    """The same where all resident data lie on the plan's device, which take so many bytes: of what is measured one
    batch of them is counted. What was free then was free without them."""
    return [_with_data_set(row, data_set) for row in rows] if data_set else rows


def _with_data_set(row: Measurement, data_set: int) -> Measurement:
    memory = row.memory
    if memory is not None:
        named = ("process_bytes", "allocated_bytes", "reserved_bytes")
        peaks = {name: peak + data_set for name in named if (peak := getattr(memory, name)) is not None}
        memory = replace(memory, **peaks)
    return replace(row, memory=memory)


def _why_not(here: Sequence[Measurement], workload: Workload) -> tuple[str | None, str | None]:
    """Why a plan does not run at a batch where it never ran, and why it was not reached. here: its rows there. Fed from
    pinned memory it may fail for want of that, whatever ran fed otherwise."""
    ran = [row for row in here if row.outcome == "ok"]
    failed = [row for row in here if row.outcome == "failed" and _takes_no_more(row, workload)]
    late = _last_reason(failed)
    if late is not None and OUT_OF_TIME not in late.lower():
        late = None
    still = [row for row in failed if not any(_takes_no_less(other, row) for other in ran)] if late is None else []
    unsupported = None if ran else _last_reason([row for row in here if row.outcome == "unsupported"])
    return unsupported or _last_reason(still), late


def _refused_elsewhere(rows: Sequence[Measurement]) -> str | None:
    """What torch refused at another batch, of a plan that ran at none. Mostly it has no kernel for the plan, and will
    refuse each; but a kernel may refuse what is too large for it alone."""
    refused = [row for row in rows if row.outcome == "unsupported"]
    reason = _last_reason(refused)
    if reason is None:
        return None
    return f"{reason.rstrip('.')} (so it was at batch size {refused[-1].batch_size})."


def _measured_bytes(done: Sequence[Measurement], workload: Workload) -> tuple[int | None, DeviceBytes]:
    """By the last that tells of this batch fed in this way."""
    for row in reversed(done):
        held = row.held_bytes
        alike = row.batch_size == workload.batch_size and _is_fed_alike(row, workload)
        if alike and held is not None and row.memory is not None:
            return held, DeviceBytes(row.memory.allocated_bytes, row.memory.reserved_bytes)
    return None, NOT_MEASURED


def failed_at(rows: Sequence[Measurement], workload: Workload) -> frozenset[int]:
    """Batch sizes at which a plan never ran, and was refused or last failed, but for want of time or of memory. rows:
    the plan's. workload: how it is fed."""
    troubled = {row.batch_size for row in rows if row.outcome in ("failed", "unsupported")}
    here = {size: [row for row in rows if row.batch_size == size] for size in troubled}
    return frozenset(size for size in troubled if _why_not(here[size], workload)[0] is not None)


def _is_too_big(row: Measurement, room: Room) -> bool:
    """It ran out of memory, and no more is free now than was then."""
    if row.outcome != "out-of-memory":
        return False
    return room.left is None or row.available_bytes is None or room.left < MORE_FREE * row.available_bytes


def _without_disproved(rows: Sequence[Measurement], room: Room) -> Sequence[Measurement]:
    """Without what ran out of memory where as many samples or more, that took no less, ran later: a neighbour held
    memory then. rows: the newest last."""
    return [
        row
        for place, row in enumerate(rows)
        if row.outcome != "out-of-memory" or not any(_disproves(later, row, room) for later in rows[place + 1 :])
    ]


def _disproves(later: Measurement, ran_out: Measurement, room: Room) -> bool:
    """It would run now, or took no more than was free where the other ran out of memory."""
    if not (later.outcome == "ok" and _went_on(later) and later.batch_size >= ran_out.batch_size):
        return False
    held = later.held_bytes
    was_room = held is not None and held + (room.beside or 0) <= (ran_out.available_bytes or 0) + room.data_set
    return _takes_no_less(later, ran_out) and (was_room or _has_room(later, room))


def _sizes_that_run(rows: Sequence[Measurement], workload: Workload, room: Room) -> list[int]:
    """Of what took no less than fed as asked, and would run now: but for that after which as many samples or fewer ran
    out of memory. rows: the newest last."""
    found, too_big = [], math.inf
    for row in reversed(rows):
        if _takes_no_more(row, workload) and _is_too_big(row, room):
            too_big = min(too_big, row.batch_size)
        runs = row.outcome == "ok" and _takes_no_less(row, workload) and _went_on(row) and _has_room(row, room)
        if runs and row.batch_size < too_big:
            found.append(row.batch_size)
    return found


def _has_room(row: Measurement, room: Room) -> bool:
    """It took no more than is free now; where nobody knows what it took, it ran, for all that is known, in no more."""
    if room.free is None or room.left is None:
        return True
    if row.held_bytes is not None:
        return row.held_bytes + (room.beside or 0) <= room.free
    return row.available_bytes is None or row.available_bytes <= MORE_FREE * room.left


def _went_on(row: Measurement) -> bool:
    """Beyond its first step, which finds no state of an optimizer beside it."""
    return row.steps > 0 and not row.is_first_step


def _took(light: Sequence[Measurement], workload: Workload, room: Room) -> tuple[Took, ...]:
    """By the largest batch whose whole step is known, and by larger ones of which less is: a first step, one fed
    otherwise, one that ran out of memory, which may run where more is free, and took so much for all that is known.
    light: rows that take no more than fed as asked."""
    beside = room.beside or 0
    done = [(row, row.held_bytes) for row in light if row.outcome == "ok"]
    known = [(row, Took(row.batch_size, held + beside)) for row, held in done if held is not None]
    whole = max((took for row, took in known if _went_on(row) and _takes_no_less(row, workload)), default=Took(0, 0))
    short = [row for row in light if row.outcome == "out-of-memory" and room.beside is not None]
    at_least = [(row, round(MORE_FREE * (row.available_bytes or 0)) + room.data_set) for row in short]
    least = [Took(row.batch_size, taken, ran_out=True) for row, taken in at_least]
    least += [took for _, took in known]
    return (whole, *sorted(took for took in least if took.batch_size > whole.batch_size))


def _last_reason(rows: Sequence[Measurement]) -> str | None:
    return (rows[-1].reason or "It gave no reason.") if rows else None


def _is_fed_alike(row: Measurement, workload: Workload) -> bool:
    return _takes_no_more(row, workload) and _takes_no_less(row, workload)


def _takes_no_more(row: Measurement, workload: Workload) -> bool:
    """Than fed as asked. From pinned memory, of which a host has not much, a device is sent the next batch meanwhile; a
    CPU's batches are there whatever is asked."""
    return row.plan.is_cpu or row.data != "pinned" or workload.data == "pinned"


def _takes_no_less(row: Measurement, asked: Workload | Measurement) -> bool:
    """Than fed as asked, or as another was."""
    return row.plan.is_cpu or row.data == "pinned" or asked.data != "pinned"
