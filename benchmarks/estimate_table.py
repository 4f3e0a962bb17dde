"""Rows of benchmarks.estimates -> figures beside their targets: errors of step times, and what decisions cost.

python -m benchmarks.estimate_table FILE        the table of a result that is there already
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rules_of_thumb import RULES

Document = dict[str, Any]
ADVISERS = ("instant", "quick")
NEAR_BEST = 0.05
# figure -> target by adviser (issue: "How good"); a range is met inside it, a share from it on, an error up to it.
TARGETS: dict[str, dict[str, Any]] = {
    "median error": {"instant": 0.08, "quick": 0.04},
    "90th percentile error": {"instant": 0.20, "quick": 0.12},
    "interval holds": {"instant": (0.75, 0.90), "quick": (0.75, 0.90)},
    "mean regret": {"instant": 0.03, "quick": 0.015},
    "within 5 % of the best": {"instant": 0.90, "quick": 0.95},
}


class Error(NamedTuple):
    """One plan at one batch size. log_ratio: of what was told over the truth. held: the range holds the median of
    truth's processes; processes_held: and of each process by itself, as nobody has a median of four."""

    row: Document
    label: str
    log_ratio: float
    held: bool | None
    processes_held: tuple[bool, ...] = ()

    @property
    def relative(self) -> float:
        """As people say it: 0.1 is told 10 % too long or too short."""
        return math.expm1(abs(self.log_ratio))


class Answer(NamedTuple):
    """named: None where the adviser named no plan."""

    row: Document
    named: str | None


def errors_of(rows: Iterable[Document], adviser: str) -> Iterator[Error]:
    for row in rows:
        for label, truth in (row.get("truth") or {}).items():
            told = ((row.get(adviser) or {}).get("options") or {}).get(label)
            if told is not None:
                each = tuple(_holds(told, seconds) for seconds in truth.get("processes") or ())
                log_ratio = math.log(told["median"] / truth["median"])
                yield Error(row, label, log_ratio, _holds(told, truth["median"]), each)


def _holds(told: Document, seconds: float) -> bool:
    return bool(told["low"] <= seconds <= told["high"])


def count_untold(rows: Iterable[Document], adviser: str) -> int:
    """Plans that ran, of the sizes that it was asked of, and that it told no time of."""
    asked = [row for row in rows if row.get(adviser)]
    return sum(label not in (row[adviser].get("options") or {}) for row in asked for label in row.get("truth") or {})


def baseline_errors(rows: Iterable[Document], baseline: str) -> Iterator[Error]:
    for row in rows:
        for label, truth in (row.get("truth") or {}).items():
            seconds = (row.get("baselines") or {}).get(label, {}).get(baseline)
            if seconds:
                yield Error(row, label, math.log(seconds / truth["median"]), None)


def calm_seconds(truth: Document) -> float:
    """Of a plan's step while the cores were as quick as they get."""
    return float(truth["median"])


def mean_seconds(truth: Document) -> float:
    """Of a plan's step over all blocks, those on slow cores among them; the median of its processes."""
    rows = zip(truth.get("processes") or (), truth.get("slow_share") or (), truth.get("slowdown") or (), strict=False)
    means = [median * (1 + (share or 0.0) * ((slowdown or 1.0) - 1)) for median, share, slowdown in rows]
    return statistics.median(means) if means else calm_seconds(truth)


def answers_of(rows: Iterable[Document], adviser: str) -> list[Answer]:
    """Of the rows that it was asked of."""
    return [Answer(row, row[adviser].get("recommended")) for row in rows if row.get(adviser)]


def defaults_of(rows: Iterable[Document]) -> list[Answer]:
    """What torch does if nobody asks."""
    return [Answer(row, row["default"]) for row in rows if row.get("default")]


def regrets_of(answers: Iterable[Answer], seconds: Callable[[Document], float] = calm_seconds) -> list[float | None]:
    """How much longer the named plan takes than the best one, for each size of which any ran; None where no plan was
    named, or one that did not run: such an answer is not near the best, whatever it would have cost."""
    found: list[float | None] = []
    for row, named in answers:
        times = {label: seconds(truth) for label, truth in (row.get("truth") or {}).items()}
        if times:
            found.append(times[named] / min(times.values()) - 1 if named in times else None)
    return found


