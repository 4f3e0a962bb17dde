"""Who asks every second gets new facts without a new process, and is never held up by a driver that hangs."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from probes.gpu.nvidia_kept import FULL_SECONDS, OFTEN_SECONDS, RETRY_SECONDS, KeptNvidia, merge_watched
from probes.gpu.nvml_process import NvidiaReading
from probes.gpu.nvml_watch import Watched
from probes.hardware import Accelerator, Outcome

CARD = Accelerator(
    "GPU-1", vendor="NVIDIA", name="a card", driver_version="580", temperature_celsius=40, memory_free_bytes=8
)
FULL = NvidiaReading(Outcome.OK, driver_version="580", accelerators=(CARD,))
HOT = {"GPU-1": {"temperature_celsius": 80.0, "memory_free_bytes": 1}}


class FakeWatch:
    """The watch at its boundary: what it told, and whether it runs."""

    def __init__(self) -> None:
        self.told = Watched()
        self.running = False

    def start(self) -> None:
        self.running = True

    def latest(self) -> Watched:
        return self.told

    def stop(self) -> None:
        self.running = False


class Driver:
    """Counts full readings; each ends when it is let."""

    def __init__(self) -> None:
        self.now = 100.0
        self.count = 0
        self.reading = FULL
        self.asked = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def read(self, deadline_seconds: float) -> NvidiaReading:
        self.asked.set()
        assert self.free.wait(60)
        self.count += 1
        return self.reading


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def watch() -> FakeWatch:
    return FakeWatch()


@pytest.fixture
def kept(driver: Driver, watch: FakeWatch) -> KeptNvidia:
    return KeptNvidia(watch, driver.read, lambda: driver.now)


def settle(kept: KeptNvidia) -> None:
    if kept._thread is not None:
        kept._thread.join(60)


def test_who_asks_now_and_then_leaves_nothing_running(kept: KeptNvidia, driver: Driver, watch: FakeWatch) -> None:
    for _ in range(3):
        kept.read(4.0)
        driver.now += OFTEN_SECONDS + 1
    assert (driver.count, watch.running) == (3, False)


def test_who_asks_every_second_gets_what_changes_without_another_process(
    kept: KeptNvidia, driver: Driver, watch: FakeWatch
) -> None:
    kept.read(4.0)
    watch.told = Watched(HOT, 0.2)
    for _ in range(20):
        driver.now += 1
        (card,) = kept.read(4.0).accelerators
        assert (card.temperature_celsius, card.memory_free_bytes, card.name) == (80.0, 1, "a card")
    assert (driver.count, watch.running) == (1, True)
    kept.stop()
    assert not watch.running


def test_until_the_watch_tells_something_the_driver_is_asked(kept: KeptNvidia, driver: Driver) -> None:
    kept.read(4.0)
    driver.now += 0.5
    kept.read(4.0)
    assert driver.count == 2


@pytest.mark.parametrize("cards", [{}, {**HOT, "GPU-2": {}}], ids=["a card disappears", "a card appears"])
def test_other_cards_are_read_in_full_once(
    kept: KeptNvidia, driver: Driver, watch: FakeWatch, cards: dict[str, dict[str, object]]
) -> None:
    kept.read(4.0)
    watch.told = Watched(cards, 0.1)
    for _ in range(5):
        driver.now += 1
        kept.read(4.0)
        settle(kept)
    assert driver.count == 2


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [(Outcome.OK, FULL_SECONDS), (Outcome.TIMEOUT, RETRY_SECONDS), (Outcome.ABSENT, RETRY_SECONDS)],
)
def test_nothing_is_kept_for_good(
    kept: KeptNvidia, driver: Driver, watch: FakeWatch, outcome: Outcome, seconds: float
) -> None:
    driver.reading = replace(FULL, outcome=outcome)
    kept.read(4.0)
    watch.told = Watched(HOT, 0.1)
    asked = 0
    while driver.count < 2:
        assert asked <= seconds + 2
        driver.now, asked = driver.now + 1, asked + 1
        kept.read(4.0)
        settle(kept)
    assert asked > seconds


def test_a_driver_that_hangs_holds_up_nobody(kept: KeptNvidia, driver: Driver, watch: FakeWatch) -> None:
    kept.read(4.0)
    driver.asked.clear()
    driver.free.clear()
    driver.now += 1
    watch.told = Watched({}, 0.1)
    kept.read(4.0)
    assert driver.asked.wait(60)
    watch.told = Watched(HOT, 30.0, "NVML does not answer")
    reading = kept.read(4.0)
    assert (reading.outcome, reading.reason) == (Outcome.TIMEOUT, "NVML does not answer")
    (card,) = reading.accelerators
    assert (card.name, card.temperature_celsius) == ("a card", None), "what is old is not now"
    driver.free.set()
    settle(kept)


def test_a_card_that_the_driver_lost_says_so() -> None:
    lost = {"GPU-1": {"usable": False, "why_not": "the card fell off the bus"}}
    (card,) = merge_watched(FULL, Watched(lost, 0.1)).accelerators
    assert (card.usable, card.why_not, card.temperature_celsius) == (False, "the card fell off the bus", None)


def test_a_reading_that_failed_is_not_made_better() -> None:
    failed = NvidiaReading(Outcome.FAILED, "it crashed")
    assert merge_watched(failed, Watched(HOT, 0.1)) == failed


def test_a_card_that_came_is_listed_once_it_has_a_name() -> None:
    told = Watched({**HOT, "GPU-2": {"temperature_celsius": 30.0}}, 0.1)
    assert [card.id for card in merge_watched(FULL, told).accelerators] == ["GPU-1"]
