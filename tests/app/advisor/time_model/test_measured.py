import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.crowding import crowd_of
from app.advisor.time_model.intervals import deviation
from app.advisor.time_model.measured import measured_times, with_borrowed
from probes.hardware import Load
from probes.measurement import Measurement
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, a_measurement, a_survey


def test_between_measured_batches_the_time_lies_on_a_line() -> None:
    times = measured_times([a_measurement(ONE, 4, 0.5), a_measurement(ONE, 16, 1.7)], ONE, "pageable")
    assert times is not None
    probed = times.probed(8)
    assert probed is not None
    assert probed.median == pytest.approx(0.9)
    assert times.measured(8) is None


def test_between_measured_batches_a_prediction_tells_how_steps_bend() -> None:
    """What it errs by at either batch, and by any factor, is taken off it; the further from both, the less is known."""
    times = measured_times([a_measurement(ONE, 4, 1.0), a_measurement(ONE, 1024, 4.0)], ONE, "pageable")
    assert times is not None
    rising = {4: 0.3, 8: 0.3, 64: 0.3, 512: 0.6, 1024: 1.2}
    line, told = ({size: times.probed(size, foretold) for size in rising} for foretold in (None, rising.get))
    assert line[64] is not None
    assert told[64] is not None
    share = math.log(64 / 4) / math.log(1024 / 4)
    bent = 0.3 * (1.0 / 0.3) ** (1 - share) * (4.0 / 1.2) ** share
    assert told[64].median == pytest.approx(math.sqrt(line[64].median * bent))
    assert deviation(told[64]) < deviation(line[64])
    thrice = times.probed(64, {size: 3 * seconds for size, seconds in rising.items()}.get)
    assert thrice is not None
    assert thrice.median == pytest.approx(told[64].median)
    spreads = [deviation(found) for size in (8, 64) if (found := told[size]) is not None]
    assert spreads == sorted(spreads)
    assert len(set(spreads)) == 2
    assert times.probed(64, {4: 0.3}.get) == line[64]  # a prediction that says nothing there


def test_a_line_is_drawn_twice_as_far_and_no_further() -> None:
    times = measured_times([a_measurement(ONE, 4, 0.5), a_measurement(ONE, 16, 1.7)], ONE, "pageable")
    assert times is not None
    assert [batch for batch in (1, 2, 32, 33) if times.probed(batch) is not None] == [2, 32]


def test_one_batch_is_no_line() -> None:
    times = measured_times([a_measurement(ONE, 4, 0.5)], ONE, "pageable")
    assert times is not None
    assert times.probed(5) is None
    assert times.measured(4) is not None


@given(
    st.dictionaries(st.integers(1, 4096), st.floats(1e-5, 10), min_size=2, max_size=5),
    st.integers(1, 9000),
)
def test_what_is_read_off_the_line_is_positive_and_wider_than_what_was_measured(
    seconds: dict[int, float], batch: int
) -> None:
    times = measured_times([a_measurement(ONE, b, s) for b, s in seconds.items()], ONE, "pageable")
    assert times is not None
    probed = times.probed(batch)
    assert probed is None or 0 < probed.low < probed.median < probed.high


def test_failures_and_other_plans_say_nothing_about_a_plans_time() -> None:
    failed = a_measurement(ONE, 4, 0.5, outcome="out-of-memory", step=None)
    assert measured_times([failed, a_measurement(TWO, 4, 0.5)], ONE, "pageable") is None


def test_a_device_is_not_read_off_another_way_of_feeding_it_when_its_own_was_measured() -> None:
    gpu = Plan("cuda:0")
    rows = [a_measurement(gpu, 4, 0.5, data="resident"), a_measurement(gpu, 4, 0.6, data="pinned")]
    times = measured_times(rows, gpu, "pinned")
    assert times is not None
    assert times.data == "pinned"
    middle = times.measured(4)
    assert middle is not None
    assert middle.median == pytest.approx(0.6)


