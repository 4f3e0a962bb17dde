"""Runs of the experiment: one network a run, with its own model, clock and way of reading the loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from probes.measurement import Timing
from probes.microtrain.iris import Row

HIDDEN = 10
LEARNING_RATE = 0.01
MODEL_SEED = 0  # every variant begins with the same weights, so that their losses agree
ROUNDS = 40  # turns each variant takes: 500 of 20,000 epochs, about a tenth of a second


class Learner:
    """The 4-10-3 network with its optimizer and its resident data; calling it is one epoch."""

    def __init__(self, device: torch.device, rows: Sequence[Row]) -> None:
        torch.manual_seed(MODEL_SEED)
        self.module = nn.Sequential(nn.Linear(4, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3)).to(device)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE)
        self.features, self.labels = tensors_of(rows, device)

    def __call__(self) -> torch.Tensor:
        """One step on the full batch; the loss stays on the device."""
        loss = nn.functional.cross_entropy(self.module(self.features), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def count_correct(self, rows: Sequence[Row]) -> int:
        """How many rows the network names rightly."""
        features, labels = tensors_of(rows, self.features.device)
        with torch.inference_mode():
            return int((self.module(features).argmax(dim=1) == labels).sum().item())


def tensors_of(rows: Sequence[Row], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (rows, 4) in fp32 and labels (rows,) in int64."""
    features = torch.tensor([row[0] for row in rows], dtype=torch.float32)
    return features.to(device), torch.tensor([row[1] for row in rows]).to(device)


class Slice(NamedTuple):
    """One turn of a variant."""

    epochs: int
    readings: int
    seconds: float


@dataclass
class Variant:
    """One way of reading the loss, with its own model and its own clock."""

    log_every: int | None
    learner: Learner
    epochs: int = 0
    slices: list[Slice] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)
    final_loss: float | None = None

    def run_slice(self, epochs: int, device: torch.device) -> None:
        """Train on, timed up to the moment when the device has done everything."""
        every, learner, losses = self.log_every, self.learner, self.losses
        before = len(losses)
        loss = torch.tensor(0.0)
        begun = time.perf_counter()
        for epoch in range(self.epochs + 1, self.epochs + epochs + 1):
            loss = learner()
            if every is not None and epoch % every == 0:
                losses.append((epoch, loss.item()))
        synchronize(device)
        seconds = time.perf_counter() - begun
        self.epochs += epochs
        self.slices.append(Slice(epochs, len(losses) - before, seconds))
        self.final_loss = loss.item()  # off the clock, as is the curve of a run that never reads
        if every is None:
            losses.append((self.epochs, self.final_loss))

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

    None where no slice holds more readings than the other's: there is nothing to compare.
    """
    samples = [
        (mine.seconds - theirs.seconds) / (mine.readings - theirs.readings)
        for mine, theirs in zip(variant.slices, other.slices, strict=True)
        if mine.readings > theirs.readings
    ]
    return Timing.from_samples(samples) if samples else None


def take_turns(
    variants: Sequence[Variant], epochs: int, device: torch.device, on_turn: Callable[[float], None]
) -> None:
    """Train every variant for `epochs`: each runs a slice, then the next; who begins changes from round to round.

    on_turn is told the fraction done.
    """
    rounds = min(ROUNDS, epochs)
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
