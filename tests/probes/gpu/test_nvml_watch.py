"""The watch as it really runs: a real child that goes on, a fake library on its path whose machine changes."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probes.gpu import nvml_watch
from probes.gpu.nvml_watch import NvmlWatch, Watched, parse_changes

FAKE = str(Path(__file__).parent / "fake_nvml")
PLENTY = 60.0


class Scene:
    """A machine whose state a test may change while it is watched."""

    def __init__(self, folder: Path) -> None:
        self.state, self.pids = folder / "state", folder / "pids"
        self.now("")
        environment = {**os.environ, "PYTHONPATH": FAKE, "FAKE_NVML": "two"}
        paths = {"FAKE_NVML_STATE": str(self.state), "FAKE_NVML_PID": str(self.pids)}
        self.watch = NvmlWatch(0.2, {**environment, **paths})

    def now(self, state: str) -> None:
        fresh = self.state.with_suffix(".fresh")
        fresh.write_text(state)
        fresh.replace(self.state)

    def started(self) -> list[int]:
        return [int(line) for line in self.pids.read_text().split()]

    def until(self, is_so: Callable[[Watched], bool]) -> Watched:
        ends = time.monotonic() + PLENTY
        while not is_so(found := self.watch.latest()):
            assert time.monotonic() < ends, found
            time.sleep(0.01)
        return found


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(nvml_watch, "_FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(nvml_watch, "_CHECK_SECONDS", 0.05)
    found = Scene(tmp_path)
    yield found
    found.watch.stop()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_both_cards_are_told_with_what_changes(scene: Scene) -> None:
    assert scene.watch.latest() == Watched()
    scene.watch.start()
    scene.watch.start()
    told = scene.until(lambda watched: len(watched.cards) == 2)
    card = told.cards["GPU-00000000"]
    assert (card["utilization_percent"], card["temperature_celsius"], card["power_watts"]) == (7, 41, 30.1)
    assert (card["memory_free_bytes"], card["graphics_clock_hz"]) == (5 << 30, 210_000_000)
    assert card["throttle_codes"] == ("gpu_idle", "sw_power_cap")
    assert card["process_count"] == 2
    assert told.age_seconds is not None
    assert told.reason is None
    scene.now("utilization=93")
    scene.until(lambda watched: watched.cards["GPU-00000001"].get("utilization_percent") == 93)
    assert len(scene.started()) == 1, "one process that initialises NVML once"


def test_stopping_ends_the_process_and_starting_again_goes_on(scene: Scene) -> None:
    scene.watch.start()
    scene.until(lambda watched: bool(watched.cards))
    scene.watch.stop()
    [pid] = scene.started()
    scene.until(lambda _: not is_running(pid))
    scene.watch.start()
    scene.until(lambda _: len(scene.started()) == 2)


def test_stopping_waits_for_one_that_is_just_beginning(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    made = threading.Event()

    class SlowToStart(threading.Thread):
        def start(self) -> None:
            made.set()
            time.sleep(0.2)
            super().start()

    beginning = threading.Thread(target=scene.watch.start)
    monkeypatch.setattr(threading, "Thread", SlowToStart)
    beginning.start()
    assert made.wait(PLENTY)
    scene.watch.stop()  # what has not been started cannot be joined
    beginning.join()
    assert scene.watch._keeper is not None
    assert not scene.watch._keeper.is_alive()


def test_a_card_that_goes_and_one_that_comes_are_seen(scene: Scene) -> None:
    scene.watch.start()
    scene.until(lambda watched: len(watched.cards) == 2)
    scene.now("count=1")
    scene.until(lambda watched: set(watched.cards) == {"GPU-00000000"})
    scene.now("count=3")
    scene.until(lambda watched: len(watched.cards) == 3)
    assert len(set(scene.started())) == 1, "NVML starts again in the same process"


def test_a_lost_card_stays_with_the_reason_and_the_other_goes_on(scene: Scene) -> None:
    scene.watch.start()
    scene.until(lambda watched: len(watched.cards) == 2)
    scene.now("lost=1 utilization=50")
    told = scene.until(lambda watched: watched.cards["GPU-00000001"].get("usable") is False)
    assert "lost" in told.cards["GPU-00000001"]["why_not"]
    told = scene.until(lambda watched: watched.cards["GPU-00000000"].get("utilization_percent") == 50)
    assert "usable" not in told.cards["GPU-00000000"]
    scene.now("utilization=51")
    scene.until(lambda watched: watched.cards["GPU-00000001"].get("utilization_percent") == 51)


def test_after_a_crash_another_process_goes_on_and_the_last_facts_stay(scene: Scene) -> None:
    scene.watch.start()
    scene.until(lambda watched: bool(watched.cards))
    scene.now("crash")
    told = scene.until(lambda watched: watched.reason is not None)
    assert "SIGSEGV" in (told.reason or "")
    assert len(told.cards) == 2
    scene.now("")
    scene.until(lambda watched: watched.reason is None)
    assert len(set(scene.started())) >= 2


def test_a_process_that_somebody_ends_is_followed_by_another(scene: Scene) -> None:
    scene.watch.start()
    scene.until(lambda watched: bool(watched.cards))
    os.kill(scene.started()[0], signal.SIGTERM)
    scene.until(lambda _: len(scene.started()) == 2)


@pytest.mark.parametrize("call", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses"])
def test_a_card_that_hangs_costs_only_itself(tmp_path: Path, call: str) -> None:
    scene = Scene(tmp_path)
    scene.watch = NvmlWatch(0.2, {**scene.watch._environment, "FAKE_NVML_FAULT": f"hang {call} 1"})
    scene.watch.start()
    told = scene.until(lambda watched: set(watched.cards.get("GPU-00000001", {})) == {"why_not"})
    assert "utilization_percent" in told.cards["GPU-00000000"]
    scene.watch.stop()
    assert not is_running(scene.started()[0]), "a hanging process ends too"


def test_a_hang_at_the_start_does_not_hold_anybody_up(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.watch = NvmlWatch(0.05, {**scene.watch._environment, "FAKE_NVML": "stubborn"})
    scene.watch.start()
    scene.until(lambda _: scene.pids.exists() and bool(scene.started()))
    assert scene.watch.latest() == Watched()
    scene.watch.stop()
    ends = time.monotonic() + PLENTY
    while is_running(scene.started()[0]):
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_the_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    child = nvml_watch.start_child(0.05, scene.watch._environment)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    child.stdin.close()  # what the kernel does for a parent that is gone
    assert child.wait(PLENTY) is not None
    child.stdout.close()


def test_without_a_driver_nothing_is_told_and_nothing_runs(tmp_path: Path) -> None:
    if nvml_watch.is_driver_present({}):
        pytest.skip("this machine has an NVIDIA driver")
    watch = NvmlWatch(0.05, {})
    watch.start()
    assert watch.latest() == Watched()
    assert watch._child is None
    watch.stop()


def test_only_what_is_known_to_change_is_taken() -> None:
    told = parse_changes({"throttle_codes": ["sw_power_cap"], "throttle_reasons": None, "rubbish": 1})
    assert told == {"throttle_codes": ("sw_power_cap",), "throttle_reasons": None}
