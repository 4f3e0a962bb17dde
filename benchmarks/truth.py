"""Steps of one workload under several plans, each in a process of its own, in turns with the others.

What a step takes depends on the heap of its process. A process that runs several plans in turns has another heap than
a user's, who runs one: an LSTM in bf16 took half as long there. So every plan has a fresh process, as it has when
somebody trains, and a block of steps of one follows a block of the next, so that a neighbour's minute is in all of
them. Two processes that run one plan differ as well, by up to a third, as what they find fresh of the system depends on
all that they allocated before (docs/decisions/0014): so each plan has one process after another, each a few blocks, and
its time is the median of theirs. Plans on a device all run in one process: what computes there does not survive a fork.

A time is the calm machine's: of the blocks in which the cores were as quick as they get (probes.microtrain.quiet.pace),
for which a process is waited for up to three times as long. How often the cores were slow, and what it did, stands
beside;
of a process that met no calm block the time is reckoned from the others (probes.microtrain.quiet.calm). The page faults
of those steps are counted (proc_pid_stat(5)): pages that the system gave anew, which are a part of what a step takes.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.advisor.request import Request
from app.service import Crosspoint
from probes.measurement import Measurement, Timing
from probes.microtrain.failures import Failure
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.processes import fresh_processes
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.timing import MIN_SAMPLES
from probes.profile import METHOD, Profile
from probes.workload.description import Plan, Workload

# Of a turn, and of the untimed steps before it, one at least: whoever ran last left other things in the caches, and
# threads asleep (without, bf16 on two threads took 12 % longer). A long step is a lead-in of its own.
BLOCK_SECONDS, LEAD_IN_SECONDS, LONG_SECONDS = 0.06, 0.005, 0.5
# Memory that steps free and take settles over the first ones; then every plan has so many steps at least. One that is
# slow (bf16 without instructions for it took 30 times as long as fp32) has fewer, and others do not wait for it.
WARM_UP_STEPS, LEAST_STEPS, LEAST_ROUNDS = 3, 10, 5
LEAST_LONG_STEPS = 3
MOST_SECONDS = 60.0
PARTS = 3  # of a block, after each of which the cores' pace is read
BLOCKS_OF_PROCESS, LEAST_PROCESSES = 3, 2  # of a process before the next; of a plan, but where steps are long
MINFLT = 7  # its place in /proc/PID/stat behind the process's name
PATIENCE = 3.0  # times as long as asked for, until enough of a process's blocks were calm


_calms: defaultdict[int | None, Calm] = defaultdict(Calm)  # by threads; cores are no quicker for another model


def learn_paces(calibrations: Iterable[Profile]) -> None:
    """This machine's: how quick its cores get, or the first minute of a run would call calm whatever it meets."""
    for profile in calibrations:
        if profile.method == METHOD:
            for threads, seconds in profile.paces.items():
                _calms[threads].learn((seconds,))


@dataclass(frozen=True)
class Truth(Measurement):
    """faults: pages that a step found fresh, on average over the timed ones; None where nobody counts them."""

    faults: float | None = None


