"""Measures real steps of one workload under several plans and batch sizes: the job of kind `measure`."""

from __future__ import annotations

import math
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from probes.measurement import Measurement, Overheads, Timing
from probes.microtrain.building.least_memory import LeastMemory, estimate_least_memory, why_not_built, why_too_large
from probes.microtrain.failures import Failure
from probes.microtrain.measuring.compiled_bench import bench_for, changes_of
from probes.microtrain.measuring.contest import SLOW, Contest, OutOfTime
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.measuring.forking import Forks, Wanted
from probes.microtrain.measuring.lost_device import explain_not_reached, lost_to
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.measured_rows import MeasuredRows, median_spread
from probes.microtrain.measuring.overhead_meter import OverheadMeter
from probes.microtrain.measuring.plan_order import foretold_seconds, in_turn
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.measuring.workbench import StepRun
from probes.microtrain.overdue import OverdueGuard
from probes.microtrain.plans import why_impossible, why_never
from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.footprint import limited_to
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.noise import Moment, noise_between, read_moment
from probes.microtrain.quiet.pace import read_pace
from probes.microtrain.quiet.resting import Rest, leaves_threads
from probes.microtrain.step import flushing_denormals
from probes.microtrain.timing import significant
from probes.workload.description import PLAN_CHANGES, InvalidModel, Plan

Document = dict[str, Any]
OnProgress = Callable[[float, str], None]

LEAST_SHARE = 1 / 3  # of the time is for steps, also where building the model took nearly all of it
OVERHEADS_SHARE = 0.12  # of the time, kept for measuring a step's parts after the contest
REPORT_SECONDS = 0.25
# A step that has begun cannot be stopped. Where something has been measured the answer goes out soon after the time
# is up, without the step that is still running; where nothing has, the first step is worth waiting for, and building
# the model, which a busy machine may take half a minute for whatever time was asked for.
OVERDUE_SHARE, OVERDUE_SECONDS = 0.1, 2.5
FIRST_STEP_SECONDS = 30.0
DENORMALS_SHARE = 0.2  # of what is left after the contest; a step that takes longer to look at waits for the overheads
DENORMALS_SLOWDOWN = 10.0  # a step whose results are looked at for denormals, against one whose are not
# A process touches its memory for the first time in its first step, which takes up to three times as long as others.
FIRST_STEP_EXCESS = 2.0
# On a device a first step loads libraries, and finds out which kernels are quick, whatever the steps after it take
# (0.42 s were seen on an H100, of a ResNet-18 that steps in some 20 ms): a second one follows all the same.
FIRST_STEP_OF_DEVICE_SECONDS = 2.0
# Of a block of steps, at least, and of those before it that are not timed. In blocks of 6 ms after one step, which is
# what a second was divided into, steps took 1.03 to 1.19 times as long as in a long measurement, on two threads up to
# twice (docs/decisions/0005): threads have to be woken, and caches filled.
LEAST_BLOCK_SECONDS, LEAD_IN_SECONDS = 0.02, 0.005
LONG_STEP_SECONDS = 0.1  # longer than issuing any but the deepest networks; such a step grows with its batch


def measure_workload(job: MeasureJob, report: OnProgress, finish: Callable[[Document], object]) -> Document:
    """`{"measurements": […], "noise": {…}, "to_begin_seconds": …, "layout_seconds": …, "paces": {…}}`, within the job's
    seconds.

    finish: sends a result and ends the process; called from another thread when one step outlasts all the time, and
    where a step has ended a device's work.
    Raises InvalidModel; what only one plan dies of is in its measurement.
    """
    session = MeasureSession(job, report)
    with OverdueGuard(session.is_overdue, lambda: finish(session.result())):
        session.run()
    result = session.result()
    if session.has_lost_a_device():
        finish(result)  # the next job would be told this one's error
    return result


