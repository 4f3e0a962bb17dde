"""Steps of one workload under several plans, each in a process of its own, in turns with the others.

What a step takes depends on the heap of its process. A process that runs several plans in turns has another heap than
a user's, who runs one: an LSTM in bf16 took half as long there. So every plan has a fresh process, as it has when
somebody trains, and a block of steps of one follows a block of the next, so that a neighbour's minute is in all of
them. Plans on a CPU only: what computes on a device does not survive a fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from probes.measurement import Measurement, MemoryPeak, Timing
from probes.microtrain import fresh_processes
from probes.workload.description import Plan, Workload

# Of a turn, and of the untimed steps before it, one at least: whoever ran last left other things in the caches, and
# threads asleep (without, bf16 on two threads took 12 % longer). A long step is a lead-in of its own.
BLOCK_SECONDS, LEAD_IN_SECONDS, LONG_SECONDS = 0.06, 0.005, 0.5
# Memory that steps free and take settles over the first ones; then every plan has so many steps at least.
WARM_UP_STEPS, LEAST_STEPS, LEAST_ROUNDS = 3, 10, 5
MOST_SECONDS = 60.0
WAIT_SECONDS = 300.0  # for one answer


class Lost(Exception):
    """A plan's process ended, or did not answer."""


@dataclass
class _Runner:
    """One plan's process. seconds: of a step, as last seen."""

    plan: Plan
    pipe: Connection
    process: Any
    seconds: float = 0.0
    samples: list[float] = field(default_factory=list)
    steps: int = 0
    process_bytes: int | None = None

    def hear(self) -> float:
        """What the process has to say. Raises Lost."""
        try:
            if not self.pipe.poll(WAIT_SECONDS):
                raise Lost(f"{self.plan.label} did not answer within {WAIT_SECONDS:.0f} s")
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise Lost(f"{self.plan.label}: its process ended") from error
        if isinstance(answer, str):
            raise Lost(f"{self.plan.label}: {answer}")
        return float(answer)

    def turn(self) -> None:
        """A block of steps. Raises Lost."""
        steps = max(1, int(BLOCK_SECONDS / self.seconds))
        lead_in = max(1, int(LEAD_IN_SECONDS / self.seconds)) if self.seconds < LONG_SECONDS else 0
        with contextlib.suppress(OSError):  # that it is gone is heard
            self.pipe.send((steps, lead_in))
        self.seconds = self.hear()
        self.samples.append(self.seconds)
        self.steps += steps

    def begin(self) -> None:
        """Raises Lost."""
        self.process_bytes = int(self.hear()) or None
        self.seconds = self.hear()

    def end(self) -> None:
        self.pipe.close()
        self.process.join(WAIT_SECONDS)


def measure_in_turns(workload: Workload, plans: Sequence[Plan], seconds: float) -> list[Measurement]:
    """Of each plan that runs; at the workload's batch size, for so long, or longer where steps are.

    Raises RuntimeError where no process can be forked."""
    if not all(plan.is_cpu for plan in plans) or not fresh_processes.prepare():
        raise RuntimeError("A process a plan needs Linux, a temporary folder with a short path, and plans on a CPU.")
    runners: list[_Runner] = []
    failed: dict[int, str] = {}
    for plan in plans:  # one after the other: nothing else computes while a step is timed
        runners.append(_start(workload, plan))
        _each(runners[-1:], failed, _Runner.begin)
    begun, rounds = time.perf_counter(), 0
    while not _is_enough(runners, failed, rounds, time.perf_counter() - begun, seconds):
        _each(runners, failed, _Runner.turn)
        rounds += 1
    for runner in runners:
        runner.end()
    return [_describe(runner, workload, failed) for runner in runners]


def _start(workload: Workload, plan: Plan) -> _Runner:
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(there, workload.to_json(), plan.to_json()), daemon=True)
    process.start()
    there.close()
    return _Runner(plan, here, process)


def _each(runners: Sequence[_Runner], failed: dict[int, str], action: Callable[[_Runner], object]) -> None:
    for runner in runners:
        if id(runner) not in failed:
            try:
                action(runner)
            except Lost as error:
                failed[id(runner)] = str(error)


def _is_enough(
    runners: Sequence[_Runner], failed: Mapping[int, str], rounds: int, spent: float, seconds: float
) -> bool:
    running = [runner for runner in runners if id(runner) not in failed]
    if not running or spent >= MOST_SECONDS:
        return True
    enough = all(runner.steps >= LEAST_STEPS for runner in running) and rounds >= LEAST_ROUNDS
    return enough and spent >= seconds


def _describe(runner: _Runner, workload: Workload, failed: Mapping[int, str]) -> Measurement:
    reason = failed.get(id(runner))
    if reason is not None or not runner.samples:
        return Measurement(runner.plan, workload.batch_size, workload.data, "failed", reason or "no step was timed")
    return Measurement(
        runner.plan,
        workload.batch_size,
        workload.data,
        "ok",
        step=Timing.from_samples(runner.samples),
        steps=runner.steps,
        steady=True,
        memory=MemoryPeak(process_bytes=runner.process_bytes),
    )


def _run(pipe: Connection, workload: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """In a plan's process: says its peak of memory and what a step takes, then what each block's steps do, until nobody
    asks any more. What it dies of is said instead."""
    from probes.microtrain.workbench import StepRun, Workbench

    of, under = Workload.from_json(dict(workload)), Plan.from_json(dict(plan))
    try:
        run = StepRun(Workbench(of, frozenset([under.device])), under, of.batch_size)
        with run.setting(), contextlib.suppress(EOFError, OSError):  # nobody asks any more
            with run.watched():
                run(WARM_UP_STEPS)
            pipe.send(run.memory().process_bytes or 0)
            pipe.send(_seconds(run, 1))
            while True:
                steps, lead_in = pipe.recv()
                run(lead_in)
                pipe.send(_seconds(run, steps))
    except Exception as error:  # noqa: BLE001 - a plan's own answer
        pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason was given'}")


def _seconds(run: Callable[[int], object], steps: int) -> float:
    begun = time.perf_counter()
    run(steps)
    return (time.perf_counter() - begun) / steps
