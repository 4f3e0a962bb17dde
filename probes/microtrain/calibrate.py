"""Measures a machine's constants once, for the profile that step times are predicted from: the job `calibrate`."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from statistics import median
from typing import Any

import torch

from probes.bounds import MAX_NAME_CHARACTERS
from probes.context import Context
from probes.measurement import Timing
from probes.microtrain.calibration.calibration_networks import NetworkContest
from probes.microtrain.calibration.device_memory import DeviceOverhead, measure_overhead
from probes.microtrain.constants import dispatch, kernels, traffic, transfer
from probes.microtrain.constants.bench import Action, Bench, Effort
from probes.microtrain.failures import Failure
from probes.microtrain.measuring.contest import Contest
from probes.microtrain.measuring.device_cache import empty_device_cache
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.measuring.workbench import synchronize
from probes.microtrain.plans import (
    CPU_PRECISIONS,
    Cores,
    cuda_plans,
    fewer_thread_counts,
    read_cores,
    thread_counts,
)
from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.footprint import read_resident_bytes
from probes.microtrain.processes.touched_memory import touch_memory
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.noise import Moment, Noise, QueueTime, noise_between, read_moment
from probes.microtrain.quiet.pace import read_pace
from probes.microtrain.quiet.resting import Rest, leaves_threads
from probes.microtrain.step import applied
from probes.microtrain.timing import MIN_SAMPLES, relative_spread, significant
from probes.points import NetworkPoint, Point
from probes.profile import Profile
from probes.workload.description import Plan

Document = dict[str, Any]
OnProgress = Callable[[float, str], None]
MakeBenches = Callable[[Plan, Effort], list[Bench]]
Calms = defaultdict[int | None, Calm]  # by threads

# From the job's beginning to its end; starting its process before and pooling four of them after take five more.
SECONDS: dict[Effort, float] = {"quick": 23.0, "full": 52.0}
LEAST_SHARE = 0.5  # of the time is for measuring, however long tracing took
TOUCHING_SHARE = 0.04  # of the time at most goes to memory that this machine has not been given yet
QUICK_THREAD_COUNTS = 4  # on machines with many cores
NETWORK_WEIGHT = 5.0  # time for one network's point, against one of a constant's

GAINING_SECONDS = 0.005  # a step that takes this long on one thread gains from more, on a machine that is left alone

# What the first execution of a kind loads on a device; how long the second takes is the figure.
FIRST_ON_DEVICE_SECONDS = 1.0

REPORT_SECONDS = 0.5

# Every constant, with the time that one of its points needs against the others'.
CONSTANTS: tuple[tuple[str, MakeBenches, float], ...] = (
    ("dispatch", dispatch.dispatch, 1.0),
    ("optimizer", dispatch.optimizer, 1.0),
    ("launch", transfer.launch, 0.5),
    ("synchronize", transfer.synchronize, 0.25),
    ("transfer", transfer.transfer, 0.5),
    ("matmul", kernels.matmul, 1.0),
    ("convolution", kernels.convolution, 1.0),
    ("attention", kernels.attention, 1.0),
    ("recurrent", kernels.recurrent, 1.0),
    ("elementwise", traffic.elementwise, 1.0),
    ("bandwidth", traffic.bandwidth, 0.5),
    ("copy", traffic.copy, 0.5),
    ("normalization", traffic.normalization, 1.0),
    ("reduction", traffic.reduction, 0.5),
    ("gather", traffic.gather, 0.5),
    ("page-fault", traffic.page_fault, 2.5),  # few points, and long ones
)

# Beyond both nothing is left to believe: others hold nearly every core, and the points vary by more than themselves.
HOPELESS_CONTENTION = 0.9
HOPELESS_SPREAD = 1.0
# Nor where nothing was timed often enough (MIN_SAMPLES) to tell how far it is off, and others had half of the time: a
# single sample then is as much theirs as ours (with 0.85 and 0.75 of it one plan was told 65 times what it takes).
HOPELESS_UNREPEATED = 0.5


@dataclass(frozen=True)
class CalibrateJob:
    effort: Effort
    plans: tuple[Plan, ...]
    name: str = "this-machine"
    machine: str = ""
    fingerprint: str = ""
    seconds: float = field(default=SECONDS["quick"])


def parse_calibrate_job(job: Document) -> CalibrateJob:
    """Raises Failure `invalid-job`. No devices: all that are here."""
    effort, devices, usable = job.get("effort"), job.get("devices") or [], job.get("usable_cores")
    if effort not in ("quick", "full"):
        raise Failure("invalid-job", "effort is quick or full.")
    if usable is not None and not (isinstance(usable, int | float) and usable > 0):
        raise Failure("invalid-job", "usable_cores is a number above 0, or null.")
    if not isinstance(devices, list) or not all(isinstance(device, str) for device in devices):
        raise Failure("invalid-job", "devices is a list of names such as cpu and cuda:0.")
    plans = choose_plans(effort, devices, _limit_cores(read_cores(), usable))
    if not plans:
        raise Failure("invalid-job", "None of the devices asked for is here.")
    texts = {name: str(job.get(name) or "")[:MAX_NAME_CHARACTERS] for name in ("name", "machine", "fingerprint")}
    return CalibrateJob(effort, plans, **texts, seconds=SECONDS[effort])


def _limit_cores(cores: Cores, usable: float | None) -> Cores:
    return cores if usable is None else Cores(max(1, min(cores.usable, int(usable))), cores.physical)


def choose_plans(effort: Effort, devices: Sequence[str], cores: Cores) -> tuple[Plan, ...]:
    """Every plan that constants are measured for, on the devices asked for (none: all)."""
    counts = thread_counts(cores)
    if effort == "quick":
        counts = fewer_thread_counts(counts, QUICK_THREAD_COUNTS)
    cpu = [Plan("cpu", precision, count) for count in counts for precision in CPU_PRECISIONS]
    return (*(cpu if not devices or "cpu" in devices else ()), *cuda_plans(devices))


def calibrate(job: CalibrateJob, report: OnProgress) -> Profile:
    """Raises Failure `too-busy` when others leave so little of the machine that no figure means anything."""
    base_bytes = read_resident_bytes()
    begun = time.perf_counter()
    run = CalibrationRun(job, report)
    points, networks, contexts = run.measure()
    spread = _median_spread([*(point.seconds for point in points), *(point.seconds for point in networks)])
    noise = run.noise(spread)
    refuse_hopeless(noise)
    return Profile(
        name=job.name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        fingerprint=job.fingerprint,
        machine=job.machine,
        software={"torch": torch.__version__, "python": platform.python_version()},
        effort=job.effort,
        duration_seconds=significant(time.perf_counter() - begun),
        noise={**noise.figures(), "drift": run.drift(), "hindrance": hindrance(networks), "slow_fraction": run.slow()},
        points=tuple(points),
        networks=tuple(networks),
        contexts=tuple(contexts),
        process_base_bytes=base_bytes,
        context_bytes={device: each.context for device, each in run.overheads.items()} or None,
        workspace_bytes={device: each.workspace for device, each in run.overheads.items()} or None,
        start_seconds={device: significant(each.start_seconds) for device, each in run.overheads.items()} or None,
        paces=run.paces(),
    )


def refuse_hopeless(noise: Noise) -> None:
    contention = noise.contention or 0.0
    if contention > HOPELESS_CONTENTION and noise.spread is not None and noise.spread > HOPELESS_SPREAD:
        raise Failure(
            "too-busy",
            f"Other processes hold nearly every core ({contention:.0%} of those that were measured on), and times "
            "varied by more than themselves. Calibrate again when the machine is quieter.",
        )
    waiting = noise.waiting_fraction or 0.0
    if noise.spread is None and max(contention, waiting) > HOPELESS_UNREPEATED:
        held = f"{contention:.0%} of the cores" if contention >= waiting else f"the cores for {waiting:.0%} of the time"
        raise Failure(
            "too-busy",
            f"Other processes held {held}, and nothing could be timed often enough to tell how far the times are "
            "off. Calibrate again when the machine is quieter.",
        )


def hindrance(networks: Sequence[NetworkPoint]) -> float | None:
    """How much longer networks took on the most threads than on one, in the median; 0 where they did not. Only of steps
    long enough to gain from more: a neighbour whose threads share these cores shows in no other figure."""
    seconds: dict[object, dict[int, float]] = defaultdict(dict)
    for point in networks:
        if point.plan.is_cpu and point.plan.threads is not None:
            key = (point.name, point.batch_size, point.trace.mode, point.plan.precision)
            seconds[key][point.plan.threads] = point.seconds.median
    ratios = [
        by_threads[max(by_threads)] / by_threads[1]
        for by_threads in seconds.values()
        if len(by_threads) > 1 and by_threads.get(1, 0.0) >= GAINING_SECONDS
    ]
    return significant(max(median(ratios) - 1, 0.0)) if ratios else None


def _median_spread(timings: Sequence[Timing]) -> float | None:
    """Of those with samples enough to have one; None where the machine was too slow for any."""
    spreads = [relative_spread(timing) for timing in timings if len(timing.samples) >= MIN_SAMPLES]
    return significant(median(spreads)) if spreads else None


class CalibrationRun:
    """Constant after constant, all plans of one in turns; every one ends when its share of the time is over."""

    def __init__(self, job: CalibrateJob, report: OnProgress) -> None:
        fresh_processes.prepare()  # it imports torch while this process makes what is measured
        self._job = job
        self._report = report
        self._begun = self._reported = time.perf_counter()
        self._before = read_moment()
        self._calms: Calms = defaultdict(Calm)
        self._networks = NetworkContest(job.plans, self._calms)
        self.overheads: dict[str, DeviceOverhead] = {}  # by device
        self._groups = [
            (name, weight, in_turns([most_telling_first(plan, make(plan, job.effort)) for plan in job.plans]))
            for name, make, weight in CONSTANTS
        ]

    def _say(self, message: str, *, force: bool = True) -> None:
        now = time.perf_counter()
        if force or now - self._reported > REPORT_SECONDS:
            self._reported = now
            self._report((now - self._begun) / self._job.seconds, message)

    def measure(self) -> tuple[list[Point], list[NetworkPoint], list[Context]]:
        self._report(0.0, "touching memory")
        touch_memory(TOUCHING_SHARE * self._job.seconds)
        self._say("tracing the micro-networks")
        self._networks.prepare()
        self._before = read_moment()  # where there is one core, this one waited for the other's import until now
        self._measure_overheads()
        now = time.perf_counter()
        end = max(self._begun + self._job.seconds, now + LEAST_SHARE * self._job.seconds)
        weights = [weight * len(benches) for _, weight, benches in self._groups]
        left = sum(weights) + NETWORK_WEIGHT * self._networks.size
        points: list[Point] = []
        for (name, _, benches), weight in zip(self._groups, weights, strict=True):
            now = time.perf_counter()
            self._say(name)
            points += measure_points(benches, now + (end - now) * weight / left, self._calms)
            left -= weight
        return points, *self._networks.measure(end, lambda: self._say("micro-networks", force=False))

    def _measure_overheads(self) -> None:
        for device in dict.fromkeys(plan.device for plan in self._job.plans if not plan.is_cpu):
            self._say(f"the memory that {device} takes")
            overhead = measure_overhead(device)
            if overhead is not None:
                self.overheads[device] = overhead

    def drift(self) -> float | None:
        """How much longer steps took in the slower of two visits half a calibration apart, in the median."""
        ratios = self._networks.visits
        return significant(median(ratios) - 1) if ratios else None

    def slow(self) -> float | None:
        """Of what the networks ran, how much met slow cores only."""
        return self._networks.slow_fraction

    def paces(self) -> dict[int, float]:
        """By threads, the quickest reading of the cores' pace."""
        best = {threads: calm.best for threads, calm in self._calms.items() if threads is not None}
        return {threads: significant(seconds) for threads, seconds in sorted(best.items()) if seconds is not None}

    def noise(self, spread: float | None) -> Noise:
        """Of what was measured."""
        threads = max(plan.threads or 1 for plan in self._job.plans)
        return noise_between(self._before, self._read_moment(), threads, spread)

    def _read_moment(self) -> Moment:
        """The waiting of the processes that measured networks is this one's."""
        moment, theirs = read_moment(), self._networks.queue
        if moment.queue is None:
            return moment
        queue = QueueTime(moment.queue.ran + theirs.ran, moment.queue.waited + theirs.waited)
        return replace(moment, queue=queue)