@dataclass
class _Runner:
    """One plan's process. seconds: of a step, as last seen. reason: why there is no more to be had of it. faults: in
    all its timed steps; None where nobody counts them."""

    run: PlanProcess
    calm: Calm
    seconds: float = 0.0
    samples: list[float] = field(default_factory=list)
    readings: list[float | None] = field(default_factory=list)  # of the pace, one a sample
    processes: list[int] = field(default_factory=list)  # of each sample, in which it was taken
    process: int = 0
    to_begin: float = 0.0  # what beginning in the last process took
    spent_before: float = 0.0  # by the processes before it
    steps: int = 0
    faults: int | None = 0
    spent: float = 0.0
    reason: str | None = None

    def begin(self) -> None:
        """Raises Failure."""
        begun = time.perf_counter()
        with self.run.watched():
            self.seconds = self.run(1)
        if self.seconds < LONG_SECONDS:
            with self.run.watched():
                self.run(WARM_UP_STEPS - 1)
        self.seconds = self.run(1)
        self.to_begin, self.spent_before = time.perf_counter() - begun, self.spent

    def is_done(self, seconds: float, spent: float) -> bool:
        """Steps and turns enough, of a calm machine unless that has taken too long; where steps are long, so many
        seconds for it alone. spent: by all."""
        if self.seconds >= LONG_SECONDS and self.spent >= seconds:
            return self.steps >= LEAST_LONG_STEPS
        if self.steps < LEAST_STEPS or len(self.samples) < LEAST_ROUNDS or not self._has_processes():
            return False
        return self.calm.count(self.readings) >= LEAST_ROUNDS or spent >= PATIENCE * seconds

    def _wants_another_process(self) -> bool:
        if self.seconds >= LONG_SECONDS or self.processes.count(self.process) < BLOCKS_OF_PROCESS:
            return False
        return self.spent - self.spent_before >= self.to_begin or self.process + 1 < LEAST_PROCESSES

    def _has_processes(self) -> bool:
        return self.seconds >= LONG_SECONDS or len(set(self.processes)) >= LEAST_PROCESSES

    def turn(self) -> None:
        """A block of steps. Raises Failure."""
        if self._wants_another_process():
            self.run.drop()
            self.process += 1
            self.begin()
        steps = max(1, int(BLOCK_SECONDS / self.seconds))
        if self.seconds < LONG_SECONDS:
            self.run(max(1, int(LEAD_IN_SECONDS / self.seconds)))
        self.run.take_readings()  # threads of whoever ran last still waited for work, on a core of their own
        parts = [part for place in range(PARTS) if (part := (steps + place) // PARTS)]
        before = count_faults(self.run.pid)
        self.seconds = sum(self.run(part) for part in parts) / steps
        after = count_faults(self.run.pid)
        self.samples.append(self.seconds)
        self.readings.append(self.calm.learn(self.run.take_readings()))
        self.processes.append(self.process)
        self.steps += steps
        if before is None or after is None or self.faults is None:
            self.faults = None
        else:
            self.faults += after - before
        self.spent += self.seconds * steps


async def measure_plans(
    crosspoint: Crosspoint, workload: Workload, plans: Sequence[Plan], seconds: float
) -> list[Measurement]:
    """Of each plan that runs; at the workload's batch size, for so long, or longer where steps are. crosspoint: keeps
    what was measured on a device. Raises LabError, RuntimeError as `measure_in_turns`."""
    on_cpu = [plan for plan in plans if plan.is_cpu]
    others = tuple(plan for plan in plans if not plan.is_cpu)
    found = await asyncio.to_thread(measure_in_turns, workload, on_cpu, seconds)
    if others:
        sizes = (workload.batch_size,)
        found += await crosspoint.measure(Request(workload), seconds=seconds, plans=others, batch_sizes=sizes)
    return found


def measure_in_turns(workload: Workload, plans: Sequence[Plan], seconds: float) -> list[Measurement]:
    """Of each plan that runs; at the workload's batch size, for so long, or longer where steps are.

    Raises RuntimeError where no process can be forked."""
    if not all(plan.is_cpu for plan in plans) or not fresh_processes.prepare():
        raise RuntimeError("A process a plan needs Linux, a temporary folder with a short path, and plans on a CPU.")
    runners = [_Runner(PlanProcess(workload, plan, workload.batch_size, None), _calms[plan.threads]) for plan in plans]
    try:
        for runner in runners:  # one after the other: nothing else computes while a step is timed
            _try(runner, _Runner.begin)
        begun = time.perf_counter()
        while playing := _who_plays(runners, time.perf_counter() - begun, seconds):
            for runner in playing:
                _try(runner, _Runner.turn)
    finally:
        for runner in runners:
            runner.run.drop()
    return [_describe(runner, workload) for runner in runners]


def _try(runner: _Runner, action: Callable[[_Runner], object]) -> None:
    if runner.reason is None:
        try:
            action(runner)
        except Failure as failure:
            runner.reason = f"{runner.run.plan.label}: {failure}"


def _who_plays(runners: Sequence[_Runner], spent: float, seconds: float) -> list[_Runner]:
    """All that have not had as long as all together should have, until none is left that wants more."""
    running = [runner for runner in runners if runner.reason is None]
    if spent >= MOST_SECONDS or (spent >= seconds and all(runner.is_done(seconds, spent) for runner in running)):
        return []
    return [runner for runner in running if runner.spent < seconds or not runner.is_done(seconds, spent)]


def _describe(runner: _Runner, workload: Workload) -> Measurement:
    plan = runner.run.plan
    if runner.reason is not None or not runner.samples:
        reason = runner.reason or "no step was timed"
        return Measurement(plan, workload.batch_size, workload.data, "failed", reason)
    slowdown = runner.calm.slowdown(runner.samples, runner.readings)
    each = runner.calm.by_process(runner.samples, runner.readings, runner.processes)
    if len(each) < MIN_SAMPLES:
        each = runner.calm.choose(runner.samples, runner.readings)
    return Truth(
        plan,
        workload.batch_size,
        workload.data,
        "ok",
        step=Timing.from_samples(each),
        steps=runner.steps,
        steady=True,
        slow_share=None if slowdown is None else slowdown.share,
        slowdown=None if slowdown is None else slowdown.factor,
        memory=runner.run.memory(),
        faults=None if runner.faults is None else runner.faults / runner.steps,
    )


def count_faults(pid: int | None) -> int | None:
    """Pages that the process and its threads found fresh so far; None where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[MINFLT])
    except (OSError, ValueError, IndexError):
        return None
