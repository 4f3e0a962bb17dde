"""How a contest divides its time, on a clock of its own."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median

import pytest

from probes.microtrain.measuring.contest import FEW_SAMPLES, SAMPLES_OF_PROCESS, Contest, OutOfTime
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.quiet.calm import SUFFERED
from tests.probes.microtrain.measuring.contest_machine import Machine, read_by, run_contest


def test_entries_are_timed_by_what_they_take() -> None:
    machine = Machine()
    entries = [machine.entry("a", 0.001), machine.entry("b", 0.0012)]
    run_contest(machine, entries)
    for entry, seconds in zip(entries, (0.001, 0.0012), strict=True):
        samples, steady = entry.settled_samples()
        assert steady
        assert samples[0] == pytest.approx(seconds, rel=0.02)


def test_what_failed_before_it_began_is_not_begun() -> None:
    machine = Machine()
    entries = [machine.entry("a", 0.001), machine.entry("b", 0.001)]
    entries[0].error = RuntimeError("It would not compile.")
    run_contest(machine, entries)
    assert set(machine.log) == {"b"}
    assert str(entries[0].error) == "It would not compile."


def test_a_machine_that_grows_slower_favours_none() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.0 + now / 10
    entries = [machine.entry(name, 0.01) for name in "abcd"]
    run_contest(machine, entries)
    middles = [sorted(entry.samples)[len(entry.samples) // 2] for entry in entries]
    assert max(middles) < 1.06 * min(middles)
    assert not any(entry.settled_samples()[1] for entry in entries)


def test_what_keeps_its_own_time_is_timed_by_that() -> None:
    machine = Machine()
    entry = machine.entry("a", 0.01)
    run = entry.run

    def far(executions: int) -> float:
        before = machine.now
        run(executions)
        machine.now += 0.003  # the way there and back
        return machine.now - before - 0.003

    entry.run = far
    run_contest(machine, [entry])
    assert all(sample == pytest.approx(0.01, rel=0.02) for sample in entry.samples)


@pytest.mark.parametrize(("rested", "seconds", "lead_in"), [(True, 0.19, 1), (True, 0.6, 0), (False, 0.19, 0)])
def test_an_entry_that_rested_runs_once_untimed_before_a_short_block(
    *, rested: bool, seconds: float, lead_in: int
) -> None:
    machine = Machine()
    machine.pace = lambda now: 1.0 + machine.noise.uniform(0, 0.5)  # never precise
    entry = machine.entry("a", seconds)
    entry.rested = rested
    run_contest(machine, [entry])
    warm_up = 2
    assert len(machine.log) - warm_up == entry.executions + lead_in * len(entry.samples)


def test_however_little_time_there_is_a_block_and_what_comes_before_it_are_as_long_as_asked() -> None:
    """Steps in blocks of a few milliseconds, right after another process's, take longer than they do in a training."""
    machine = Machine()
    entries = [machine.entry(name, 0.001) for name in "abcd"]
    runs: list[int] = []
    for entry in entries:
        entry.run = noting(runs, entry.run)
    contest = Contest(entries, 0.5, machine.clock, least_block_seconds=0.02, lead_in_seconds=0.005)
    contest.warm_up(entries)
    runs.clear()
    contest._play(lambda: False)
    blocks = sum(len(entry.samples) for entry in entries)
    assert blocks > len(entries)
    assert sum(entry.executions for entry in entries) >= 20 * 0.9 * blocks
    assert sum(runs) - sum(entry.executions for entry in entries) >= 5 * 0.9 * blocks


def noting(runs: list[int], run: Callable[[int], float | None]) -> Callable[[int], float | None]:
    def noted(executions: int) -> float | None:
        runs.append(executions)
        return run(executions)

    return noted


def test_what_is_told_is_the_calm_machine_s() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.5 if int(now) % 2 else 1.0  # a neighbour, every other second
    entry = read_by(machine, machine.entry("a", 0.01))
    run_contest(machine, [entry])
    samples, _ = entry.settled_samples()
    assert median(samples) == pytest.approx(0.01, rel=0.02)
    assert max(samples) < max(entry.samples)
    slowdown = entry.slowdown
    assert slowdown is not None
    assert 0.3 < slowdown.share < 0.7
    assert slowdown.factor == pytest.approx(1.5, rel=0.03)


def test_what_a_machine_takes_that_is_never_calm_is_reckoned() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.5
    entry = read_by(machine, machine.entry("a", 0.2))
    entry.calm.learn((0.001,))  # as it was once
    run_contest(machine, [entry], 6.0)
    reckoned = [sample / 1.5**SUFFERED for sample in entry.samples]
    assert entry.calm_samples == pytest.approx(reckoned)
    slowdown = entry.slowdown
    assert slowdown is not None
    assert slowdown.share == 1.0
    assert slowdown.factor is None


