"""What operations that are alike took, as a smooth function of where they ran."""

from __future__ import annotations

import pickle
import random

import pytest

from app.advisor.numerics import np
from app.advisor.operation_prices.samples import FEW_ROWS, MOST_BEYOND, MOST_ROWS, Place, Sample, Samples


def place_of(row: Sample) -> Place:
    return row[1], row[2], row[3], row[4], row[5]


def some_rows(count: int, seed: int = 1, networks: str = "abcd") -> list[Sample]:
    """Of a plane over size and intensity."""
    source = random.Random(seed)
    rows = []
    for number in range(count):
        size, intensity = source.uniform(8, 18), source.uniform(0, 4)
        told = 0.1 * size - 0.2 * intensity
        rows.append(Sample(networks[number % len(networks)], size, intensity, 0.0, 9.0, 0.0, told))
    return rows


def test_a_trend_is_followed_between_what_was_timed_and_a_little_beyond() -> None:
    samples = Samples(some_rows(60))
    for size, intensity in ((10.0, 1.0), (16.0, 3.0), (19.0, 2.0)):
        at = (size, intensity, 0.0, 9.0, 0.0)
        assert samples.log_ratio_at(at) == pytest.approx(0.1 * size - 0.2 * intensity, abs=0.1)


def test_one_that_was_timed_by_itself_holds_everywhere_near() -> None:
    alone = Samples([Sample("a", 12.0, 0.0, 0.0, 9.0, 0.0, 0.7)])
    assert alone.log_ratio_at((13.0, 0.0, 0.0, 9.0, 0.0)) == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("count", [1, FEW_ROWS, FEW_ROWS + 1])
def test_few_rows_and_many_are_told_by_one_covariance(count: int) -> None:
    samples = Samples(some_rows(count))
    samples.get_ready()
    known = samples._known
    assert known is not None
    assert bool(known.few) == (count <= FEW_ROWS)
    listed = known._replace(few=np.column_stack((known.places, known.weights)).tolist())
    for place in ((12.0, 1.0, -0.5, 9.0, 2.0), (40.0, 0.0, 0.0, 9.0, 0.0)):
        assert listed.told_at(place) == pytest.approx(known._replace(few=()).told_at(place), abs=1e-9)


def test_a_slope_that_no_clock_can_have_told_leads_nowhere() -> None:
    """Half of the steps took 1e-12 s and the others, which move a little more, 1e6: far off they would take 1e300."""
    steep = [
        Sample(str(n), 0.0, 0.0, 0.0, *place) for n in range(300) for place in ((5.89, 0.0, -27.6), (5.95, 0.0, 13.8))
    ]
    for samples in (Samples(steep), Samples(steep).without("0")):
        for footprint in (-30.0, 0.0, 10.3, 40.0):
            assert -27.6 - MOST_BEYOND <= samples.log_ratio_at((0.0, 0.0, 0.0, footprint, 0.0)) <= 13.8 + MOST_BEYOND


@pytest.mark.parametrize("network", ["a", "d"])
def test_leaving_a_network_out_tells_what_the_others_alone_tell(network: str) -> None:
    rows = some_rows(40)
    rows = [row._replace(log_ratio=row.log_ratio + 0.5 * (row.network == network)) for row in rows]
    left, alone = Samples(rows).without(network), Samples([row for row in rows if row.network != network])
    for row in rows[:8]:
        assert left.log_ratio_at(place_of(row)) == pytest.approx(alone.log_ratio_at(place_of(row)), abs=1e-9)
    assert (left.smallest, left.largest) == (alone.smallest, alone.largest)


def test_leaving_out_a_network_that_is_not_there_changes_nothing() -> None:
    samples = Samples(some_rows(20))
    at = (11.0, 2.0, 0.0, 9.0, 0.0)
    assert samples.without("another").log_ratio_at(at) == samples.log_ratio_at(at)


def test_what_only_one_network_has_is_not_known_without_it() -> None:
    assert not Samples(some_rows(5, networks="a")).without("a").rows


def test_what_leaving_networks_out_takes_is_let_go_when_all_is_fitted() -> None:
    rows, at = some_rows(200), (11.0, 2.0, 0.0, 9.0, 0.0)
    samples, asked_later = Samples(rows), Samples(rows)
    told, without = samples.log_ratio_at(at), samples.without("a").log_ratio_at(at)
    for each in (samples, asked_later):
        each.finish_fitting()
        assert each.log_ratio_at(at) == pytest.approx(told, abs=1e-9)  # solved without the inverse where asked later
        assert len(pickle.dumps(each)) < 8 * len(rows) ** 2  # bytes of a matrix of them
    assert samples.without("a").log_ratio_at(at) == without  # it is solved again


@pytest.mark.parametrize("fitted", [False, True])
def test_what_is_ready_answers_alike_and_solves_nothing_more(fitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, at = some_rows(60), (11.0, 2.0, 0.0, 9.0, 0.0)
    samples = Samples(rows)
    if fitted:
        samples.finish_fitting()
    samples.get_ready()
    monkeypatch.setattr(np.linalg, "solve", None)
    monkeypatch.setattr(np.linalg, "inv", None)
    ready = samples.log_ratio_at(at)
    monkeypatch.undo()
    assert ready == pytest.approx(Samples(rows).log_ratio_at(at), abs=1e-9)


def test_nothing_is_ready_at_once() -> None:
    Samples().get_ready()


def test_what_is_added_counts() -> None:
    samples = Samples(some_rows(4))
    at = (30.0, 0.0, 0.0, 9.0, 0.0)
    before = samples.log_ratio_at(at)
    samples.add(Sample("e", *at, 5.0))
    assert samples.log_ratio_at(at) > before + 0.5
    assert samples.largest == 30.0


@pytest.mark.parametrize("count", [MOST_ROWS + 1, 2 * MOST_ROWS + 1])
def test_of_a_kind_with_very_many_rows_a_part_does(count: int) -> None:
    many = Samples(some_rows(count))
    assert many.log_ratio_at((12.0, 2.0, 0.0, 9.0, 0.0)) == pytest.approx(0.8, abs=0.05)
    assert many._known is not None
    assert len(many._known.places) == MOST_ROWS


def test_rows_of_a_network_that_a_part_leaves_out_altogether_can_be_left_out() -> None:
    rows = [row._replace(network="b" if place % 2 else "a") for place, row in enumerate(some_rows(2 * MOST_ROWS))]
    left = Samples(rows).without("a")  # every second row is of it, and a part of all has no others
    assert left.log_ratio_at((12.0, 2.0, 0.0, 9.0, 0.0)) == pytest.approx(0.8, abs=0.05)