def test_what_met_calm_cores_is_not_displaced_by_what_was_reckoned_from_slow_ones() -> None:
    calm = a_measurement(ONE, 4, 1.0, slow_share=0.0, slowdown=1.0, others_cores=0.0)
    reckoned = a_measurement(ONE, 4, 1.15, slow_share=1.0, others_cores=0.0)
    later = a_measurement(ONE, 4, 1.05, slow_share=0.5, slowdown=1.3, others_cores=0.0)
    assert told([calm, reckoned]) == pytest.approx(1.0)
    assert told([reckoned]) == pytest.approx(1.15)
    assert told([reckoned, calm]) == pytest.approx(1.0)
    assert told([calm, reckoned, later]) == pytest.approx(1.05)


@pytest.mark.parametrize("slow_share", [1.0, None], ids=["reckoned", "no-readings"])
@pytest.mark.parametrize("plan", [ONE, TWO], ids=["one", "two"])
def test_what_met_no_calm_cores_counts_while_those_are_there_who_held_them(
    plan: Plan, slow_share: float | None
) -> None:
    """Also of one thread, which had more than half a core left beside 1.7 of 2."""
    calm = a_measurement(plan, 4, 1.0, slow_share=0.0, slowdown=1.0, others_cores=0.0)
    later = a_measurement(plan, 4, 5.0, slow_share=slow_share, others_cores=1.7)
    for busy, counts in ((0.9, later), (0.02, calm)):
        crowd = crowd_of(replace(a_survey(), load=Load(busy_fraction=busy, steal_fraction=0.0)))
        assert crowd is not None
        times = measured_times([calm, later], plan, "pageable", crowd)
        assert times is not None
        assert times.rows[4] == counts


def told(rows: list[Measurement]) -> float:
    times = measured_times(rows, ONE, "pageable")
    assert times is not None
    found = times.measured(4)
    assert found is not None
    return found.median


def test_what_a_like_card_took_stands_in_at_batches_of_which_a_plan_has_no_time_itself() -> None:
    gpu = Plan("cuda:0")
    own = measured_times([a_measurement(gpu, 16, 0.5)], gpu, "pageable")
    alike = measured_times([a_measurement(gpu, batch, 0.4) for batch in (16, 64)], gpu, "pageable")
    otherwise = measured_times([a_measurement(gpu, 64, 0.3, data="resident")], gpu, "resident")
    assert own is not None
    both = with_borrowed(own, alike)
    assert both is not None
    assert (both.batch_sizes, both.own_batch_sizes) == ((16, 64), (16,))
    assert both.rows[16] == own.rows[16]
    assert [both.is_borrowed(batch) for batch in (8, 16, 60, 64)] == [False, False, True, True]
    left = both.without(lambda row: row.batch_size == 16)
    assert left is not None
    assert not left.own_batch_sizes
    assert with_borrowed(own, otherwise) is with_borrowed(own, None) is own
    assert with_borrowed(None, None) is None


@pytest.mark.parametrize(("later", "counts"), [(0.0046, True), (0.13, False)])
def test_what_took_far_less_takes_the_place_of_what_seemed_calm(later: float, *, counts: bool) -> None:
    """Slow cores make no step shorter, whatever the earlier one met."""
    rows = [a_measurement(TWO, 16, 0.155, slow_share=0.0, slowdown=1.0), a_measurement(TWO, 16, later, slow_share=1.0)]
    times = measured_times(rows, TWO, "pageable")
    assert times is not None
    assert (times.rows[16] is rows[1]) is counts


def test_what_met_a_spell_does_not_take_the_place_of_a_steady_one() -> None:
    steady = a_measurement(TWO, 16, 0.004, slow_share=0.0, slowdown=1.0)
    spell = a_measurement(TWO, 16, 0.155, 0.9, slow_share=0.0, slowdown=1.0)
    for rows in ([steady, spell], [spell, steady]):
        times = measured_times(rows, TWO, "pageable")
        assert times is not None
        assert times.rows[16] is steady
