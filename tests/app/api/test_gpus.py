"""A card's name says what it is, or nothing: over a real socket."""

import httpx
import pytest


def test_a_card_is_told_by_its_name(client: httpx.Client) -> None:
    card = client.get("/gpus/GeForce RTX 4070 Ti").json()
    assert (card["generation"], card["architecture"], card["tier"]) == ("GeForce RTX 40", "Ada Lovelace", "70")
    assert (card["suffix"], card["segment"]) == ("Ti", "consumer")
    assert "Memory decides first" in card["tier_meaning"]


@pytest.mark.parametrize("name", ["AMD Instinct MI250X/MI250", "AMD%20Instinct%20MI250X%2FMI250"])
def test_a_name_that_holds_a_slash_is_told_too(client: httpx.Client, name: str) -> None:
    assert client.get(f"/gpus/{name}").json()["generation"] == "Instinct MI200"


@pytest.mark.parametrize("name", ["GeForce RTX 9999", "RTX", "x" * 500, "%F0%9F%A6%86"])
def test_a_name_that_is_not_exactly_known_is_a_404_that_repeats_nothing(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/gpus/{name}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert "9999" not in answer.text
    assert "xxxx" not in answer.text
