"""Times whole steps of a micro-network under one plan."""

from __future__ import annotations

import time
from statistics import fmean

from probes.measurement import Timing
from probes.microtrain.calibration.turns import LEAD_IN_SECONDS, read_after, read_before, repeat
from probes.microtrain.measuring.workbench import StepRun
from probes.microtrain.processes.footprint import count_page_faults
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.timing import significant

TIMED_SECONDS = 0.006
WARM_UP_STEPS = 2  # make what lives from step to step
# The first 20 ms of steps of a process take 1.2 to 2 times as long as those after them (mlp-tiny: 492 and 822 us, then
# 254), and most plans and batch sizes have one turn.
SETTLING_SECONDS = 0.03


class StepTimer:
    """Times whole steps under one plan, and counts their page faults. What fails once is left out.

    calm: of as many threads; None: nobody reads how quick the cores are."""

    def __init__(self, run: StepRun, calm: Calm | None = None) -> None:
        self.run = run
        self._calm = calm
        self._samples: list[float] = []  # seconds a step, one a turn
        self._readings: list[float | None] = []  # of the pace, one a turn
        self._faults: list[float] = []
        self._failed = False
        self.step_seconds: float | None = None  # about, as last seen

    def settle(self) -> None:
        """Steps that nobody times, for a process that has run none."""
        try:
            with self.run.setting():
                repeat(lambda: self.run(1), SETTLING_SECONDS)
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def take(self) -> None:
        """Some steps, after others that warm up what the plan that ran last left cold."""
        if self._failed:
            return
        try:
            with self.run.setting():
                self.run.prepared()
                if not self._samples:  # not of the lead-in: kernels are made (in bf16 in up to 12 ms) and memory taken
                    repeat(lambda: self.run(1), 0.0, WARM_UP_STEPS)
                begun = time.perf_counter()
                warm = repeat(lambda: self.run(1), LEAD_IN_SECONDS)
                each = (time.perf_counter() - begun) / warm
                steps = max(round(TIMED_SECONDS / each), 1)
                before = read_before(self._calm, each)
                faults, begun = count_page_faults(), time.perf_counter()
                self.run(steps)
                self._samples.append((time.perf_counter() - begun) / steps)
                self._faults.append((count_page_faults() - faults) / steps)
                self._readings.append(read_after(self._calm, before))
                self.step_seconds = self._samples[-1]  # of no step that made what the first of a process make
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def timing(self) -> Timing | None:
        """What it takes on a calm machine."""
        samples = (self._calm or Calm()).choose(self._samples, self._readings)
        return Timing.from_samples([significant(sample, 4) for sample in samples]) if samples else None

    @property
    def was_calm(self) -> bool:
        """In one turn at least."""
        return (self._calm or Calm()).count(self._readings) > 0

    @property
    def faults(self) -> float:
        """A step's, on average."""
        return significant(fmean(self._faults), 4)
