"""What steps of several threads suffer while the host has our cores on caches that they do not share.

python -m benchmarks.caches_apart [--seconds 150] [--output FILE]

In turns, on all cores: exponentials alone, numbers handed from thread to thread alone, the fixed work of the pace
(probes.microtrain.quiet.pace), and steps of small networks. A turn is slow where the fixed work before and after its
steps took more than calm cores do (probes.microtrain.quiet.calm). The table tells how many times as long each took in
the slow turns, and by which power of what the fixed work took longer (docs/decisions/0013).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.machine import read_machine
from benchmarks.output import output_file
from probes.microtrain.plans import read_cores, thread_counts
from probes.microtrain.quiet.calm import CALM
from probes.microtrain.quiet.pace import ELEMENTS, repeat_work
from probes.microtrain.step import applied
from probes.workload.description import Plan

RESULTS = Path(__file__).parent / "results"
REPEATS = 3  # of each in a turn, of which the median counts
FIRST, AFTER = "fixed work", "fixed work, after the steps"
Turn = Mapping[str, float]  # seconds, by what ran


def works(threads: int) -> dict[str, Callable[[], object]]:
    """By name. Networks are stepped in training, by AdamW."""
    values, results = torch.linspace(-1, 1, ELEMENTS * threads), torch.empty(ELEMENTS * threads)
    shared = torch.zeros(ELEMENTS * (threads + 1))
    written, beside = shared[: ELEMENTS * threads], shared[ELEMENTS:]

    def hand_over() -> None:
        torch.add(written, 1.0, out=written)
        torch.add(beside, 1.0, out=results)

    return {
        "exponentials": lambda: torch.exp(values, out=results),
        "numbers handed over": hand_over,
        "dense, 128 wide, batch 256": _stepped(_dense(128), torch.randn(256, 16)),
        "dense, 256 wide, batch 664": _stepped(_dense(256), torch.randn(664, 16)),
        "dense, 256 wide, batch 664, bf16": _stepped(_dense(256), torch.randn(664, 16), narrow=True),
        "convolutions": _stepped(
            nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU()),
            torch.randn(32, 3, 32, 32),
        ),
        "encoder": _stepped(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(16, 64, 64)),
        "lstm": _stepped(nn.LSTM(32, 64, batch_first=True), torch.randn(32, 32, 32)),
    }


def _dense(wide: int) -> nn.Module:
    return nn.Sequential(nn.Linear(16, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 2))


def _stepped(module: nn.Module, inputs: torch.Tensor, *, narrow: bool = False) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            output = module(inputs)
        output = output[0] if isinstance(output, tuple) else output
        functional.mse_loss(output.float(), torch.zeros_like(output, dtype=torch.float32)).backward()
        optimizer.step()

    return step


def measure(seconds: float) -> list[Turn]:
    """On as many threads as torch has now."""
    ran = {FIRST: repeat_work, **works(torch.get_num_threads()), AFTER: repeat_work}
    for work in ran.values():
        work()
    until, turns = time.monotonic() + seconds, list[Turn]()
    while time.monotonic() < until or not turns:
        turns.append({name: median(_timed(work) for _ in range(REPEATS)) for name, work in ran.items()})
    return turns


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def compare(turns: Sequence[Turn]) -> dict[str, Any]:
    """slow: the share of the turns. ratios: by what ran, the median of slow turns over that of calm ones. powers: of
    the fixed work's ratio. The last two are empty where there are no turns of either kind."""
    best = min(min(turn[FIRST], turn[AFTER]) for turn in turns)
    calm = [turn for turn in turns if max(turn[FIRST], turn[AFTER]) <= CALM * best]
    slow = [turn for turn in turns if min(turn[FIRST], turn[AFTER]) > CALM * best]
    ratios = {}
    if calm and slow:
        ratios = {name: median(turn[name] for turn in slow) / median(turn[name] for turn in calm) for name in turns[0]}
    powers = {name: math.log(ratio) / math.log(ratios[FIRST]) for name, ratio in ratios.items()}
    return {"turns": len(turns), "slow": len(slow) / len(turns), "ratios": ratios, "powers": powers}


def describe(found: Mapping[str, Any]) -> str:
    """As Markdown."""
    lines = [f"{found['slow']:.0%} of {found['turns']} turns were slow."]
    if found["ratios"]:
        lines += ["", "| | times as long | power |", "| --- | --- | --- |"]
        lines += [f"| {name} | {ratio:.2f} | {found['powers'][name]:.2f} |" for name, ratio in found["ratios"].items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.caches_apart", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--output", type=output_file, default=RESULTS / "caches_apart.json")
    chosen = parser.parse_args(arguments)
    threads = max(thread_counts(read_cores()))
    with applied(Plan("cpu", "fp32", threads)):
        turns = measure(chosen.seconds)
    found = compare(turns)
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": read_machine(),
        "threads": threads,
        **found,
        "rows": [{name: round(seconds, 9) for name, seconds in turn.items()} for turn in turns],
    }
    chosen.output.write_text(json.dumps(document) + "\n", encoding="utf-8")
    sys.stdout.write(describe(found) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
