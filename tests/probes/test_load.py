import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from probes.hardware import Load
from probes.load import (
    AllowedTimes,
    CpuTimes,
    LoadMeter,
    compare_times,
    explain_load,
    measure_load,
    parse_allowed,
    parse_load_average,
    parse_pressure,
    parse_times,
    read_load,
)
from probes.reading import Root
from tests.probes.machines import write_machine

STAT = "cpu  100 20 30 800 40 5 5 0 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"


def test_busy_is_all_but_idle_waiting_and_stolen_time() -> None:
    assert parse_times(STAT, 1.0) == CpuTimes(busy=160, steal=0, total=1000, at=1.0)


def test_a_kernel_from_before_steal_was_counted_has_none() -> None:
    assert parse_times("cpu  10 0 10 80\n", 0.0) == CpuTimes(20, 0, 100, 0.0)


def test_fractions_are_of_the_time_between_two_readings() -> None:
    before, after = CpuTimes(100, 10, 1000, 5.0), CpuTimes(150, 30, 1200, 7.0)
    assert compare_times(before, after) == Load(steal_fraction=0.1, busy_fraction=0.25, interval_seconds=2.0)


@pytest.mark.parametrize("after", [CpuTimes(100, 10, 1000, 7.0), CpuTimes(90, 10, 1100, 7.0), CpuTimes(0, 0, 10, 7.0)])
def test_a_counter_that_stands_or_goes_backwards_gives_no_fraction(after: CpuTimes) -> None:
    assert compare_times(CpuTimes(100, 10, 1000, 5.0), after) == Load()


def test_what_this_process_used_is_told_apart_from_what_others_did() -> None:
    before, after = CpuTimes(100, 10, 1000, 5.0, own=40), CpuTimes(150, 30, 1200, 7.0, own=60)
    load = compare_times(before, after)
    assert (load.busy_fraction, load.own_busy_fraction) == (0.25, 0.1)
    beyond = compare_times(before, CpuTimes(150, 30, 1200, 7.0, own=400))  # ticks are coarse
    assert beyond.own_busy_fraction == beyond.busy_fraction


def test_the_first_reading_has_no_fractions_and_one_too_soon_keeps_the_last() -> None:
    meter = LoadMeter()
    assert meter.update(CpuTimes(0, 0, 0, 1.0)) == Load()
    second = meter.update(CpuTimes(50, 0, 100, 2.0))
    assert second.busy_fraction == 0.5
    assert meter.update(CpuTimes(150, 0, 200, 2.1)) == second
    assert meter.update(CpuTimes(150, 0, 200, 3.0)).busy_fraction == 1.0
    assert meter.update(None).busy_fraction == 1.0


def test_others_in_our_quota_are_what_its_cgroup_used_beyond_our_own() -> None:
    second = os.sysconf("SC_CLK_TCK")
    before = CpuTimes(100, 10, 1000, 5.0, own=40, quota_seconds=7.0)
    after = CpuTimes(150, 30, 1200, 7.0, own=40 + second, quota_seconds=11.0)
    assert compare_times(before, after).quota_others_cores == pytest.approx(1.5)
    assert compare_times(before, replace(after, own=40 + 5 * second)).quota_others_cores == 0.0  # ticks are coarse
    assert compare_times(before, replace(after, quota_seconds=1.0)).quota_others_cores is None  # another cgroup
    assert compare_times(replace(before, quota_seconds=None), after).quota_others_cores is None


FOUR = "cpu  100 0 0 300 0 0 0 0\n" + "".join(f"cpu{cpu} {25 + cpu} 0 0 75 0 0 0 {cpu}\n" for cpu in range(4))


@pytest.mark.parametrize(
    ("cpus", "told"),
    [
        (0b1010, AllowedTimes(0b1010, 58, 208)),  # CPUs 1 and 3: 26 + 28 busy, 1 + 3 stolen
        (0b1111, None),
        (0b10010, None),  # numbered otherwise in this container
        (None, None),
    ],
)
def test_the_cpus_that_affinity_leaves_are_added_up(cpus: int | None, told: AllowedTimes | None) -> None:
    assert parse_allowed(FOUR, cpus) == told