def most_telling_first(plan: Plan, benches: Sequence[Bench]) -> Sequence[Bench]:
    """The small ones of a CPU, as they come. On a device these are all issuing, and the largest tell how fast it is:
    beside the plans of 16 cores there was no time for them, and the roof of an H100 was 0.8 TFLOP/s. Of copies the
    small tell as much, and all have time."""
    as_they_come = plan.is_cpu or any(bench.constant == "transfer" for bench in benches)
    return benches if as_they_come else tuple(reversed(benches))


def in_turns(rows: Sequence[Sequence[Bench]]) -> list[Bench]:
    """The first of every row, then the second of every row, and so on: where the time does not do for all, every plan
    has some."""
    return [bench for benches in zip_longest(*rows) for bench in benches if bench is not None]


def measure_points(benches: Sequence[Bench], deadline: float, calms: Calms) -> list[Point]:
    """Points of all benches that ran, on the calm machine where it was calm for long enough; what fails or has no time
    left is no point. What they computed with is given back. calms: learns how quick the cores can be."""
    points = _measure_points(benches, deadline, calms)
    empty_device_cache()
    return points


def _measure_points(benches: Sequence[Bench], deadline: float, calms: Calms) -> list[Point]:
    actions: dict[Any, Action] = {}
    rest = Rest()
    rows = [(bench, _make_entry(bench, actions, calms, rest)) for bench in benches]
    contest = Contest([entry for _, entry in rows], deadline)
    contest.run()
    return [point for bench, entry in rows if (point := _point_of(bench, entry)) is not None]


