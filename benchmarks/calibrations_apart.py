"""How far the calibrations of a kept run lie apart, and what each alone would have told of the run's truth.

python -m benchmarks.calibrations_apart FILE …

FILE: what benchmarks.estimates wrote, its calibrations beside it. A calibration among neighbours that no counter and no
reading of the cores' pace showed stands out by its whole steps: by plan, how many times as long the same networks' took
as in the calibration that was quickest there (the median over networks, of each step's lower decile). This measures
nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.estimate_table import quantile
from benchmarks.retell import read_calibrations
from probes.profile import NetworkPoint, Profile


def steps_of(profile: Profile) -> dict[Hashable, NetworkPoint]:
    return {(point.name, point.trace.mode, point.batch_size, point.plan.key): point for point in profile.networks}


def times_as_long(calibrations: Sequence[Profile]) -> dict[str, list[float]]:
    """By plan, of each calibration; of networks that all of them have."""
    steps = [steps_of(each) for each in calibrations]
    common = [key for key in steps[0] if all(key in each for each in steps)]
    ratios: dict[str, list[list[float]]] = {}
    for key in common:
        lows = [each[key].seconds.low for each in steps]
        ratios.setdefault(steps[0][key].plan.label, []).append([low / min(lows) for low in lows])
    return {label: [median(column) for column in zip(*rows, strict=True)] for label, rows in sorted(ratios.items())}


def errors_alone(rows: Sequence[dict[str, Any]], place: int) -> list[float]:
    """Of what the calibration in this place alone told, by the convention of the runs' tables."""
    found = []
    for row in rows:
        alone = row.get("instant of each calibration alone") or []
        told = alone[place]["options"] if place < len(alone) and alone[place] else {}
        for label, truth in row.get("truth", {}).items():
            if label in told:
                found.append(math.expm1(abs(math.log(told[label]["median"] / truth["median"]))))
    return found


def describe(document: dict[str, Any], calibrations: Sequence[Profile]) -> str:
    head = [f"calibration {place + 1}" for place in range(len(calibrations))]
    lines = [f"| | {' | '.join(head)} |", f"| --- |{' --- |' * len(head)}"]
    slow = [each.noise.get("slow_fraction") for each in calibrations]
    lines.append(f"| ran on slow cores | {' | '.join('?' if part is None else f'{part:.1%}' for part in slow)} |")
    for label, ratios in times_as_long(calibrations).items():
        lines.append(f"| steps, {label} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    errors = [errors_alone(document["rows"], place) for place in range(len(calibrations))]
    for name, share in (("median error alone", 0.5), ("90th percentile alone", 0.9)):
        figures = [quantile(found, share) for found in errors]
        lines.append(f"| {name} | {' | '.join('?' if each is None else f'{each:.1%}' for each in figures)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    chosen = parser.parse_args(arguments)
    for file in chosen.files:
        table = describe(json.loads(file.read_bytes()), read_calibrations(file))
        sys.stdout.write(f"{file.name}\n\n{table}\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
