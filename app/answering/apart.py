"""Whether each plan is measured in a process of its own, as a user's is: what a step takes depends on the process's
heap, and one that runs several plans has another (docs/decisions/0005)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.advisor.known import Known
from app.advisor.recommendation import MemoryParts, Option
from app.answering.measuring_time import seconds_of_a_step_each
from probes.workload.description import Plan, Workload

# Of the memory that is available, for all these processes together: they live at the same time, to take turns.
MEMORY_SHARE = 0.5
# Steps of each plan that there has to be time for, as long as they are in the end: the first of a process take up to
# three times as long, and each sample has one before it, which wakes the threads. With fewer the samples that are left
# are worth less than sharing a process costs (docs/decisions/0005), and the measuring process wants as many.
WANTED_STEPS = 15
# Of a process that runs torch, where nothing has told how much its libraries take.
LIBRARIES_BYTES = 2**30


def may_run_apart(options: Iterable[Option], seconds: float) -> bool:
    """Whether those of these that run on the CPU may hold their memory at once, and the seconds do for their steps. How
    long these are the measuring process sees where it is not known."""
    return _may_run_apart([options], seconds)


def may_all_run_apart(known: Known, plans: Sequence[Plan], batch_sizes: Sequence[int], seconds: float) -> bool:
    """As `may_run_apart`, of these plans at each of these batch sizes; not where nothing is foretold of one of them."""
    found: list[list[Option]] = []
    for size in dict.fromkeys(batch_sizes):
        options = {option.plan.key: option for option in known.options(size)}
        if any(plan.key not in options for plan in plans):
            return False
        found.append([options[plan.key] for plan in plans])
    return _may_run_apart(found, seconds)


def _may_run_apart(by_size: Iterable[Iterable[Option]], seconds: float) -> bool:
    """A process is of one plan at one batch size; which plans are slow is seen at each size by itself."""
    on_cpu = [[option for option in options if option.plan.is_cpu] for options in by_size]
    everyone = [option for options in on_cpu for option in options]
    return bool(everyone) and _have_room(everyone) and _have_time(on_cpu, seconds)


def _have_room(options: Sequence[Option]) -> bool:
    needed = [_needed_bytes(option.memory) for option in options]
    available = [option.memory.available_bytes for option in options]
    if None in needed or None in available:
        return False
    return sum(filter(None, needed)) <= MEMORY_SHARE * min(filter(None, available), default=0)


def _needed_bytes(memory: MemoryParts) -> int | None:
    if memory.peak_bytes is not None or memory.allocated_peak_bytes is None:
        return memory.peak_bytes
    return memory.allocated_peak_bytes + LIBRARIES_BYTES


def _have_time(by_size: Iterable[Iterable[Option]], seconds: float) -> bool:
    return WANTED_STEPS * sum(map(seconds_of_a_step_each, by_size)) <= seconds


def start_options(workload: Workload) -> tuple[str, ...]:
    """Of the measuring process's command line: what forks these processes starts with it (docs/protocol.md)."""
    return ("--forks", "--configs") if workload.model.kind == "huggingface" else ("--forks",)
