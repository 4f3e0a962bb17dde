"""Two recordings make lines; of a model that hangs on its numbers, lines that chance has shaken."""

import pytest

from probes.microtrain.traces.merging import merge, peak_lines, repeated
from probes.microtrain.traces.recording import Record
from probes.trace import Affine


def a_record(read_bytes: int) -> Record:
    return Record("forward", "gather", "aten.index", "float32", ((2, 3),), 0, read_bytes, 8)


def line_through(one: int, other: int) -> Affine:
    (operation,) = merge((2, 4), [a_record(one)], [a_record(other)])
    return operation.read_bytes


def test_more_samples_are_no_less_work_and_few_are_no_less_than_none() -> None:
    assert line_through(20, 40) == Affine(0, 10)
    assert line_through(200, 100) == Affine(150, 0)
    assert line_through(10, 40) == Affine(0, 10)
    assert line_through(10, 30) == Affine(-10, 10)  # of all samples but one


def an_expert(rows: int, width: int = 3) -> Record:
    sizes = (2 * rows * 2 * width, 4 * rows * 2 + 8 * width, 4 * rows * width)
    return Record("forward", "matmul", "aten.mm", "float32", ((rows, 2), (2, width)), *sizes)


@pytest.mark.parametrize(
    ("small", "large"), [((2, 9, 9), (11, 10, 19)), ((9, 6, 5), (5, 6, 29)), ((8, 8, 4), (16, 20, 4))]
)
def test_what_chance_shares_out_is_told_by_all_of_it(small: tuple[int, ...], large: tuple[int, ...]) -> None:
    """Each sample has one expert, whichever; their lines alone fall, or tell of less than nothing."""
    others = an_expert(20, 8), an_expert(40, 8)
    one, other = ([every, *map(an_expert, rows)] for every, rows in zip(others, (small, large), strict=True))
    router, *experts = merge((20, 40), one, other)
    assert (router.count, router.flops) == (1, Affine(0, 2 * 2 * 8))
    assert sum(operation.count for operation in experts) == 3
    for size in (1, 4, 100, 10_000):
        flops, written = (
            sum(each.count * getattr(each, name).at(size) for each in experts) for name in ("flops", "written_bytes")
        )
        assert (flops, written) == pytest.approx((2 * size * 2 * 3, 4 * size * 3))


def test_more_samples_take_no_less_memory() -> None:
    assert peak_lines((2, 4), [100], [60]) == (Affine(100, 0),)
    assert peak_lines((2, 4), [100, 90], [60]) == (Affine(100, 0),)  # steps of other operations


def test_only_what_grows_by_the_sample_is_repeated() -> None:
    once = [a_record(10)._replace(name="aten.mm")] * 100

    def told(small: int, large: int) -> str | None:
        return repeated((16, 32), [*once, *[a_record(10)] * small], [*once, *[a_record(10)] * large])

    assert told(16, 32) == told(50, 98) == "aten.index"
    assert told(5, 10) is None  # as chance does
    assert told(100, 116) is None  # mostly of the step's
    assert told(8, 8) is None


def test_where_chance_has_no_say_work_on_a_few_samples_at_a_time_is_repeated_too() -> None:
    once = [a_record(10)._replace(name="aten.mm")] * 100

    def told(small: int, large: int) -> str | None:
        records = ([*once, *[a_record(10)] * count] for count in (small, large))
        return repeated((48, 96), *records, by_chance=False)

    assert told(3, 6) == told(5, 10) == told(48, 96) == "aten.index"
    assert told(8, 8) is None
    assert told(5, 6) is None  # as the logarithm does
    assert told(30, 33) is None  # mostly of the step's


def test_what_is_repeated_counts_where_it_is_a_real_part_of_a_step() -> None:
    def told(written_bytes: int) -> str | None:
        small, large = (
            [a_record(10)._replace(name="aten.mm", written_bytes=1000 * size), *[repeating(written_bytes)] * size]
            for size in (16, 32)
        )
        return repeated((16, 32), small, large)

    assert told(1000) == "aten.index"
    assert told(10) is None
    assert told(0) is None


def repeating(written_bytes: int) -> Record:
    return a_record(10)._replace(written_bytes=written_bytes)