def slow_blocks(rows: Iterable[Document]) -> Document:
    """Of truth: how many blocks met slow cores, on one thread and on more, and how many times as long those took (the
    median of processes that were calm often enough to tell). Empty where nobody read the cores' pace."""
    shares: dict[str, list[float]] = defaultdict(list)
    factors: list[float] = []
    for row in rows:
        for label, truth in (row.get("truth") or {}).items():
            known = [share for share in truth.get("slow_share") or () if share is not None]
            shares["one thread" if ", 1 thread" in label else "more threads"] += known
            factors += [factor for factor in truth.get("slowdown") or () if factor is not None and factor != 1]
    if not any(shares.values()):
        return {}
    means = {threads: statistics.fmean(found) for threads, found in shares.items() if found}
    return {"share": means, "slowdown": statistics.median(factors) if factors else None}


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that this share does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1] if ordered else None


def figures_of(errors: Sequence[Error], regrets: Sequence[float | None]) -> Document:
    """Shares are of all answers; a regret is only known where the named plan ran."""
    relative = [error.relative for error in errors]
    held = [error.held for error in errors if error.held is not None]
    each = [inside for error in errors for inside in error.processes_held]
    known = [regret for regret in regrets if regret is not None]
    return {
        "median error": statistics.median(relative) if relative else None,
        "90th percentile error": quantile(relative, 0.9),
        "worst error": max(relative, default=None),
        "bias": statistics.median(error.log_ratio for error in errors) if errors else None,
        "interval holds": sum(held) / len(held) if held else None,
        "interval holds a process": sum(each) / len(each) if each else None,
        "mean regret": statistics.fmean(known) if known else None,
        "worst regret": max(known, default=None),
        "within 5 % of the best": sum(regret <= NEAR_BEST for regret in known) / len(regrets) if regrets else None,
        "estimates": len(relative),
        "decisions": len(regrets),
        "unnamed": len(regrets) - len(known),
    }


def make_table(rows: Sequence[Document]) -> Document:
    """Figures of each adviser and rule of thumb; errors of `instant` by family, plan and what a step is made of, and
    from one calibration alone."""
    table: Document = {"advisers": {}, "baselines": {}, "failed": [row for row in rows if "error" in row]}
    for adviser in ADVISERS:
        regrets = regrets_of(answers_of(rows, adviser))
        table["advisers"][adviser] = figures_of(list(errors_of(rows, adviser)), regrets)
        table["advisers"][adviser]["untold"] = count_untold(rows, adviser)
    for baseline in RULES:
        table["baselines"][baseline] = figures_of(list(baseline_errors(rows, baseline)), [])
    table["baselines"]["torch default"] = figures_of([], regrets_of(defaults_of(rows)))
    # `quick` is asked at the largest sizes alone, where torch's default costs another share than at all of them.
    asked = [answer for answer in defaults_of(rows) if answer.row.get("quick")]
    table["baselines"]["torch default, where quick was asked"] = figures_of([], regrets_of(asked))
    for adviser in ADVISERS:
        regrets = regrets_of(answers_of(rows, adviser), mean_seconds)
        table["baselines"][f"{adviser}, slow blocks among them"] = figures_of([], regrets)
    table["slow blocks"] = slow_blocks(rows)
    table["processes differ by"] = _spread_of_truth(rows)
    table["one calibration alone"] = figures_of(list(errors_of(_as_told_alone(rows), "instant")), [])
    errors = list(errors_of(rows, "instant"))
    table["by family"] = _grouped(errors, lambda error: error.row["family"])
    table["by plan"] = _grouped(errors, lambda error: f"{error.label}, {error.row['mode']}")
    table["by what takes longest"] = _grouped(errors, lambda error: _longest(error.row.get("shares") or {}))
    return table


def _as_told_alone(rows: Iterable[Document]) -> Iterator[Document]:
    """Rows as `instant` would have told them by the calibration of their own block alone."""
    for row in rows:
        answers = row.get("instant of each calibration alone") or ()
        if row.get("block", 0) < len(answers):
            yield {**row, "instant": answers[row["block"]]}


def _spread_of_truth(rows: Sequence[Document]) -> Document:
    """What a process is off by from the median of the others that ran the same: what a measurement would be told to
    be off by, were it asked for an estimate. From a median that it is part of, one of two lies half as far."""
    errors = [
        math.expm1(abs(math.log(each / statistics.median(others))))
        for row in rows
        for truth in (row.get("truth") or {}).values()
        for each, others in _each_and_others(truth.get("processes") or ())
    ]
    return {
        "median error": statistics.median(errors) if errors else None,
        "90th percentile error": quantile(errors, 0.9),
        "estimates": len(errors),
    }


