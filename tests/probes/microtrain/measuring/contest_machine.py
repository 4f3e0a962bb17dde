"""A machine whose clock only work moves, for contests that nobody has to wait for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from probes.microtrain.measuring.contest import Contest
from probes.microtrain.measuring.entry import Entry


class Machine:
    """A clock that only work moves. `pace` slows everything that runs from then on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace: Callable[[float], float] = lambda now: 1.0
        self.log: list[object] = []
        self.noise = random.Random(7)

    def clock(self) -> float:
        return self.now

    def entry(self, name: str, seconds: float, *, first: float = 0.0, group: object = "all") -> Entry:
        waiting = [first]

        def run(executions: int) -> None:
            self.log.append(name)
            noise = self.noise.uniform(0.99, 1.01)
            self.now += (executions * seconds * noise + sum(waiting)) * self.pace(self.now)
            waiting.clear()

        return Entry(name, run, group)


def run_contest(machine: Machine, entries: Sequence[Entry], seconds: float = 10.0) -> Contest:
    contest = Contest(entries, seconds, machine.clock)
    contest.run()
    return contest


def read_by(machine: Machine, entry: Entry) -> Entry:
    """As a process that reads its cores' pace after each run."""
    entry.read_pace = lambda: (0.001 * machine.pace(machine.now),)
    return entry
