"""How far the calibrations of a kept run lie apart, and what each alone would have told of the run's truth.

python -m benchmarks.calibrations_apart FILE …

FILE: what benchmarks.estimates wrote, its calibrations beside it. A calibration among neighbours that no counter and no
reading of the cores' pace showed stands out by its whole steps: by plan, how many times as long the same networks' took
as in the calibration that was quickest there (the median over networks, of each step's median). This
measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.advisor.time_model.pooled import steps_of, times_as_long
from benchmarks.estimate_table import quantile
from benchmarks.retell import read_calibrations
from probes.profile import Profile


def apart(calibrations: Sequence[Profile]) -> dict[str, list[float]]:
    """By plan, how many times as long each calibration's steps took as the quickest ones."""
    steps = [steps_of(each) for each in calibrations]
    labels = {point.plan.key: point.plan.label for point in calibrations[0].networks}
    return {
        labels[key]: times_as_long([each.get(key, {}) for each in steps])
        for key in sorted(labels, key=lambda key: labels[key])
    }


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
    for label, ratios in apart(calibrations).items():
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
