"""What one epoch of the experiment is made of on a device, each part measured by itself."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from probes.measurement import Overheads, Timing
from probes.microtrain.iris_experiment.iris import Row
from probes.microtrain.iris_experiment.iris_network import make_learner, tensors_of
from probes.microtrain.iris_experiment.variants import synchronize
from probes.microtrain.measuring.overheads import measure_busy_seconds
from probes.microtrain.step import Step

BLOCK_STEPS = 50  # steps a sample: some milliseconds, long enough for the clock
WARM_UP_STEPS = 100
READINGS = 20  # readings a sample


@dataclass(frozen=True, slots=True)
class EpochCosts:
    """step: one epoch without a reading. reading: `.item()` right after a step. ready_reading: on an idle device."""

    overheads: Overheads
    step: Timing
    reading: Timing
    ready_reading: Timing


class CostMeter:
    """Measures with networks of its own, a sample of each part a turn, so that it sees the machine that the runs see.

    startup_seconds: until the very first step on this device was done (context, network and data put there, libraries,
    first allocations); in nothing else here.
    """

    def __init__(self, device: torch.device, rows: Sequence[Row]) -> None:
        make_learner(torch.device("cpu"), rows[:1])  # torch imports its compiler with the first optimizer, once
        begun = time.perf_counter()
        self._device = device
        self._rows = tensors_of(rows)
        self._learner = make_learner(device, rows)
        self._learner()
        synchronize(device)
        self.startup_seconds = time.perf_counter() - begun
        self._one_row = make_learner(device, rows[:1])
        self._samples: dict[str, list[float]] = defaultdict(list)
        for _ in range(WARM_UP_STEPS):
            self._learner()
            self._one_row()
        synchronize(device)

    def take_samples(self) -> None:
        """One sample of each part, about 20 ms."""
        if self._device.type == "cuda":
            self._sample_issuing()
            self._samples["transfer"].append(_seconds(self._copy_rows))
        else:
            self._sample("step", self._learner)
            self._sample("launch", self._one_row)  # next to nothing to compute: what is left is issuing
        self._samples["reading"].append(_mean(_seconds(self._learner().item) for _ in range(READINGS)))
        loss = self._learner()
        synchronize(self._device)
        self._samples["ready"].append(_mean(_seconds(loss.item) for _ in range(READINGS)))

    def costs(self) -> EpochCosts:
        """What the samples say; call it when the last was taken. Raises ValueError before the first."""
        timings = {name: Timing.from_samples(samples) for name, samples in self._samples.items()}
        step, launch = timings["step"].median, timings["launch"].median
        return EpochCosts(
            overheads=Overheads(
                transfer_seconds=timings["transfer"].median if "transfer" in timings else None,
                launch_seconds=min(launch, step),
                synchronize_seconds=timings["reading"].median,
                compute_seconds=max(0.0, step - launch),
                device_busy=self._busy_share(step, launch),
            ),
            step=timings["step"],
            reading=timings["reading"],
            ready_reading=timings["ready"],
        )

    def _busy_share(self, step: float, launch: float) -> float | None:
        """On a GPU from its kernels' times; a profiler slows steps so small, so it comes last and once."""
        if self._device.type != "cuda":
            return max(0.0, 1.0 - launch / step)
        busy = measure_busy_seconds(self._learner, self._learner.feed.next())
        return None if busy is None else min(1.0, busy / step)

    def _sample(self, part: str, learner: Step) -> None:
        begun = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            learner()
        self._samples[part].append((time.perf_counter() - begun) / BLOCK_STEPS)

    def _sample_issuing(self) -> None:
        """The host's own time for a step (how soon it could issue the next), and the step's with the device's end."""
        begun = time.perf_counter()
        self._sample("launch", self._learner)
        synchronize(self._device)
        self._samples["step"].append((time.perf_counter() - begun) / BLOCK_STEPS)

    def _copy_rows(self) -> None:
        """Putting the whole data set on the device, as is done once before the first epoch."""
        for tensor in self._rows:
            tensor.to(self._device)
        synchronize(self._device)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
