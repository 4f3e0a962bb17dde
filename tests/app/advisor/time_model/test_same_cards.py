"""Calibrations whose device names stood for other kinds of card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Request, recommend
from app.advisor.time_model.pooled import devices_that_count, pool
from app.advisor.time_model.same_cards import of_same_cards
from probes.machine_facts import DeviceFacts, MachineFacts
from probes.profile import Profile
from tests.app.advisor.build import ONE, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile
from tests.app.advisor.time_model.test_pooled import in_state

GIB = 1 << 30
LARGE = DeviceFacts("cuda:0", "NVIDIA GeForce RTX 4090", 24 * GIB, "8.9")
SMALL = DeviceFacts("cuda:0", "NVIDIA T400", 2 * GIB, "7.5")


def on(*cards: DeviceFacts, times: float = 1.0) -> Profile:
    """A calibration of the CPU and a card, in which everything took so many times as long."""
    calibration = in_state(times, a_profile((ONE, GPU)))
    context = {"cuda:0": 2 if SMALL in cards else 1}
    start = {"cuda:0": 2.0 if SMALL in cards else 1.0}
    facts = MachineFacts(accelerators=cards)
    return replace(calibration, hardware=facts, context_bytes=context, start_seconds=start)


def seconds_of(profile: Profile, device: str) -> list[float]:
    return [row.seconds.median for row in (*profile.points, *profile.networks) if row.plan.device == device]


@pytest.mark.parametrize("others", [1, 2, 3])
def test_another_kind_of_card_s_times_are_left_out_however_many_there_are(others: int) -> None:
    """The newest is of the card that is there now; the CPU's times count from all."""
    newest = on(LARGE)
    pooled = pool([newest, *[on(SMALL, times=1.07)] * others])
    assert seconds_of(pooled, "cuda:0") == pytest.approx(seconds_of(newest, "cuda:0"))
    assert (pooled.context_bytes, pooled.start_seconds) == ({"cuda:0": 1}, {"cuda:0": 1.0})
    times = 1.07 ** (others / (others + 1))
    assert seconds_of(pooled, "cpu")[0] == pytest.approx(times * seconds_of(newest, "cpu")[0], rel=1e-3)  # rounded


def test_a_newest_one_that_only_tells_which_card_is_there_rules_as_well() -> None:
    on_cpu = replace(a_profile((ONE,)), hardware=MachineFacts(accelerators=(LARGE,)), context_bytes=None)
    calibrations = [on_cpu, on(SMALL, times=1.05), on(LARGE)]
    pooled = pool(calibrations)
    assert seconds_of(pooled, "cuda:0") == pytest.approx(seconds_of(on(LARGE), "cuda:0"))
    assert pooled.context_bytes == {"cuda:0": 1}
    assert devices_that_count(calibrations[1:]) == {"cpu": True, "cuda:0": True}


def test_cards_that_are_one_kind_as_far_as_both_tell_are_pooled() -> None:
    told_less = replace(LARGE, name=None, memory_total_bytes=24 * GIB - 10_000_000)
    for other in (on(LARGE), on(told_less), on(), replace(on(LARGE), hardware=None)):
        assert of_same_cards([on(LARGE), other])[1] is other


def test_a_newest_one_that_tells_less_of_a_card_does_not_make_two_kinds_one() -> None:
    """By what it tells it may be either; the next one tells which."""
    told_less = on(DeviceFacts("cuda:0"))
    for calibrations in ([told_less, on(LARGE), on(SMALL)], [told_less, on(SMALL), on(LARGE)]):
        assert [bool(seconds_of(each, "cuda:0")) for each in of_same_cards(calibrations)] == [True, True, False]


def test_a_likeness_to_another_kind_of_card_is_left_out() -> None:
    second = replace(SMALL, device="cuda:1")
    alike = replace(on(LARGE, replace(LARGE, device="cuda:1")), like={"cuda:1": "cuda:0"})
    (_, older) = of_same_cards([on(LARGE, second), alike])
    assert older.like == {}
    assert seconds_of(older, "cuda:0")


@pytest.mark.parametrize("hidden", [{"accelerators": ()}, {"accelerators": (DeviceFacts("cuda:0"),)}])
def test_a_card_that_the_newest_calibration_was_not_shown_keeps_its_facts(hidden: dict[str, Any]) -> None:
    """By them it is judged elsewhere whether a model fits. What the newest tells of the machine itself counts."""
    shown = replace(on(LARGE), machine="a CPU, a card", hardware=MachineFacts(memory_bytes=1, accelerators=(LARGE,)))
    newest = replace(a_profile((ONE,)), hardware=MachineFacts(memory_bytes=2, **hidden))
    pooled = pool([newest, shown])
    assert seconds_of(pooled, "cuda:0")
    assert pooled.hardware == MachineFacts(memory_bytes=2, accelerators=(LARGE,))
    assert (pooled.machine == shown.machine) is (hidden["accelerators"] == ())


def test_a_card_s_facts_are_also_those_of_a_calibration_that_does_not_count() -> None:
    """Torch could not say which cards it can use when the newest began, and the one before it was disturbed."""
    disturbed = replace(on(LARGE), noise={"contention": 0.5})
    assert pool([on(), disturbed]).hardware == MachineFacts(accelerators=(LARGE,))


def test_facts_of_a_card_that_nobody_calibrated_are_not_taken_from_older_ones() -> None:
    only_told = replace(a_profile((ONE,)), hardware=MachineFacts(accelerators=(LARGE,)))
    assert pool([replace(a_profile((ONE,)), hardware=MachineFacts()), only_told]).hardware == MachineFacts()


def test_whether_a_model_fits_the_card_is_told_elsewhere_by_its_memory() -> None:
    on_cpu = replace(a_profile((ONE,), "elsewhere"), hardware=MachineFacts(memory_bytes=8 * GIB))
    pooled = pool([on_cpu, replace(on(LARGE), fingerprint="elsewhere")])
    found = recommend(a_survey(), pooled, None, [], Request(a_workload(10_000), profile=pooled.name))
    (option,) = [option for option in found.options if option.plan == GPU]
    assert option.fits is False
    assert option.memory.available_bytes == 24 * GIB