def _each_and_others(medians: Sequence[float]) -> Iterator[tuple[float, Sequence[float]]]:
    """Nothing where there is one alone."""
    if len(medians) > 1:
        for place, each in enumerate(medians):
            yield each, [*medians[:place], *medians[place + 1 :]]


def _longest(shares: dict[str, float]) -> str:
    return max(shares, key=lambda name: shares[name], default="unknown")


def _grouped(errors: Sequence[Error], key: Callable[[Error], str]) -> Document:
    groups: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        groups[key(error)].append(error)
    return {name: figures_of(found, []) for name, found in sorted(groups.items())}


def is_met(figure: str, adviser: str, value: float | None) -> bool | None:
    """None without a value."""
    target = TARGETS[figure][adviser]
    if value is None:
        return None
    if isinstance(target, tuple):
        return bool(target[0] <= value <= target[1])
    return bool(value >= target) if figure.startswith("within") else bool(value <= target)


def describe_table(table: Document) -> str:
    """Markdown."""
    lines = ["| figure | instant | target | quick | target |", "| --- | --- | --- | --- | --- |"]
    for figure, targets in TARGETS.items():
        cells = []
        for adviser in ADVISERS:
            value = table["advisers"][adviser][figure]
            missed = " (missed)" if is_met(figure, adviser, value) is False else ""
            cells += [f"{_percent(value)}{missed}", _target(targets[adviser])]
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    lines += [*_counts(table["advisers"]), "", *_beside(table)]
    if slow := table.get("slow blocks"):
        said = " and ".join(f"{share:.0%} on {threads}" for threads, share in sorted(slow["share"].items()))
        took = f"; they took {slow['slowdown']:.2f} times as long (median)" if slow["slowdown"] else ""
        lines += ["", f"Blocks of truth on slow cores, which its times are not of: {said}{took}."]
    for group in ("by family", "by plan", "by what takes longest"):
        lines += ["", f"| instant {group} | median error | 90th percentile | bias | estimates |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        for name, row in table[group].items():
            cells = [row["median error"], row["90th percentile error"], row["bias"]]
            lines.append(f"| {name} | {' | '.join(map(_percent, cells))} | {row['estimates']} |")
    lines += [f"\nFailed: {row['name']}: {row['error']}" for row in table["failed"]]
    return "\n".join(lines)


def _counts(advisers: Document) -> list[str]:
    """What has no target: how often a process by itself is inside, of how many the figures are, and of what not."""
    rows: dict[str, list[str]] = {}
    for row in (advisers[adviser] for adviser in ADVISERS):
        rows.setdefault("interval holds a single process", []).append(_percent(row["interval holds a process"]))
        estimates = f"{row['estimates']}; {row['untold']}"
        rows.setdefault("estimates; plans that ran and were told no time", []).append(estimates)
        rows.setdefault("decisions; without a plan that ran", []).append(f"{row['decisions']}; {row['unnamed']}")
    return [f"| {name} | {' |  | '.join(cells)} |  |" for name, cells in rows.items()]


def _beside(table: Document) -> list[str]:
    """The advisers' rivals, and what no adviser can do better than."""
    lines = ["| beside them | median error | 90th percentile | mean regret | worst regret | estimates | decisions |"]
    lines += ["| --- " * 7 + "|"]
    for name, row in table["baselines"].items():
        cells = [row["median error"], row["90th percentile error"], row["mean regret"], row["worst regret"]]
        counts = [str(row[count] or "") for count in ("estimates", "decisions")]
        lines.append(f"| {name} | {' | '.join([*map(_percent, cells), *counts])} |")
    beside = {
        "another process, measured alike": "processes differ by",
        "instant of the last calibration alone": "one calibration alone",
    }
    for name, key in beside.items():
        row = table[key]
        cells = [_percent(row[figure]) for figure in ("median error", "90th percentile error")]
        lines.append(f"| {name} | {' | '.join(cells)} |  |  | {row['estimates'] or ''} |  |")
    return lines


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _target(target: Any) -> str:
    return f"{target[0]:.0%} to {target[1]:.0%}" if isinstance(target, tuple) else f"{target:.1%}"


def main() -> int:
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
    sys.stdout.write(describe_table(make_table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
