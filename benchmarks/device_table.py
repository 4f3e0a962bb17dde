"""How good are the estimates of a device: what a profile and a trace tell of steps, memory and plans, against what
benchmarks.device_truth measured on it. Replayed from the files that were kept, on any machine.

    python -m benchmarks.device_table benchmarks/results/2026-11-26-nvidia-h200-xeon-16-cores

Models are traced by the code that is here. `instant` knows the profile alone; `learned` also what the other models took
on that machine, each model left out in turn in all of its modes, as a service knows it that has measured them: of the
nearest alone. What these name is what the product ranks first of the plans that ran, a tie going to the cheaper one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.advisor.ranking import rank_options
from app.advisor.recommendation import Breakdown, MemoryParts, Option
from app.advisor.time_model.step_estimate import shared_spread
from benchmarks.decisions import default_label
from benchmarks.device_steps import MOST_COPIED, NOT_CLOCKED, SIDES, Step, error, read, read_profile, read_steps, tell
from benchmarks.rules_of_thumb import RULES
from benchmarks.workloads import WORKLOADS
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def figures(errors: Sequence[float]) -> str:
    """Median, 90th percentile and bias of logarithms."""
    if not errors:
        return "| | | |"
    sizes = sorted(math.exp(abs(error)) - 1 for error in errors)
    high = sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)]
    return f"| {statistics.median(sizes):.1%} | {high:.1%} | {math.exp(statistics.median(errors)) - 1:+.1%} |"


HEAD = "| steps | median error | 90th percentile | bias | interval holds | estimates |\n" + "| --- " * 6 + "|"


def print_steps(steps: Sequence[Step]) -> None:
    say(HEAD)
    for who in ("instant", "learned"):
        for name, group in _groups(steps).items():
            held = statistics.fmean(s.told[who].low <= s.seconds <= s.told[who].high for s in group)
            errors = [error(s.told[who].median, s.seconds) for s in group]
            say(f"| {who}, {name} {figures(errors)} {held:.0%} | {len(group)} |")
    for name in RULES:
        errors = [error(s.beside[name], s.seconds) for s in steps if name in s.beside]
        say(f"| {name} {figures(errors)} | {len(errors)} |")
    # Batches come from pageable memory, whose copy is in the device's clock and no kernel.
    kernels = [error(s.computing, s.device) for s in steps if s.device and s.computing and s.copied <= MOST_COPIED]
    say(f"| kernels alone, told against their clock {figures(kernels)} | {len(kernels)} |")


def _groups(steps: Sequence[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = defaultdict(list)
    found["all"] = list(steps)
    plain = ("between", NOT_CLOCKED)
    for side in (*SIDES, NOT_CLOCKED):
        name = side if side in plain else f"{side} is the limit"
        found[name] += [step for step in steps if step.side == side]
    for step in steps:
        found[f"{step.plan.precision}, {step.mode}"].append(step)
    for step in steps:
        found[step.family].append(step)
    return {name: group for name, group in found.items() if group}


def print_memory(steps: Sequence[Step]) -> None:
    say("\n| memory at the peak | median error | 90th percentile | bias | worst | estimates |")
    say("| --- " * 6 + "|")
    for what, place in (("allocated", 0), ("reserved", 1)):
        rows = [(error(getattr(s, what), s.memory[place]), s) for s in steps if s.memory and getattr(s, what)]
        worst = max(rows, key=lambda row: abs(row[0]))
        name = f"{worst[1].workload} at {worst[1].batch_size}, {worst[1].plan.precision}"
        say(f"| {what} {figures([each for each, _ in rows])} {math.exp(worst[0]):.2f} of it ({name}) | {len(rows)} |")


def print_decisions(steps: Sequence[Step], traces: Mapping[str, Trace]) -> None:
    by_size: dict[tuple[str, int], list[Step]] = defaultdict(list)
    for step in steps:
        by_size[step.workload, step.batch_size].append(step)
    asked = [rows for rows in by_size.values() if len({step.plan.is_cpu for step in rows}) == 2]
    models, won = {rows[0].workload for rows in asked}, sum(not _best(rows).plan.is_cpu for rows in asked)
    say(f"\n{len(asked)} sizes of {len(models)} models ran on the cores too; {won} times the device is the best.")
    say("\n| who chooses | mean regret | worst | within 5 % of the best | no plan that ran |\n" + "| --- " * 5 + "|")
    for who in CHOOSERS if asked else ():
        chosen = [(_chosen(rows, who, traces), _best(rows)) for rows in asked]
        regrets = [step.seconds / best.seconds - 1 for step, best in chosen if step is not None]
        near = sum(regret <= 0.05 for regret in regrets) / len(asked)
        mean, worst = (f"{statistics.fmean(regrets):.1%}", f"{max(regrets):.1%}") if regrets else ("", "")
        say(f"| {who} | {mean} | {worst} | {near:.1%} | {len(asked) - len(regrets)} |")


DEFAULT = "torch's default: fp32, or the better of fp32 and tf32 where cuDNN computes"
CORES = "the best of the cores' plans"
CHOOSERS = ("instant", "learned", DEFAULT, CORES)


def _best(rows: Sequence[Step]) -> Step:
    return min(rows, key=lambda step: step.seconds)


def _chosen(rows: Sequence[Step], who: str, traces: Mapping[str, Trace]) -> Step | None:
    """None where torch's default did not run."""
    if who == DEFAULT:
        device = {step.plan.label: step for step in rows if not step.plan.is_cpu}
        plan = replace(next(iter(device.values())).plan, precision="fp32")
        seconds = {label: step.seconds for label, step in device.items()}
        return device.get(default_label(plan, seconds, traces[rows[0].workload]))
    if who == CORES:
        return _best([step for step in rows if step.plan.is_cpu])
    return _named(rows, who)


