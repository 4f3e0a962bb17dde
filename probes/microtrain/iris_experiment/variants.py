"""Runs of the experiment: one network a run, with its own model, clock and way of reading the loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from probes.measurement import Timing
from probes.microtrain.step import Step

ROUNDS = 40  # turns that each variant takes at least, so that there are samples for a spread
SLICE_EPOCHS = 500  # epochs in a turn at most, about a tenth of a second: drift is slower
LEAST_SLICES = 5  # that tell what a reading adds; the spread of one or two is none


class Slice(NamedTuple):
    """One turn of a variant."""

    epochs: int
    readings: int
    seconds: float


@dataclass
class Variant:
    """One way of reading the loss, with its own model and its own clock. learner: reads its loss every log_every."""

    log_every: int | None
    learner: Step
    epochs: int = 0
    slices: list[Slice] = field(default_factory=list)
    losses_read: list[float | None] = field(default_factory=list)
    slice_ends: list[tuple[int, float]] = field(default_factory=list)  # epoch and loss, read off the clock

    def run_slice(self, epochs: int, device: torch.device) -> None:
        """Train on, timed up to the moment when the device has done everything."""
        every, learner, losses = self.log_every, self.learner, self.losses_read
        before = len(losses)
        begun = time.perf_counter()
        for epoch in range(self.epochs + 1, self.epochs + epochs + 1):
            loss = learner()
            if every is not None and epoch % every == 0:
                losses.append(learner.last_loss)
        synchronize(device)
        seconds = time.perf_counter() - begun
        self.epochs += epochs
        self.slices.append(Slice(epochs, len(losses) - before, seconds))
        self.slice_ends.append((self.epochs, loss.item()))

    def loss_curve(self) -> list[tuple[int, float | None]]:
        """Epoch and loss: as it was read; at the slices' ends where it was not."""
        if self.log_every is None or not self.losses_read:
            return list(self.slice_ends)
        return [((index + 1) * self.log_every, loss) for index, loss in enumerate(self.losses_read)]

    @property
    def final_loss(self) -> float:
        return self.slice_ends[-1][1]

    @property
    def readings(self) -> int:
        return sum(part.readings for part in self.slices)

    @property
    def total_seconds(self) -> float:
        return sum(part.seconds for part in self.slices)

    def epoch_timing(self) -> Timing:
        """Seconds an epoch, one sample a slice."""
        return Timing.from_samples([part.seconds / part.epochs for part in self.slices])


def extra_per_reading(variant: Variant, other: Variant) -> Timing | None:
    """What a reading adds: `variant` against `other`, which reads less, slice by slice of the same round.

    None where fewer than LEAST_SLICES hold more readings than the other's: they would agree by chance.
    """
    samples = [
        (mine.seconds - theirs.seconds) / (mine.readings - theirs.readings)
        for mine, theirs in zip(variant.slices, other.slices, strict=True)
        if mine.readings > theirs.readings
    ]
    return Timing.from_samples(samples) if len(samples) >= LEAST_SLICES else None


def take_turns(
    variants: Sequence[Variant], epochs: int, device: torch.device, on_turn: Callable[[float], None]
) -> None:
    """Train every variant for `epochs`: each runs a slice, then the next; who begins changes from round to round.

    on_turn is told the fraction done.
    """
    rounds = max(min(ROUNDS, epochs), -(-epochs // SLICE_EPOCHS))
    for turn in range(rounds):
        length = epochs * (turn + 1) // rounds - epochs * turn // rounds
        first = turn % len(variants)
        for variant in (*variants[first:], *variants[:first]):
            variant.run_slice(length, device)
        on_turn((turn + 1) / rounds)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given; a CPU has always done so."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
