"""Values are those of the function, however many others were asked for."""

from __future__ import annotations

from itertools import product

import pytest

from app.advisor.operation_prices import remembered
from app.advisor.operation_prices.remembered import GRID, Remembered
from app.advisor.operation_prices.samples import Place

PLACES: list[Place] = [(float(x), float(y), 0.0, 1.0, 2.0) for x, y in product(range(20), repeat=2)]


def test_a_value_is_the_functions_at_the_place_of_the_grid_that_is_nearest() -> None:
    values = Remembered()
    for shift in (-0.4, 0.0, 0.4):
        assert values.at("a", (3.0 + shift / GRID, 0.0, 0.0, 0.0, 0.0), sum) == 3.0


def test_a_function_is_asked_once_for_each_place_and_each_key_has_its_own() -> None:
    values, asked = Remembered(), []

    def function(place: Place) -> float:
        asked.append(place)
        return sum(place)

    for _ in range(3):
        assert [values.at("a", place, function) for place in PLACES] == [sum(place) for place in PLACES]
    assert asked == PLACES
    assert values.at("b", PLACES[0], lambda _: 7.0) == 7.0


def test_however_much_is_asked_little_is_kept_and_the_values_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_REMEMBERED", 30)
    values = Remembered()
    for _ in range(2):
        for place in PLACES:
            assert values.at("a", place, sum) == sum(place)
            assert 0 < len(values) <= 30
