"""Who gets no more time in a contest: what cannot win, and what is slow when the others have enough."""

from __future__ import annotations

from statistics import median

import pytest

from probes.microtrain.measuring.contest import (
    FEW_SAMPLES,
    HOPELESS,
    RETIRING_PROCESSES,
    RETIRING_SAMPLES,
    SLOW,
    Contest,
)
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.quiet.calm import MOST_SLOWED
from tests.probes.microtrain.measuring.contest_machine import Machine, read_by, run_contest

CALM, BESIDE_A_NEIGHBOUR = 0.001, 0.0016  # readings of the pace


def test_what_cannot_win_gets_no_more_time_than_its_first_samples() -> None:
    machine = Machine()
    fast, slow = machine.entry("fast", 0.01), machine.entry("slow", 0.01 * HOPELESS * 1.2)
    run_contest(machine, [fast, slow])
    assert slow.retired
    assert len(slow.samples) == RETIRING_SAMPLES
    assert len(fast.samples) > 10


def test_what_cannot_win_goes_through_some_processes_first() -> None:
    """One that is half as fast in the heap that it drew first is told by the others, too."""
    machine = Machine()
    fast, slow = machine.entry("fast", 0.01), machine.entry("slow", 0.02)
    for entry in (fast, slow):
        entry.renew = lambda: None
    run_contest(machine, [fast, slow], 30.0)
    assert slow.retired
    assert slow.process + 1 == RETIRING_PROCESSES
    assert len(slow.samples) < 2 * RETIRING_SAMPLES


def test_a_near_rival_is_measured_to_the_end() -> None:
    machine = Machine()
    rivals = [machine.entry("a", 0.01), machine.entry("b", 0.011)]
    run_contest(machine, rivals)
    assert all(len(entry.samples) > 10 for entry in rivals)


def test_groups_and_entries_without_one_are_not_compared() -> None:
    machine = Machine()
    entries = [machine.entry("a", 0.01, group=1), machine.entry("b", 0.1, group=2), machine.entry("c", 0.2, group=None)]
    run_contest(machine, entries)
    assert not any(entry.retired for entry in entries)


def slowed(machine: Machine, entry: Entry, times: float, until: float) -> Entry:
    """As threads of which a neighbour has a core so long, which their process hears: an entry's own pace."""
    run = entry.run

    def beside(executions: int) -> float:
        begun = machine.now
        run(executions)
        machine.now = begun + (machine.now - begun) * (times if begun < until else 1.0)
        return machine.now - begun

    entry.run = beside
    entry.read_pace = lambda: (BESIDE_A_NEIGHBOUR if machine.now < until else CALM,)
    entry.calm.learn((CALM,))  # as its profile says
    return entry


def on_calm_cores(machine: Machine, entry: Entry) -> Entry:
    entry.read_pace = lambda: (CALM,)
    entry.calm.learn((CALM,))
    return entry


def test_what_met_slow_cores_alone_is_not_given_up_and_wins_when_they_are_calm() -> None:
    """Two threads on two cores that the host runs as one, for the first half of the time."""
    machine = Machine()
    one = on_calm_cores(machine, machine.entry("one thread", 0.01))
    two = slowed(machine, machine.entry("two threads", 0.008), times=1.7, until=5.0)
    run_contest(machine, [one, two])
    assert min(two.samples[:RETIRING_SAMPLES]) > HOPELESS * median(one.samples)
    assert not two.retired
    assert median(two.calm_samples) == pytest.approx(0.008, rel=0.02)


def test_nothing_is_given_up_for_what_was_reckoned_back() -> None:
    """How much steps suffered on slow cores is not known: here hardly, and so they are reckoned back too far."""
    machine = Machine()
    calm = on_calm_cores(machine, machine.entry("calm", 0.0108))
    other = slowed(machine, machine.entry("beside a neighbour", 0.0097), times=1.03, until=100.0)
    run_contest(machine, [calm, other])
    assert min(calm.samples) > HOPELESS * median(other.calm_samples)
    assert not calm.retired


def test_what_takes_longer_than_slow_cores_explain_is_given_up() -> None:
    machine = Machine()
    fast = on_calm_cores(machine, machine.entry("fast", 0.01))
    slow = slowed(machine, machine.entry("slow", 0.01 * HOPELESS * MOST_SLOWED), times=1.1, until=100.0)
    run_contest(machine, [fast, slow])
    assert slow.retired
    assert len(slow.samples) == RETIRING_SAMPLES


@pytest.mark.parametrize(("enough", "samples"), [(5.0, FEW_SAMPLES), (None, 20)])
def test_when_it_is_enough_only_those_with_few_samples_go_on(enough: float | None, samples: int) -> None:
    machine = Machine()
    machine.pace = lambda now: 1.0 + machine.noise.uniform(0, 0.5)  # never precise
    entry = machine.entry("slow", 1.0)
    Contest([entry], 60.0, machine.clock, enough=enough).run()
    assert len(entry.samples) == samples if enough else len(entry.samples) > samples


def test_samples_of_slow_cores_are_not_enough() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.5 if now > 2.5 else 1.0
    entry = read_by(machine, machine.entry("slow", 0.5))
    Contest([entry], 60.0, machine.clock, enough=5.0).run()
    assert machine.now > 40.0  # it waits for a calm machine as long as there is time


@pytest.mark.parametrize(("times", "goes_on"), [(SLOW * 0.8, True), (SLOW * 1.2, False)])
def test_when_it_is_enough_what_is_slow_has_no_more_of_the_time(times: float, *, goes_on: bool) -> None:
    """It is bf16 on a processor without instructions for it: what is left is worth more at other batches."""
    machine = Machine()
    machine.pace = lambda now: 1.0 + machine.noise.uniform(0, 0.05)  # never precise
    fast, slow = machine.entry("fast", 0.3), machine.entry("slow", 0.3 * times)
    Contest([fast, slow], 60.0, machine.clock, enough=5.0).run()
    assert len(fast.samples) == FEW_SAMPLES
    assert slow.samples
    assert (len(slow.samples) >= FEW_SAMPLES) == goes_on


def test_what_was_held_up_far_longer_than_neighbours_do_is_not_given_up_either() -> None:
    """Two threads, of which a program of this machine has a core for the first half of the time: they take forty times
    as long, and so does what is read of the cores, but for the reading after the block in which it leaves."""
    machine = Machine()
    one = on_calm_cores(machine, machine.entry("one thread", 0.01))
    two = slowed(machine, machine.entry("two threads", 0.008), times=40.0, until=5.0)
    two.read_pace = lambda: (40 * CALM if machine.now < 5.0 else CALM,)
    run_contest(machine, [one, two])
    assert not two.retired
    assert median(two.calm_samples) == pytest.approx(0.008, rel=0.02)


def test_a_lone_calm_sample_gives_nothing_up() -> None:
    """Its cores may have turned calm as it ended."""
    machine = Machine()
    entry = on_calm_cores(machine, machine.entry("two threads", 0.008))
    entry.samples, entry.readings = [0.32] * 9, [40 * CALM] * 8 + [CALM]
    assert entry.least_seconds == pytest.approx(0.008)
    entry.samples, entry.readings = [*entry.samples, 0.31], [*entry.readings, CALM]
    assert entry.least_seconds == pytest.approx(0.31)