class MeasureSession:
    """One measurement from its first moment to its result; the result can be had at any time."""

    def __init__(self, job: MeasureJob, report: OnProgress) -> None:
        self._job = job
        self._report = report
        self._begun = time.perf_counter()
        self._before: Moment = read_moment()
        self._bench = bench_for(job.workload, job.plans)
        self._refused: list[Measurement] = []
        self._runs: dict[int, StepRun | PlanProcess] = {}
        self._rest = Rest()
        self._overheads: dict[int, Overheads] = {}
        self._denormals: dict[tuple[str, int], float] = {}  # by precision and batch size
        self._calm: defaultdict[int | None, Calm] = defaultdict(Calm)  # by threads
        self._calm.update({threads: Calm(pace) for threads, pace in job.paces.items()})
        self._expected = foretold_seconds(job)
        self._contest = Contest(
            [], self._begun, least_block_seconds=LEAST_BLOCK_SECONDS, lead_in_seconds=LEAD_IN_SECONDS
        )
        self._end = self._begun + job.seconds
        self._reported = 0.0
        self._forks: Forks | None = None

    def run(self) -> None:
        self._say("building the model", force=True)
        self._forks = self._fork()
        if self._forks is None:
            fresh_processes.end()  # it may be importing torch still, and takes memory
        # A model for one device alone is moved there: on the host it would lie beside the forked plans' own.
        here = [plan for plan in self._job.plans if self._forks is None or not self._is_forkable(plan)]
        self._bench.devices = frozenset(plan.device for plan in here)
        me = weakref.proxy(self)  # it holds the contest: in a cycle its models would stay on their devices
        self._contest.expect = lambda entry: me._expect(entry)
        self._contest.on_turn = lambda: me._say(f"round {me._contest.rounds + 1}")
        self._contest.on_error = lambda entry: me._let_go(entry)
        try:
            self._contest.entries = self._make_entries()
            self._run_entries()
        finally:
            for run in self._runs.values():
                if isinstance(run, PlanProcess) and run.is_alone:
                    run.drop()
            if self._forks is not None:
                self._forks.end()

    def _run_entries(self) -> None:
        if not self._contest.entries:
            return
        flush = "flush_denormal" in changes_of(self._job.plans)
        with self._memory_limit(), flushing_denormals(flush):
            if any(isinstance(run, StepRun) for run in self._runs.values()):
                self._bench.build()
            self._start_devices()
            self._compile()
            self._end = max(self._end, time.perf_counter() + LEAST_SHARE * self._job.seconds)
            self._contest.deadline = self._end - self._job.seconds * OVERHEADS_SHARE
            if self._job.enough_seconds is not None:
                self._contest.enough = self._begun + self._job.enough_seconds * (1 - OVERHEADS_SHARE)
            self._contest.run()
            self._look_for_denormals(DENORMALS_SHARE)
            self._measure_overheads()
            self._look_for_denormals(1.0)

    def is_overdue(self, now: float) -> bool:
        """A step runs that has outlasted the time and what may come on top."""
        late = now - self._end
        if any(entry.first_seconds is not None for entry in self._contest.entries):
            return late > OVERDUE_SECONDS + OVERDUE_SHARE * self._job.seconds
        return late > FIRST_STEP_SECONDS

    def has_lost_a_device(self) -> bool:
        """On which nothing computes any more in this process."""
        devices = {run.plan.device for run in self._runs.values()}
        return any(self._bench.has_replica(device) and lost_to(device) is not None for device in devices)

    def result(self) -> Document:
        told = MeasuredRows(self._job, self._begun, self._contest, self._runs, self._overheads, self._denormals)
        rows = told.all(self._refused, None if self._forks is None else self._forks.first_step_of)
        threads = max((plan.threads or 1 for plan in self._job.plans), default=1)
        after = read_moment()
        if self._forks is not None:
            after = replace(after, queue=None)  # this one only waited
        noise = noise_between(self._before, after, threads, median_spread(rows))
        taken = None if noise.taken_cores is None else significant(noise.taken_cores)
        documents = [{**row.to_json(), "others_cores": taken} for row in rows]
        return {
            "measurements": documents,
            "noise": noise.to_json(),
            "to_begin_seconds": significant(self._to_begin_seconds(), 3),
            "layout_seconds": significant(self._bench.layout_seconds, 3),
            "paces": told.paces(),
        }

    def _to_begin_seconds(self) -> float:
        """That a next job of this model would take before its first step: the model is built anew for each."""
        runs = list(self._runs.values())
        forked = [run.process.seconds_to_start for run in runs if isinstance(run, PlanProcess)]
        return self._bench.layout_seconds + max(forked, default=0.0)

    def _fork(self) -> Forks | None:
        """Where plans on the CPU can be forked: what forks them was started with this process. Raises Failure
        `invalid-model`."""
        plans = [plan for plan in in_turn(self._job) if self._is_forkable(plan)]
        if not plans or not fresh_processes.is_prepared():
            return None
        job = self._job
        wanted = Wanted(job.workload, plans, job.batch_sizes, job.memory_limit_bytes, self._end)
        self._forks = Forks(wanted)  # which is asked, while it begins, whether a step runs
        try:
            self._forks.begin(apart=job.apart)
        except fresh_processes.EndedEarly:
            return None
        return self._forks

    def _is_forkable(self, plan: Plan) -> bool:
        fine = plan.is_cpu and plan.threads is not None and why_impossible(plan, self._job.cores) is None
        return fine and not changes_of(self._job.plans) and not plan.changes

    def _make_entries(self) -> list[Entry]:
        """The batch asked for first, and what is likely to be fast first: the time may not do for all."""
        entries = []
        for size in self._job.batch_sizes:
            too_large = self._why_too_large(size)
            for plan in in_turn(self._job):
                impossible = why_impossible(plan, self._job.cores) or self._why_apart(plan)
                if impossible is not None:
                    self._refuse(plan, size, "unsupported", impossible)
                elif too_large is not None and plan.is_cpu:
                    self._refuse(plan, size, "out-of-memory", too_large)
                else:
                    entries.append(self._make_entry(plan, size))
        return entries

    def _why_apart(self, plan: Plan) -> str | None:
        """All plans share one model, which lies in memory in one way and is compiled or not."""
        if plan.changes == changes_of(self._job.plans):
            return None
        names = ", ".join(PLAN_CHANGES[name] for name in plan.changes) or "none of another's changes"
        return f"Plans with {names} are measured in a job of their own: all plans of one job share the model."

    def _compile(self) -> None:
        """Not on the time for measuring: who asks for a compiled plan knows that this takes long, and may end it."""
        begun = time.perf_counter()
        end, self._end = self._end, math.inf
        for entry in self._contest.entries:
            run = self._runs[id(entry)]
            if isinstance(run, StepRun) and run.plan.compiled and entry.live:
                self._say("compiling the model", force=True)
                try:
                    run.compile()
                except Exception as error:  # noqa: BLE001 - whatever a plan dies of is its own answer
                    entry.error = error.with_traceback(None)
                    self._let_go(entry)
        self._end = end + time.perf_counter() - begun

    def _let_go(self, entry: Entry) -> None:
        """Of what failed. Where its device was lost with it, the others there have failed at nothing."""
        run = self._runs[id(entry)]
        run.drop()
        device = run.plan.device
        lost = lost_to(device) if self._bench.has_replica(device) else None
        if lost is None:
            return
        if entry.error is not None:
            entry.error = lost  # a library that was called later may have said another thing
        for other in self._contest.entries:
            if other is not entry and other.live and self._runs[id(other)].plan.device == device:
                other.give_up(OutOfTime(explain_not_reached(device)))

    def _start_devices(self) -> None:
        """Their contexts and the weights' way there, before any step; as of building the model, the steps have
        LEAST_SHARE of the time however long it took."""
        for device in dict.fromkeys(run.plan.device for run in self._runs.values()):
            if device != "cpu":
                with suppress(Exception):  # the plans that need it fail, and say why
                    self._bench.replica(device)

    def _make_entry(self, plan: Plan, size: int) -> Entry:
        if self._forks is not None and self._is_forkable(plan):
            forked = self._forks.run_of(plan, size)
            entry = Entry((plan.key, size), forked, size, watch=forked.watched, rested=forked.is_alone)
            entry.read_pace = forked.take_readings
            entry.renew = forked.renew if forked.is_alone else None
            entry.begun_ahead_seconds = forked.ahead_seconds
            self._runs[id(entry)] = forked
        else:
            run = StepRun(self._bench, plan, size)
            entry = Entry((plan.key, size), run, size, run.setting, run.watched)
            self._runs[id(entry)] = run
            if plan.is_cpu:
                entry.read_pace = lambda: (read_pace(),)
            else:
                entry.excess = FIRST_STEP_OF_DEVICE_SECONDS
        entry.calm = self._calm[plan.threads]
        if leaves_threads(plan):
            rest, waited_for = self._rest, self._runs[id(entry)]
            entry.rest, entry.rested = lambda: rest.wait_for(waited_for.pid), True
        entry.expected = self._expected.get(plan.key)
        entry.last = entry.expected is not None and entry.expected > SLOW * min(self._expected.values())
        return entry

    def _refuse(self, plan: Plan, size: int, outcome: Any, reason: str) -> None:
        momentary = outcome == "unsupported" and why_never(plan) is None
        self._refused.append(Measurement(plan, size, self._job.workload.data, outcome, reason, momentary=momentary))

    def _why_too_large(self, size: int) -> str | None:
        """Said before anything is allocated. Raises Failure `out-of-memory` where the model cannot even be built, as it
        is on the host for whatever device: no plan's step would tell anything."""
        job, limit = self._job, self._job.memory_limit_bytes
        if limit is None:
            return None
        least = self._least_memory(size) if self._forks is None else self._forks.least_memory(size)
        if least is None:
            return None
        if least.weights_bytes > limit and not all(plan.is_cpu for plan in job.plans):
            raise Failure("out-of-memory", why_not_built(least, limit))
        least = replace(least, gradients_bytes=job.gradient_bytes, optimizer_bytes=job.optimizer_bytes)
        return why_too_large(least, limit) if least.total_bytes > limit else None

    def _least_memory(self, size: int) -> LeastMemory | None:
        """None where it is not known: the model fails, or fits, for real, at this size alone."""
        try:
            return estimate_least_memory(self._job.workload, size)
        except InvalidModel:
            if self._job.workload.model.kind != "python":  # which may ask for numbers while it is built
                raise
            return None
        except Exception:  # noqa: BLE001 - a user's own Python may raise anything
            return None

    def _memory_limit(self) -> Any:
        """Not with CUDA, whose driver maps far more than it uses."""
        on_cpu = all(plan.is_cpu for plan in self._job.plans)
        return limited_to(self._job.memory_limit_bytes) if on_cpu else nullcontext()

    def _expect(self, entry: Entry) -> float | None:
        """Judged by the plan of this device that ran at the nearest batch, slower by as many threads as are missing.

        A short step says nothing of a larger batch: it may all be issuing. Of what is left for last it is known that it
        takes longer.
        """
        if entry.last:
            return entry.expected
        mine = self._runs[id(entry)]
        guesses = []
        for other in self._contest.entries:
            theirs = self._runs[id(other)]
            if other.estimate is None or theirs.plan.device != mine.plan.device:
                continue
            threads = max(1.0, (theirs.plan.threads or 1) / (mine.plan.threads or 1))
            ratio = mine.batch_size / theirs.batch_size
            growth = ratio if ratio < 1 or other.estimate > LONG_STEP_SECONDS else 1.0
            start = theirs.seconds_to_start if isinstance(theirs, PlanProcess) else 0.0
            step = other.estimate if other.warm_seconds is not None else other.estimate / FIRST_STEP_EXCESS
            guesses.append((abs(math.log(ratio)), step * threads * growth + start))
        return min(guesses)[1] if guesses else None

    def _measure_overheads(self) -> None:
        meter = OverheadMeter(self._bench, self._end)
        told_of: list[tuple[Entry, float]] = []  # with their steps' seconds
        for entry in self._contest.entries:
            samples, _ = entry.settled_samples()
            compiled = self._runs[id(entry)].plan.compiled  # its operations are not torch's
            if entry.error is None and samples and not compiled:
                self._say("measuring overheads")
                run, median = self._runs[id(entry)], Timing.from_samples(samples).median
                # A process may have ended meanwhile, and copies may not fit; the times stand.
                with suppress(Exception):
                    told = meter.measure(run, median) if isinstance(run, StepRun) else run.overheads(median, self._end)
                    if told is not None:
                        self._overheads[id(entry)] = told
                        told_of.append((entry, median))
        for entry, median in told_of:
            run = self._runs[id(entry)]
            if isinstance(run, StepRun) and not run.plan.is_cpu:
                told = self._overheads[id(entry)]
                with suppress(Exception):
                    self._overheads[id(entry)] = replace(told, device_busy=meter.measure_busy(run, median))

    def _look_for_denormals(self, share: float) -> None:
        """Once a precision on the CPU, at the workload's own batch, where that share of the time left does for it."""
        for entry in self._contest.entries:
            run, seconds = self._runs[id(entry)], entry.estimate
            key = (run.plan.precision, run.batch_size)
            asked = run.batch_size == self._job.workload.batch_size and key not in self._denormals
            if entry.error is not None or seconds is None or not asked:
                continue
            if run.plan.is_cpu and not run.plan.compiled and self._affords(DENORMALS_SLOWDOWN * seconds / share):
                # what cannot be looked at (it takes copies, too) is not known; the times stand
                with suppress(Exception):
                    self._denormals[key] = significant(run.denormal_share())

    def _affords(self, seconds: float) -> bool:
        return time.perf_counter() + seconds < self._end

    def _say(self, message: str, *, force: bool = False) -> None:
        now = time.perf_counter()
        if force or now - self._reported >= REPORT_SECONDS:
            self._reported = now
            self._report((now - self._begun) / self._job.seconds, message)