def _named(rows: Sequence[Step], who: str) -> Step:
    """What the product ranks first of these plans, each of which ran and so fits."""
    by_plan = {step.plan.key: step for step in rows}
    options = [
        Option(step.plan, True, None, "predicted", step.told[who], None, Breakdown(), MemoryParts(), None)
        for step in rows
    ]

    def ratio_spread(one: Option, other: Option) -> float | None:
        return shared_spread(by_plan[one.plan.key].estimates[who], by_plan[other.plan.key].estimates[who])

    return by_plan[rank_options(options, ratio_spread).options[0].plan.key]


def crossing(seconds: Mapping[int, tuple[float, float]]) -> float | None:
    """The batch size from which the second is faster at all larger ones, read off a straight line of logarithms
    between the two sizes around it; 0 where it always is, None where it never is. seconds: by batch size."""
    sizes = sorted(seconds)
    behind = [size for size in sizes if seconds[size][1] >= seconds[size][0]]
    if not behind:
        return 0.0
    place = sizes.index(behind[-1])
    if place + 1 == len(sizes):
        return None
    low, high = (math.log(seconds[size][1] / seconds[size][0]) for size in sizes[place : place + 2])
    return math.exp(math.log(sizes[place]) + low / (low - high) * math.log(sizes[place + 1] / sizes[place]))


def print_crossovers(steps: Sequence[Step]) -> None:
    say("\n| from which batch the device's fp32 is faster | than | measured | told | factor |")
    say("| --- | --- | --- | --- | --- |")
    by_model: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_model[step.workload].append(step)
    for name, rows in by_model.items():
        device = {s.batch_size: s for s in rows if s.plan.label.endswith(" fp32") and not s.plan.is_cpu}
        for label in dict.fromkeys(s.plan.label for s in rows if s.plan.is_cpu):
            core = {s.batch_size: s for s in rows if s.plan.label == label}
            both = sorted(core.keys() & device.keys())
            if len(both) < 3:
                continue
            true = crossing({size: (core[size].seconds, device[size].seconds) for size in both})
            told = crossing(
                {size: (core[size].told["instant"].median, device[size].told["instant"].median) for size in both}
            )
            factor = f"{max(true / told, told / true):.1f}" if true and told else ""
            say(f"| {name} | {label} | {_said(true)} | {_said(told)} | {factor} |")


def _said(batch_size: float | None) -> str:
    return "never" if batch_size is None else "always" if batch_size == 0 else f"{batch_size:,.0f}"


def trace_named(names: Container[str]) -> dict[str, Trace]:
    """Those of the workloads, as a device runs them."""
    traces = {}
    for row in WORKLOADS:
        if row.name in names:
            traces[row.name] = trace_workload(row.workload(), devices=True)
            sys.stderr.write(f"traced {row.name}\n")
    return traces


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with truth.json.gz and profile_*.json.gz")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="of the workloads those")
    parser.add_argument("--worst", type=int, default=0, help="print so many of the steps that were told worst")
    options = parser.parse_args()
    truth, profile = read(options.folder, "truth"), read_profile(options.folder)
    named = {row["name"] for row in truth if row["runs"]} & set(options.only or [row.name for row in WORKLOADS])
    traces = trace_named(named)
    on_device, on_cpu = (tell(read_steps(truth, kind), profile, traces) for kind in ("device", "cpu"))
    print_steps(on_device)
    print_memory(on_device)
    print_decisions([*on_device, *on_cpu], traces)
    print_crossovers(tell(read_steps(truth, "curve"), profile, traces))
    for step in sorted(on_device, key=_miss, reverse=True)[: options.worst]:
        told = ", ".join(f"{who} {interval.median * 1e6:.0f}" for who, interval in step.told.items())
        say(f"{step.workload}, batch {step.batch_size}, {step.plan.label}: {step.seconds * 1e6:.0f} us, told {told}")


def _miss(step: Step) -> float:
    return abs(error(step.told["instant"].median, step.seconds))


if __name__ == "__main__":
    main()