def _make_entry(bench: Bench, actions: dict[Any, Action], calms: Calms, rest: Rest) -> Entry:
    """Plans that differ in their threads alone share tensors."""
    key = (bench.constant, bench.device, bench.dtype, tuple(bench.parameters.items()), bench.bytes)

    @contextlib.contextmanager
    def prepared() -> Iterator[None]:
        """Making what it computes with is no part of its time."""
        with applied(bench.plan):
            if key not in actions:
                actions[key] = bench.make()
            yield

    def run(executions: int) -> None:
        action = actions[key]
        with torch.no_grad() if bench.constant != "dispatch" else torch.enable_grad():
            for _ in range(executions):
                action()
        synchronize(bench.device)

    entry = Entry((bench.plan.key, key), run, setting=prepared)
    entry.excess = 0.0 if bench.plan.is_cpu else FIRST_ON_DEVICE_SECONDS
    if bench.plan.is_cpu:
        entry.read_pace, entry.calm = lambda: (read_pace(),), calms[bench.plan.threads]
    if leaves_threads(bench.plan):
        entry.rest, entry.rested = lambda: rest.wait_for(os.getpid()), True
    return entry


def _point_of(bench: Bench, entry: Entry) -> Point | None:
    samples, _ = entry.settled_samples()
    # The one execution that there was time for found memory and code as nobody had used them yet.
    was_cold = bench.plan.is_cpu and not entry.samples and entry.warm_seconds is None
    if entry.error is not None or not samples or was_cold:
        return None
    timing = Timing.from_samples([significant(sample / bench.executions, 4) for sample in samples])
    return Point(
        bench.constant, bench.plan, bench.parameters, bench.flops, bench.bytes, timing, reckoned=entry.is_reckoned
    )
