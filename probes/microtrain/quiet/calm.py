"""Which samples tell what a calm machine takes: pure arithmetic over readings of the cores' pace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from probes.microtrain.timing import central_mean

# A reading of calm cores varies by a few percent, and by up to 14 % where the clock moves with what the whole processor
# draws (Xeon, Granite Rapids); exponentials beside a neighbour take 1.3 to 1.5 times as long, those of two threads on a
# single core 1.8, and the whole fixed work of two on cores that share no cache 1.8 to 2.1 (EPYC, Zen 4).
CALM = 1.15
# Steps suffer less than the fixed work does: by this power of what it took longer, in the median of 24 plans of eight
# networks (0.05 to 0.86; docs/decisions/0013).
SUFFERED = 0.45
# Where the fixed work takes so many times as long, cores share no cache: beside a neighbour it does not. Short steps
# suffer by this power then, and long ones, whose data are in no cache anyhow, hardly at all: in the median of 19 plans
# and batches below 25 ms, and of eight above 60 ms (0.17 to 0.56 and -0.09 to 0.12).
APART, SHORT_APART, LONG_APART = 1.65, 0.33, 0.06
LONG_SECONDS = 0.04
# No neighbour slowed the fixed work by more, nor cores that share no cache (2.1); both at once may, a little. What does
# is a program of our own machine, or a `best` that is not this machine's: what steps suffered then is not known.
MOST_SLOWED = 2.5
DOUBTFUL = 1.05  # times as long as all samples, in the median


@dataclass
class Calm:
    """Shared by all that is measured on equally many threads. best: seconds of the quickest reading so far (pace)."""

    best: float | None = None

    def learn(self, readings: Sequence[float]) -> float | None:
        """The median of a sample's readings, which is what it is judged by; None where there are none."""
        if not readings:
            return None
        self.best = min(readings) if self.best is None else min(self.best, *readings)
        return median(readings)

    def is_calm(self, reading: float | None) -> bool:
        """So is what nobody can tell of."""
        return reading is None or self.best is None or reading <= CALM * self.best

    def count(self, readings: Sequence[float | None]) -> int:
        return sum(map(self.is_calm, readings))

    def met(self, samples: Sequence[float], readings: Sequence[float | None]) -> bool:
        """Some of them met calm cores, as far as the readings can be believed."""
        return bool(self._believed(samples, readings))

    def _believed(self, samples: Sequence[float], readings: Sequence[float | None]) -> list[int]:
        """The places of the calm ones. None where these took longer than others, which cannot be: something was in
        their way that the fixed work does not hear."""
        calm = [place for place, reading in enumerate(readings) if self.is_calm(reading)]
        doubted = bool(calm) and median(samples[place] for place in calm) > DOUBTFUL * median(samples)
        return [] if doubted else calm

    def weigh(self, samples: Sequence[float], readings: Sequence[float | None]) -> list[tuple[int, float]]:
        """Which samples count, by their places, and what to multiply each with: the calm ones as they are. Where none
        was calm, those that a neighbour may have slowed, reckoned back by what the fixed work took longer; without any
        of those all as they are. So it is, too, where the calm ones are not believed."""
        calm = self._believed(samples, readings)
        if calm or self.best is None:
            return [(place, 1.0) for place in calm]
        as_they_are = [(place, 1.0) for place in range(len(samples))]
        if self.count(readings):
            return as_they_are
        slowed = [(place, self._times(reading)) for place, reading in enumerate(readings) if reading]
        reckoned = [
            (place, times ** -_suffered(times, samples[place])) for place, times in slowed if times <= MOST_SLOWED
        ]
        return reckoned or as_they_are

    def least(self, samples: Sequence[float], readings: Sequence[float | None]) -> float:
        """Seconds that the luckiest of some samples may take on the calm machine, none of which is known to have met
        it: steps suffer less than the fixed work does, and at least as much as a neighbour may do is granted them."""
        return min(
            sample / max(MOST_SLOWED, self._times(reading)) for sample, reading in zip(samples, readings, strict=True)
        )

    def _times(self, reading: float | None) -> float:
        """As long as on calm cores, as far as anybody can tell."""
        return 1.0 if reading is None or self.best is None else reading / self.best

    def choose(self, samples: Sequence[float], readings: Sequence[float | None]) -> list[float]:
        """What the calm machine takes, one for each sample that counts, in their order."""
        return [samples[place] * factor for place, factor in self.weigh(samples, readings)]

    def by_process(
        self, samples: Sequence[float], readings: Sequence[float | None], processes: Sequence[int]
    ) -> list[float]:
        """The same of each process that has samples which count, one figure each, in their order. processes: of each
        sample, which it was."""
        found: defaultdict[int, list[float]] = defaultdict(list)
        for place, factor in self.weigh(samples, readings):
            found[processes[place]].append(samples[place] * factor)
        return [central_mean(each) for each in found.values()]

    def slowdown(self, samples: Sequence[float], readings: Sequence[float | None]) -> Slowdown | None:
        """None where no reading tells."""
        if all(reading is None for reading in readings):
            return None
        rest = [sample for sample, reading in zip(samples, readings, strict=True) if not self.is_calm(reading)]
        calm, share = [samples[place] for place in self._believed(samples, readings)], len(rest) / len(samples)
        return Slowdown(share, (max(1.0, median(rest) / median(calm)) if rest else 1.0) if calm else None)


def _suffered(times: float, seconds: float) -> float:
    """The power by which a sample of so many seconds a step took longer, while the fixed work took `times` as long."""
    if times < APART:
        return SUFFERED
    return SHORT_APART if seconds < LONG_SECONDS else LONG_APART


@dataclass(frozen=True, slots=True)
class Slowdown:
    """share: of the samples, that were taken while the cores were slow. factor: how many times as long as on the calm
    machine they took; None where none was calm, or those that seemed to be are not believed."""

    share: float
    factor: float | None
