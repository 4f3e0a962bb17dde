"""How far off operations of a calibration's networks are told by the other networks.

python -m benchmarks.prices_left_out FILE [FILE …]

FILE: exported calibrations of one machine, the earliest first; they are pooled as a service pools them. Each network is
left out in turn, and its operations' prices are read off the others'. By kind of operation: the mean error (logarithm)
of those that took a tenth of a millisecond or more, each counting as its share of its step. It is what chooses between
ways to price operations, as no model of a benchmark is in it (docs/decisions/0015). This measures nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.advisor.operation_prices.context_prices import HEAVY_KINDS, ContextPrices
from app.advisor.operation_prices.prices import prices_for
from app.advisor.operation_prices.surroundings import kernel_of, surroundings
from app.advisor.time_model.pooled import pool
from probes.context import Context
from probes.profile import Profile, parse_profile

LEAST_SECONDS = 1e-4


class Error(NamedTuple):
    """log_ratio: of seconds told over seconds taken. share: of its step."""

    kind: str
    log_ratio: float
    share: float


def errors_of(context: Context, prices: ContextPrices) -> Iterator[Error]:
    """Of a step's operations, as if its network had never been timed."""
    footprint, often = surroundings((cost.operation, cost.times) for cost in context.costs)
    for cost in context.costs:
        if cost.seconds >= LEAST_SECONDS:
            told = prices.seconds(cost.operation, footprint, often[kernel_of(cost.operation)], context.network)
            kind = cost.operation.kind if cost.operation.kind in HEAVY_KINDS else "light"
            yield Error(kind, math.log(told / cost.seconds), cost.seconds * cost.times / context.seconds)


def errors_in(profile: Profile) -> Iterator[Error]:
    """Of every plan on a CPU, in the mode that each step was timed in."""
    by_plan: dict[object, ContextPrices | None] = {}
    for context in profile.contexts:
        key = context.plan.key, context.mode
        if key not in by_plan:
            prices = prices_for(profile, context.plan, context.mode) if context.plan.is_cpu else None
            by_plan[key] = prices.context if prices is not None else None
        found = by_plan[key]
        if found is not None:
            yield from errors_of(context, found)


def describe(errors: Sequence[Error]) -> str:
    by_kind: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        by_kind[error.kind].append(error)
    lines = ["| operations | mean error | bias | how many |", "| --- | --- | --- | --- |"]
    for kind, found in sorted(by_kind.items()):
        weight = sum(each.share for each in found)
        mean = sum(abs(each.log_ratio) * each.share for each in found) / weight
        bias = sum(each.log_ratio * each.share for each in found) / weight
        lines.append(f"| {kind} | {mean:.3f} | {bias:+.3f} | {len(found)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    chosen = parser.parse_args(arguments)
    calibrations = [parse_profile(file.read_bytes()) for file in chosen.files]
    sys.stdout.write(f"{describe(list(errors_in(pool(tuple(reversed(calibrations))))))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