def test_others_on_the_cpus_that_affinity_leaves_are_what_was_taken_there_beyond_our_own() -> None:
    before = CpuTimes(0, 0, 0, 5.0, own=40, allowed=AllowedTimes(0b11, 100, 1000))
    after = CpuTimes(150, 0, 800, 7.0, own=90, allowed=AllowedTimes(0b11, 250, 1200))
    assert compare_times(before, after).allowed_others_cores == pytest.approx(1.0)
    pinned = replace(after, allowed=AllowedTimes(0b101, 250, 1200))
    for other in (pinned, replace(after, own=None), replace(after, allowed=AllowedTimes(0b11, 90, 1200))):
        assert compare_times(before, other).allowed_others_cores is None


def test_this_machine_has_a_load_average_now() -> None:
    load = read_load(Root())
    assert load.load_average is not None
    assert load.busy_fraction is not None or explain_load(Root(), load)


def test_whoever_cannot_wait_for_a_second_survey_measures() -> None:
    load = measure_load(Root(), 0.05)
    assert load.interval_seconds is not None
    assert load.busy_fraction is None or 0 <= load.busy_fraction <= 1


def test_our_own_work_is_told_apart_where_psutil_counts_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows, where the answers after each `quick` took its measuring for others' load."""
    monkeypatch.setattr(Root, "is_linux", property(lambda _: False))
    before, is_over = time.process_time(), threading.Event()
    work = threading.Thread(target=lambda: all(not is_over.is_set() for _ in itertools.count()))
    work.start()
    load = measure_load(Root(), 0.5)
    own = time.process_time() - before
    is_over.set()
    work.join()
    assert load.own_busy_fraction is not None
    assert load.interval_seconds is not None
    cores = load.own_busy_fraction * (os.cpu_count() or 1)
    assert cores * load.interval_seconds < own + 0.1  # what ran before the first reading and after the last is more
    assert cores > 0


def test_a_captured_machine_was_read_once(tmp_path: Path) -> None:
    files = {
        "proc/stat": STAT,
        "proc/loadavg": "3.16 1.00 0.50 1/99 7\n",
        "proc/pressure/cpu": "some avg10=1.23 avg60=0 avg300=0 total=9\nfull avg10=9.0\n",
    }
    root = Root(write_machine(tmp_path, files))
    load = read_load(root)
    assert load == Load(load_average=3.16, cpu_pressure_percent=1.23)
    assert "captured" in (explain_load(root, load) or "")


@pytest.mark.parametrize("text", ["", "nan", "-1 2 3", "1e9", "inf 1", "x" * 99, "٣.٥", "1.2.3", "1.x"])
def test_rubbish_is_no_load(text: str) -> None:
    assert parse_load_average(text) is None
    assert parse_pressure(f"some avg10={text} avg60=0") is None


@pytest.mark.parametrize("text", ["", "cpu", "cpu  1 2 3", "cpu  1 2 x 4", "cpu  -1 2 3 4", "intr 1 2 3 4"])
def test_rubbish_is_no_cpu_time(text: str) -> None:
    assert parse_times(text, 0.0) is None


def test_pressure_is_a_percentage() -> None:
    assert parse_pressure("some avg10=250.0 avg60=0") is None


def test_a_survey_s_load_is_that_of_the_last_seconds() -> None:
    """A burst of one second is a tenth of ten, and then forgotten; where nobody asked for longer, since the last."""
    meter = LoadMeter(10.0)
    assert meter.update(CpuTimes(0, 0, 0, 0.0)) == Load()
    for second in range(1, 21):
        load = meter.update(CpuTimes(100 if second >= 5 else 0, 0, 100 * second, float(second)))
        expected = 1 / min(second, 10) if 5 <= second <= 14 else 0.0
        assert load.busy_fraction == pytest.approx(expected), second
    assert load.interval_seconds == 10.0
    assert meter.update(CpuTimes(200, 0, 2200, 99.0)).interval_seconds == 79.0


def test_what_our_own_processes_computed_is_never_taken_for_others_load_when_they_are_gone() -> None:
    """One that was killed with nobody waiting for it leaves nothing behind that counts it."""
    meter = LoadMeter(10.0)
    meter.update(CpuTimes(0, 0, 0, 0.0, own=500))
    meter.update(CpuTimes(1000, 0, 2000, 10.0, own=1500))
    for second, own in ((11, 520), (12, 540), (13, 560)):  # a thousand ticks went with it; 20 a second go on
        load = meter.update(CpuTimes(1000 + 20 * (second - 10), 0, 200 * second, float(second), own=own))
        assert load.own_busy_fraction == pytest.approx(load.busy_fraction, abs=0.02), second