def test_where_nobody_reads_the_pace_nothing_is_said_of_it() -> None:
    machine = Machine()
    entry = machine.entry("a", 0.01)
    run_contest(machine, [entry])
    assert entry.slowdown is None
    assert entry.calm_samples == entry.samples


def test_the_order_of_turns_changes() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.0 + machine.noise.uniform(0, 0.5)  # never precise
    run_contest(machine, [machine.entry(name, 0.5) for name in "abc"], 100.0)
    rounds = [tuple(machine.log[index : index + 3]) for index in range(6, len(machine.log) - 3, 3)]
    assert len(set(rounds)) > 3


def test_the_deadline_is_kept() -> None:
    machine = Machine()
    run_contest(machine, [machine.entry(str(index), 0.003 * (index + 1)) for index in range(9)], 3.0)
    assert machine.now < 3.3


def test_the_deadline_is_kept_when_the_machine_grows_twenty_times_slower() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.0 if now < 1.0 else 20.0
    run_contest(machine, [machine.entry(name, 0.001) for name in "abcd"], 5.0)
    assert machine.now < 6.0


def test_it_ends_early_when_more_would_change_nothing() -> None:
    machine = Machine()
    run_contest(machine, [machine.entry("a", 0.001)], 1000.0)
    assert machine.now < 50.0


def test_a_slow_first_execution_is_in_no_sample() -> None:
    machine = Machine()
    entry = machine.entry("a", 0.01, first=3.0)
    run_contest(machine, [entry])
    assert entry.first_seconds == pytest.approx(3.01, rel=0.02)
    assert max(entry.samples) < 0.011


@pytest.mark.parametrize(("excess", "warm"), [(0.0, False), (2.0, True)])
def test_after_a_first_execution_that_may_take_longer_a_second_one_tells_what_others_take(
    excess: float, warm: bool
) -> None:
    """A device's first step loads its libraries: it took most of the time there was, and was told as the step's."""
    machine = Machine()
    entry = machine.entry("a", 0.01, first=0.9)
    entry.excess = excess
    run_contest(machine, [entry], 1.0)
    samples, _ = entry.settled_samples()
    assert (entry.warm_seconds is not None) == warm
    assert median(samples) == pytest.approx(0.01 if warm else 0.91, rel=0.03)


def test_one_execution_longer_than_the_time_is_still_made() -> None:
    machine = Machine()
    first, second = machine.entry("a", 60.0), machine.entry("b", 60.0)
    run_contest(machine, [first, second])
    assert first.settled_samples() == ([pytest.approx(60.0, rel=0.02)], False)
    assert isinstance(second.error, OutOfTime)
    assert machine.now < 62.0


def test_what_is_expected_to_take_too_long_is_not_begun() -> None:
    machine = Machine()
    quick, long = machine.entry("quick", 0.01), machine.entry("long", 1000.0)
    contest = Contest([quick, long], 10.0, machine.clock, expect=lambda entry: 500.0 if entry is long else None)
    contest.run()
    assert "expected to take 8 min 20 s, with " in str(long.error)
    assert machine.now < 10.5


def test_an_entry_that_fails_costs_only_itself() -> None:
    machine = Machine()
    dropped: list[Entry] = []

    def fail(executions: int) -> None:
        raise MemoryError

    failing, good = Entry("failing", fail, "all"), machine.entry("good", 0.01)
    Contest([failing, good], 5.0, machine.clock, on_error=dropped.append).run()
    assert isinstance(failing.error, MemoryError)
    assert failing.error.__traceback__ is None
    assert dropped == [failing]
    assert good.settled_samples()[1]


@pytest.mark.parametrize("kept", [FEW_SAMPLES, 0])
def test_what_fails_late_keeps_the_samples_that_it_has(kept: int) -> None:
    """Another's memory took the room that it had for as long: a step that ran can run. So can one that had its second
    and no sample yet."""
    machine = Machine()
    dropped: list[Entry] = []
    failing, good = machine.entry("failing", 0.01), machine.entry("good", 0.01)
    run = failing.run

    def fail_late(executions: int) -> float | None:
        if failing.warm_seconds is not None and len(failing.samples) == kept:
            raise MemoryError
        return run(executions)

    failing.run = fail_late
    Contest([failing, good], 5.0, machine.clock, on_error=dropped.append).run()
    assert failing.error is None
    assert not failing.live
    assert failing.settled_samples()[0]
    assert len(failing.samples) == len(failing.readings) == len(failing.processes) == kept
    assert dropped == [failing]
    assert len(good.samples) > FEW_SAMPLES


def test_long_executions_do_not_eat_the_time_of_short_ones() -> None:
    machine = Machine()
    short, long = machine.entry("short", 0.001, group="a"), machine.entry("long", 1.0, group="b")
    run_contest(machine, [short, long], 30.0)
    assert len(short.samples) >= 10
    assert len(long.samples) >= 3


def test_every_entry_gets_its_turns() -> None:
    machine = Machine()
    machine.pace = lambda now: 1.0 + machine.noise.uniform(0, 0.5)
    run_contest(machine, [machine.entry(name, 0.02, group=name) for name in "abcdef"], 20.0)
    turns = Counter(machine.log)
    assert max(turns.values()) < 2 * min(turns.values())


