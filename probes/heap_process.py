"""Reads the curves of a process's heap off simulated steps in another process, while this one goes on: both precisions
of a large network take seconds.

python -m probes.heap_process    a pickled Step on standard input, pickled HeapCurves on standard output
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from probes.heap_peaks import HeapCurves, heap_curves
from probes.heap_steps import Step

# A step of fewer allocations is simulated in less time than a process takes to start.
WORTH_ALLOCATIONS = 150
ROOT = Path(__file__).parents[1]


def curves_beside(step: Step | None) -> Callable[[], HeapCurves]:
    """Begins at once; what is returned waits for the end. Where no other process can be had, it reckons in this one."""
    if step is None or len(step.allocations.sizes) < WORTH_ALLOCATIONS:
        return lambda: heap_curves(step)
    try:
        with tempfile.TemporaryFile() as given:  # a pipe would hold this process up until that one reads
            pickle.dump(step, given)
            given.seek(0)
            process = subprocess.Popen(
                (sys.executable, "-m", "probes.heap_process"),
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
            )
    except OSError:
        return lambda: heap_curves(step)

    def wait() -> HeapCurves:
        found, _ = process.communicate()
        return pickle.loads(found) if process.returncode == 0 else heap_curves(step)

    return wait


def main() -> None:
    step = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(heap_curves(step)))


if __name__ == "__main__":
    main()
