"""How often others slow this machine's cores, which no counter of a virtual machine shows.

python -m benchmarks.neighbours [--seconds 60] [--output FILE]

The same exponentials run on each of two cores by itself, and on both at once, again and again. A core by itself is slow
where another machine computes on the other thread of its core. Both at once are slow, and each by itself is not, where
the host runs these two on one core. Every round is kept; a round is slow where it takes so much longer than the
quickest (SLOW).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.machine import read_machine
from benchmarks.output import output_file

RESULTS = Path(__file__).parent / "results"
SLOW = 1.2
# Some 5 ms a repeat, of numbers in the nearest caches. Products of matrices hear less: where exponentials took 1.4
# times as long, products of 384 x 384 took 1.15 (docs/decisions/0013).
NUMBERS, EXECUTIONS, REPEATS = 32_768, 200, 5
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Round:
    """Seconds of EXECUTIONS, medians of REPEATS: each core by itself, and each while both run."""

    at: float
    alone: tuple[float, float]
    together: tuple[float, float]


def serve(asked: Connection, core: int) -> None:
    """In a process of its own: exponentials whenever they are asked for, until None is."""
    os.sched_setaffinity(0, {core})
    values = np.linspace(-1, 1, NUMBERS, dtype=np.float32)
    results = np.empty_like(values)
    while asked.recv() is not None:
        begun = time.perf_counter()
        for _ in range(EXECUTIONS):
            np.exp(values, out=results)
        asked.send(time.perf_counter() - begun)


def measure(seconds: float, cores: tuple[int, int]) -> list[Round]:
    """A round every so often, for so long."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in cores]
    workers = [
        context.Process(target=serve, args=(there, core), daemon=True)
        for (_, there), core in zip(pipes, cores, strict=True)
    ]
    for worker in workers:
        worker.start()
    here = [pipe[0] for pipe in pipes]
    _run(here)  # caches, and the processor's clock
    begun, rounds = time.perf_counter(), []
    while time.perf_counter() - begun < seconds:
        alone = tuple(_run([one])[0] for one in here)
        together = tuple(_run(here))
        rounds.append(Round(time.perf_counter() - begun, (alone[0], alone[1]), (together[0], together[1])))
        time.sleep(PAUSE_SECONDS)
    for one in here:
        one.send(None)
    for worker in workers:
        worker.join()
    return rounds


def _run(workers: Sequence[Connection]) -> list[float]:
    """Of each, the median of its repeats, all of them at the same time."""
    times: list[list[float]] = []
    for _ in range(REPEATS):
        for worker in workers:
            worker.send(True)
        times.append([float(worker.recv()) for worker in workers])
    return [statistics.median(each) for each in zip(*times, strict=True)]


def shares(rounds: Sequence[Round]) -> dict[str, float]:
    """Of all rounds, how many were slow: each core by itself, both at once where neither was by itself, and any."""
    best = min(min(each.alone) for each in rounds)
    slow = [tuple(seconds > SLOW * best for seconds in each.alone) for each in rounds]
    both = [min(each.together) > SLOW * best and not any(alone) for each, alone in zip(rounds, slow, strict=True)]
    any_slow = [max(each.together) > SLOW * best or any(alone) for each, alone in zip(rounds, slow, strict=True)]
    counted = {
        "first core by itself": [each[0] for each in slow],
        "second core by itself": [each[1] for each in slow],
        "both at once alone": both,
        "anything": any_slow,
    }
    return {name: sum(found) / len(rounds) for name, found in counted.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, say and write. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output", type=output_file, default=RESULTS / "neighbours.json")
    chosen = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("two cores are needed, and this process may use one")
    machine = read_machine()  # before the load that measuring is
    rounds = measure(chosen.seconds, (cores[0], cores[1]))
    found = shares(rounds)
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "slow": SLOW,
        "shares": found,
        "rounds": [asdict(each) for each in rounds],
    }
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, share in found.items():
        sys.stdout.write(f"{name}: slow in {share:.0%} of {len(rounds)} rounds\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