def test_what_is_expected_to_be_slow_begins_when_the_others_have_samples_enough() -> None:
    machine = Machine()
    fast, slow = machine.entry("fast", 0.1), machine.entry("slow", 2.0)
    slow.expected, slow.last = 2.0, True
    run_contest(machine, [slow, fast], 10.0)
    assert machine.log.index("slow") > FEW_SAMPLES
    assert len(fast.samples) >= FEW_SAMPLES
    assert slow.estimate == pytest.approx(2.0, rel=0.02)


def test_what_is_expected_to_be_slow_is_not_begun_where_the_others_leave_no_time() -> None:
    machine = Machine()
    fast, slow = machine.entry("fast", 0.5), machine.entry("slow", 9.0)
    slow.expected, slow.last = 9.0, True
    contest = Contest([slow, fast], 10.0, machine.clock, expect=lambda entry: entry.expected)
    contest.run()
    assert "slow" not in machine.log
    assert isinstance(slow.error, OutOfTime)
    assert len(fast.samples) >= FEW_SAMPLES
    assert machine.now < 10.5


def test_an_entry_goes_on_in_one_process_after_another() -> None:
    machine, entries = Machine(), []
    for name in "ab":
        entry = machine.entry(name, 0.01)
        heaps = itertools.cycle((1.0, 1.4, 1.0, 1.2, 1.1))
        entry.run, entry.renew = in_processes(machine, entry.run, heaps)
        entries.append(entry)
    run_contest(machine, entries)
    for entry in entries:
        assert entry.process >= 5
        counts = Counter(entry.processes)
        assert min(counts[process] for process in range(entry.process)) >= SAMPLES_OF_PROCESS
        figures, steady = entry.settled_samples()
        assert steady
        assert len(figures) == len(counts)  # one of each
        assert median(figures) == pytest.approx(0.011, rel=0.02)  # of what the heaps make of it


def test_no_process_is_begun_that_would_not_pay() -> None:
    machine = Machine()
    entry = machine.entry("a", 0.01)
    entry.run, entry.renew = in_processes(machine, entry.run, itertools.repeat(1.0), to_begin=4.0)
    contest = Contest([entry], 10.0, machine.clock)
    contest.warm_up([entry])
    entry.to_begin_seconds = 4.0  # as the first one took
    contest._play(lambda: False)
    assert entry.process == 0
    assert len(entry.samples) > SAMPLES_OF_PROCESS


def test_what_had_begun_before_the_contest_took_as_long_to_begin_as_others() -> None:
    machine = Machine()
    entries = [machine.entry("begun ahead", 0.01), machine.entry("not begun", 0.01, first=4.0)]
    for entry in entries:
        entry.run, entry.renew = in_processes(machine, entry.run, itertools.repeat(1.0), to_begin=4.0)
    entries[0].begun_ahead_seconds = 4.0
    run_contest(machine, entries)
    assert [entry.process for entry in entries] == [0, 0]
    assert all(len(entry.samples) > SAMPLES_OF_PROCESS for entry in entries)


def test_what_was_read_after_a_lead_in_says_nothing_of_the_sample() -> None:
    machine = Machine()
    entry = machine.entry("a", 0.3)  # each block is one execution, after one that wakes its threads
    readings: list[float] = []
    run, after = entry.run, itertools.cycle((2.0, 1.0))

    def read(executions: int) -> None:
        run(executions)
        readings.append(next(after))

    def take() -> list[float]:
        taken = list(readings)
        readings.clear()
        return taken

    entry.run, entry.read_pace, entry.rested = read, take, True
    entry.first_seconds = entry.warm_seconds = 0.3
    Contest([entry], 10.0, machine.clock)._play(lambda: False)
    assert len(entry.readings) > 3
    assert set(entry.readings) == {1.0}


def test_what_cannot_begin_again_keeps_what_it_has() -> None:
    machine = Machine()
    entries = [machine.entry("a", 0.01), machine.entry("b", 0.01)]

    def fail() -> None:
        raise MemoryError

    entries[0].renew = fail
    run_contest(machine, entries)
    assert entries[0].error is None
    assert entries[0].settled_samples()[0]
    assert len(entries[1].samples) > len(entries[0].samples)


def in_processes(
    machine: Machine, run: Callable[[int], float | None], heaps: Iterator[float], to_begin: float = 0.05
) -> tuple[Callable[[int], float | None], Callable[[], None]]:
    """A run whose every process takes so many times as long, and what begins the next."""
    now = [next(heaps)]

    def of_process(executions: int) -> float:
        before = machine.now
        run(executions)
        seconds = (machine.now - before) * now[0]
        machine.now = before + seconds
        return seconds

    def renew() -> None:
        machine.now += to_begin
        now[0] = next(heaps)

    return of_process, renew
