"""What page faults cost a step, and how looking at a step does away with them (docs/decisions/0005).

python -m benchmarks.page_faults        five micro-networks, half a minute

Plain steps of one plan in a fresh process, then steps under torch's profiler or the operation clock, in turns: seconds
and minor faults a step. Both leave small blocks on the heap, above which less of it goes back to the system.
"""

from __future__ import annotations

import sys

from benchmarks.watched_steps import measure
from probes.microtrain.processes import fresh_processes
from probes.workload.description import Mode

CASES: tuple[tuple[str, Mode, int], ...] = (
    ("mlp-wide", "training", 8),
    ("mlp-huge", "training", 4),
    ("cnn-residual", "inference", 12),
    ("embedding-classifier", "training", 8),
    ("transformer-long", "training", 2),
)


def main() -> int:
    """A line a network. Returns the exit code."""
    for case in CASES:
        blocks = fresh_processes.run_fresh(measure, case, lambda: None)
        told = ", ".join(f"{watch} {seconds * 1e3:.3g} ms ({faults:.0f})" for watch, seconds, faults in blocks)
        sys.stdout.write(f"{case[0]}, {case[1]}, batch {case[2]}: ms a step (faults a step): {told}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
