"""The lines of a step's peak with what kernels take inside: only those that may be the peak are asked."""

from __future__ import annotations

from probes.microtrain.merging import affine, highest_lines, same_operations
from probes.microtrain.primed_stepper import Recording
from probes.microtrain.scratch import Call, scratch_at
from probes.trace import Affine

# Calls that are run for it at most; a step has one or two that matter. Beyond, what is read counts as copied.
MAX_TRIALS = 24

Pair = tuple[float, float]


def kernel_peaks(batch_sizes: tuple[int, int], one: Recording, other: Recording) -> tuple[Affine, ...]:
    """Bytes alive at a step's highest moments, what kernels take inside included. Empty: the steps differ."""
    if not same_operations(one.records, other.records):
        return ()
    alive: list[Pair] = list(zip(one.activation_bytes, other.activation_bytes, strict=True))
    calls = {i: (a, b) for i, (a, b) in enumerate(zip(one.calls, other.calls, strict=True)) if a and b}
    inside = {i: (float(a.bound), float(b.bound)) for i, (a, b) in calls.items()}
    known: dict[tuple[Call, Call], Pair] = {}
    while True:
        lines = _lines(batch_sizes, alive, inside)
        highest = highest_lines(lines)
        open_calls = {calls[i] for line in highest for i in lines.get(line, ()) if calls[i] not in known}
        if not open_calls:
            return highest
        for call in open_calls:
            known[call] = _scratch(batch_sizes, call, len(known))
        inside = {i: known.get(call, inside[i]) for i, call in calls.items()}


def _lines(batch_sizes: tuple[int, int], alive: list[Pair], inside: dict[int, Pair]) -> dict[Affine, list[int]]:
    """Every moment's line, with the calls that run then."""
    lines: dict[Affine, list[int]] = {affine(batch_sizes, pair): [] for pair in alive}
    for i, (small, large) in inside.items():
        lines.setdefault(affine(batch_sizes, (alive[i][0] + small, alive[i][1] + large)), []).append(i)
    return lines


def _scratch(batch_sizes: tuple[int, int], call: tuple[Call, Call], trials: int) -> Pair:
    if trials >= MAX_TRIALS:
        return float(call[0].read_bytes), float(call[1].read_bytes)
    return scratch_at(batch_sizes, *call)
