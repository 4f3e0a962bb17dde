from collections.abc import Iterator

import pytest

from probes.gpu.kept import GOOD_SECONDS, MAX_KEYS, POOR_SECONDS, Kept


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def answers() -> Iterator[int]:
    yield from range(100)


@pytest.mark.parametrize(("is_good", "seconds"), [(True, GOOD_SECONDS), (False, POOR_SECONDS)])
def test_an_answer_is_kept_for_its_time(clock: Clock, is_good: bool, seconds: float) -> None:
    kept, source = Kept[int](clock), answers()

    def ask() -> int:
        return kept.get("a", lambda: next(source), lambda _: is_good)

    assert [ask(), ask()] == [0, 0]
    clock.now = seconds - 0.1
    assert ask() == 0
    clock.now = seconds
    assert ask() == 1


def test_an_empty_discovery_is_not_kept_for_long() -> None:
    assert POOR_SECONDS < GOOD_SECONDS


def test_only_the_newest_keys_are_kept(clock: Clock) -> None:
    kept, source = Kept[int](clock), answers()
    for key in range(MAX_KEYS + 1):
        kept.get(key, lambda: next(source), lambda _: True)
    assert kept.get(MAX_KEYS, lambda: next(source), lambda _: True) == MAX_KEYS
    assert kept.get(0, lambda: next(source), lambda _: True) == MAX_KEYS + 1
