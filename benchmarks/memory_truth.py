"""What real steps of one workload take: torch's allocator counted, and the process's peak. A process of its own, for
one batch size: the profiler counts what a profile before it left behind when that ends.

Reads one JSON document from standard input, `{"workload": …, "precision": …, "batch_size": …}`, and writes one to
standard output: `{"base_bytes", "batch_size", "allocated_bytes", "process_bytes", "tracker_bytes"}`.
allocated: the most that torch's CPU allocator had handed out at once during the third step, weights included.
process: the largest resident set during three steps. tracker: what torch's own MemTracker says of that step.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from probes.microtrain.feeding import tensors_in
from probes.microtrain.models import build_model
from probes.microtrain.processes.footprint import PeakWatch, read_resident_bytes
from probes.microtrain.step import Step, make_step
from probes.workload.description import Plan, Workload

STEPS = 3  # gradients and the optimizer's state are there from the second on
_MARK = "crosspoint step"


def steps_of(workload: Workload, precision: Any, batch_size: int, built: Any) -> Step:
    batches = [built.batch_for(workload.mode, batch_size)]
    plan = Plan("cpu", precision)
    return make_step(built, batches, plan, mode=workload.mode, optimizer=workload.optimizer, data="resident")


def process_bytes(workload: Workload, precision: Any, size: int) -> int | None:
    watch = PeakWatch(torch.device("cpu"), None)
    step = steps_of(workload, precision, size, build_model(workload.model))
    with watch.watching():
        for _ in range(STEPS):
            step()
    return watch.peak().process_bytes


def allocated_bytes(workload: Workload, precision: Any, size: int) -> int:
    """Watched from before the model is built: what was allocated before a profile began, its frees do not count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        step = steps_of(workload, precision, size, build_model(workload.model))
        for _ in range(STEPS - 1):
            step()
        gc.collect()
        with record_function(_MARK):
            step()
    return _peak_within(watched, _MARK)


def _peak_within(watched: Any, name: str) -> int:
    events = watched.profiler.kineto_results.events()
    mark = next(event for event in events if event.name() == name)
    live = peak = 0
    for start, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += size
        if mark.start_ns() <= start <= mark.end_ns():
            peak = max(peak, live)
        elif start < mark.start_ns():
            peak = live
    return peak


def tracker_bytes(workload: Workload, precision: Any, size: int) -> int | None:
    """torch.distributed._tools.mem_tracker: the peak of a real step by its count of live storages. None: it fails."""
    from torch.distributed._tools.mem_tracker import MemTracker

    step = steps_of(workload, precision, size, build_model(workload.model))
    step()
    tracker = MemTracker()
    try:
        tracker.track_external(*parts_of(step))
        with tracker:
            step()
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    except Exception:  # noqa: BLE001 - a baseline that fails is a result
        return None
    return int(next(value for key, value in peak.items() if "total" in str(key).lower()))


def parts_of(step: Step) -> list[Any]:
    """What was made before the step runs, its batch too: of anything that it is not handed MemTracker knows nothing."""
    parts = (step.module, step.optimizer, *tensors_in(step.feed.next()))
    return [part for part in parts if part is not None]


def main() -> None:
    job = json.loads(sys.stdin.read())
    workload, precision, size = Workload.from_json(job["workload"]), job["precision"], job["batch_size"]
    _warm(workload)
    row = {"batch_size": size, "base_bytes": read_resident_bytes()}
    figures = {"process_bytes": process_bytes, "allocated_bytes": allocated_bytes, "tracker_bytes": tracker_bytes}
    for name, figure in figures.items():
        row[name] = _fresh(partial(figure, workload, precision, size))
    sys.stdout.write(json.dumps(row) + "\n")


def _warm(workload: Workload) -> None:
    """Import what the model needs, so that the base has it."""
    if workload.model.kind == "huggingface":
        import transformers

        transformers.logging.set_verbosity_error()


def _fresh(action: Callable[[], int | None]) -> int | None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return action()


if __name__ == "__main__":
    main()
