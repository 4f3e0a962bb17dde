import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.cpusets import iterate_cpus, parse_cpu_list, parse_cpu_mask, unite_cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]), ("5", [5]), ("\n", []), (" 0 , 2 ", [0, 2])],
)
def test_a_list_gives_its_cpus(text: str, cpus: list[int]) -> None:
    found = parse_cpu_list(text)
    assert found is not None
    assert list(iterate_cpus(found)) == cpus


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "0-99999999", "99999", "1--2", "١"])
def test_what_is_no_list_is_none(text: str) -> None:
    assert parse_cpu_list(text) is None


def test_a_mask_is_read_from_the_right() -> None:
    assert parse_cpu_mask("00000001,00000000\n") == 1 << 32
    assert parse_cpu_mask("ff") == 0xFF


@pytest.mark.parametrize("text", ["", "zz", "0" * 20_000, "-1", "+f", "f_f", "0xff", "1 1", None])
def test_what_is_no_mask_is_none(text: str | None) -> None:
    assert parse_cpu_mask(text) is None


def test_sets_are_united() -> None:
    assert unite_cpus([0b0011, 0b0110]) == 0b0111
    assert unite_cpus(1 << cpu for cpu in (0, 3)) == 0b1001
    assert unite_cpus(()) == 0


@given(st.text())
def test_any_text_is_a_list_or_none(text: str) -> None:
    assert parse_cpu_list(text) is None or isinstance(parse_cpu_list(text), int)


@given(st.sets(st.integers(0, 300)))
def test_a_set_written_as_a_list_is_read_back(cpus: set[int]) -> None:
    found = parse_cpu_list(",".join(map(str, cpus)))
    assert found is not None
    assert set(iterate_cpus(found)) == cpus
