"""What a page that a step finds fresh costs it, read off a kept run of benchmarks.estimates.

python -m benchmarks.fault_prices FILE        a line a plan: beside what the run's calibrations clocked outside steps

Processes of one plan and batch size find other numbers of pages fresh, as their heaps differ (docs/decisions/0014).
What one takes longer than another, over how many pages more it found, is what a page costs inside a step: with all that
comes with it, as caches that are left with zeroed pages. FILE: of a run that counted faults (since 2026-11-30), its
calibrations beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.advisor.operation_prices.prices import fault_price
from benchmarks.retell import read_calibrations
from probes.profile import Profile

# Of a step, by the price below: where two processes differ by less, their times differ by other things.
LEAST_SHARE, USUAL_SECONDS = 0.05, 1.2e-6


def costs_of_faults(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By plan, seconds that one more fault a step took, of each pair of processes that tells it."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        for label, truth in (row.get("truth") or {}).items():
            found[label] += _of_pairs(truth["processes"], truth.get("faults") or (), truth["median"])
    return {label: costs for label, costs in sorted(found.items()) if costs}


def _of_pairs(seconds: Sequence[float], faults: Sequence[float | None], usual: float) -> Iterator[float]:
    counted = [(each, count) for each, count in zip(seconds, faults, strict=False) if count is not None]
    for (one, fewer), (other, more) in itertools.combinations(counted, 2):
        if abs(more - fewer) * USUAL_SECONDS >= LEAST_SHARE * usual:
            yield (other - one) / (more - fewer)


def clocked(calibrations: Sequence[Profile]) -> dict[str, float]:
    """By plan, seconds of a fault by itself: the middle one of the calibrations'."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for profile in calibrations:
        for plan in {point.plan.key: point.plan for point in profile.points}.values():
            price = fault_price(profile, plan)
            if price is not None:
                found[plan.label].append(price.seconds)
    return {label: statistics.median(seconds) for label, seconds in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a plan. Returns the exit code: 1 where no process tells it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fault_prices", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args(arguments)
    costs = costs_of_faults(json.loads(chosen.file.read_text(encoding="utf-8"))["rows"])
    alone = clocked(read_calibrations(chosen.file)) if costs else {}
    for label, each in costs.items():
        low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        clock = f"{alone[label] * 1e6:.2f}" if label in alone else "not"
        sys.stdout.write(
            f"{label}: {middle * 1e6:.2f} us a page in steps ({low * 1e6:.2f} to {high * 1e6:.2f}, the middle half of "
            f"{len(each)} pairs of processes); clocked alone {clock}\n"
        )
    if not costs:
        sys.stderr.write(f"{chosen.file}: no two processes of a plan differ enough by the pages that they counted.\n")
    return 0 if costs else 1


if __name__ == "__main__":
    raise SystemExit(main())
