from hypothesis import given
from hypothesis import strategies as st

from app.advisor.curves.crossover import Found, batch_grid, find_crossover, holds_from

signs = st.dictionaries(st.integers(1, 200), st.sampled_from([-1, 0, 1, None]), min_size=1)


def brute_force(table: dict[int, int | None]) -> tuple[str, int | None] | None:
    """The definition, word for word: the smallest batch from which the second is faster for all larger ones."""
    looked_at = sorted(batch for batch, sign in table.items() if sign is not None)
    if len(looked_at) < 2:
        return None
    winning = [b for b in looked_at if all(table[larger] == 1 for larger in looked_at if larger >= b)]
    if winning == looked_at:
        return "always", None
    if winning:
        return "at", winning[0]
    return ("never" if table[looked_at[-1]] == -1 else "undecided"), None


@given(signs)
def test_the_kind_is_what_the_definition_says_of_the_batches_looked_at(table: dict[int, int | None]) -> None:
    found = find_crossover(lambda batch: table.get(batch, 0), sorted(table))
    expected = brute_force(table)
    assert (None if found is None else found.kind) == (None if expected is None else expected[0])


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=2, max_size=100))
def test_every_batch_looked_at_gives_the_definition_itself(row: list[int]) -> None:
    table: dict[int, int | None] = dict(enumerate(row, start=1))
    found = find_crossover(lambda batch: table[batch], sorted(table))
    assert found is not None
    assert (found.kind, found.high) == brute_force(table)


@given(st.integers(2, 5000), st.integers(0, 500), st.integers(2, 5000))
def test_where_the_curves_cross_once_a_coarse_grid_finds_the_exact_batch(
    crossing: int, overlap: int, largest: int
) -> None:
    """The first is ahead up to `crossing`, then `overlap` batches cannot be told, then the second is ahead."""
    possible, certain = crossing, crossing + overlap

    def compare(batch: int) -> int:
        return -1 if batch < possible else 0 if batch < certain else 1

    found = find_crossover(compare, batch_grid(largest))
    if largest < possible:
        assert found == Found("never")
    elif largest < certain:
        assert found == Found("undecided")
    else:
        assert found == Found("at", possible, certain)


def test_a_plan_that_is_ahead_only_in_between_never_crosses() -> None:
    assert find_crossover(lambda batch: 1 if 8 <= batch <= 32 else -1, batch_grid(256)) == Found("never")


def test_what_cannot_be_compared_has_no_crossover() -> None:
    assert find_crossover(lambda _: None, batch_grid(64)) is None
    assert find_crossover(lambda _: 1, ()) is None


def test_one_batch_says_nothing_of_larger_ones() -> None:
    assert find_crossover(lambda _: 1, [16]) is None
    assert find_crossover(lambda batch: 1 if batch == 16 else None, batch_grid(64)) is None


@given(st.integers(1, 10**6), st.lists(st.integers(-5, 10**6), max_size=5))
def test_the_grid_rises_from_one_to_the_largest_with_what_was_asked_for(largest: int, also: list[int]) -> None:
    grid = batch_grid(largest, also)
    assert grid[0] == 1
    assert grid[-1] == largest
    assert list(grid) == sorted(set(grid))
    assert {batch for batch in also if 1 <= batch <= largest} <= set(grid)
    assert len(grid) <= 22 + len(also)


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=2, max_size=300), st.lists(st.integers(1, 300), max_size=4))
def test_on_any_curve_the_answer_agrees_with_every_batch_that_was_looked_at(row: list[int], also: list[int]) -> None:
    """Not monotone at all: between the batches of a coarse grid the answer may change as often as it likes."""
    looked_at: dict[int, int] = {}

    def compare(batch: int) -> int:
        looked_at[batch] = row[batch - 1]
        return row[batch - 1]

    found = find_crossover(compare, batch_grid(len(row), also))
    assert found is not None
    assert (found.kind, found.high) == brute_force(dict(looked_at))
    if found.kind == "at":
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.high
        ahead = [batch for batch, sign in looked_at.items() if sign < 0]
        assert found.low == min(batch for batch in looked_at if batch > max(ahead, default=0))


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_a_condition_holds_from_where_it_holds_at_all_larger_ones_looked_at(row: list[bool]) -> None:
    looked_at: dict[int, bool] = {}

    def holds(batch: int) -> bool:
        looked_at[batch] = row[batch - 1]
        return row[batch - 1]

    found = holds_from(holds, batch_grid(len(row)))
    if found is None:
        assert not row[-1]
    else:
        assert all(held for batch, held in looked_at.items() if batch >= found)
        assert found == 1 or not looked_at[found - 1]


def test_the_first_plan_is_not_past_where_bisection_saw_it_ahead() -> None:
    """At 13 of a bisection the first was ahead, though it could not be told from the second at 8."""
    found = find_crossover(
        lambda batch: 1 if batch > 13 else -1 if batch in (1, 2, 3, 4, 12, 13) else 0, batch_grid(64)
    )
    assert found == Found("at", 14, 14)
