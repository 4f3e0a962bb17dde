"""A trace that somebody else wrote is reckoned with where it can be one."""

from typing import Any

import pytest

from app.advisor.summary import trace_of_summary
from probes.checked import Refused
from probes.issued import Issued
from probes.trace import SCHEMA_VERSION, Knot
from probes.trace_check import check_trace
from tests.app.advisor.build import a_workload


def a_row(**changes: Any) -> dict[str, Any]:
    return {**trace_of_summary(a_workload()).to_json(), **changes}


def test_knots_go_on_from_batch_to_batch() -> None:
    assert check_trace(a_row(kernel_peaks=[[1, 10], [2, 30]]), "trace").kernel_peaks == (Knot(1, 10), Knot(2, 30))


@pytest.mark.parametrize(
    "knots", [[[1, 10]], [[2, 10], [1, 30]], [[1, 10], [1, 30]], [[1, 10], [2, -1]], [[0, 1], [1, 2]], [[1, 2]] * 5000]
)
def test_other_knots_are_refused(knots: list[list[int]]) -> None:
    with pytest.raises(Refused):
        check_trace(a_row(kernel_peaks=knots), "trace")


def test_the_lines_of_older_schemas_are_left_out() -> None:
    old = a_row(schema_version="3", kernel_peaks=[[5.5, -3.0]])
    assert check_trace(old, "trace").kernel_peaks == ()


def test_packed_texts_of_others_are_not_opened() -> None:
    assert check_trace(a_row(allocations="eJw" * 1000), "trace").allocations == ""


def test_a_later_schema_is_told_as_a_newer_crosspoints_and_what_is_none_as_unknown() -> None:
    later = a_row(schema_version=str(int(SCHEMA_VERSION) + 1), novelty=[1])
    with pytest.raises(Refused, match=f"a newer crosspoint made it.* up to schema version {SCHEMA_VERSION}: update"):
        check_trace(later, "trace")
    for version in ("x", "0", 99, None, "9" * 5000):
        with pytest.raises(Refused, match="schema_version has to be one of"):
            check_trace(a_row(schema_version=version), "trace")


def test_why_autocast_is_refused_is_short_and_printable() -> None:
    assert check_trace(a_row(autocast_refused="torch said no"), "trace").autocast_refused == "torch said no"
    for wrong in ("x" * 100_000, "two\nlines", 3, None):
        with pytest.raises(Refused):
            check_trace(a_row(autocast_refused=wrong), "trace")


def test_whose_cpu_it_is_of_is_short_and_printable() -> None:
    assert check_trace(a_row(cpu="0123456789abcdef"), "trace").cpu == "0123456789abcdef"
    for wrong in ("x" * 100_000, "two\nlines", 3, None):
        with pytest.raises(Refused):
            check_trace(a_row(cpu=wrong), "trace")


def test_counts_of_what_issues_operations_are_checked() -> None:
    trace = check_trace(a_row(issued=[40, 9, 12]), "trace")
    assert trace.issued_under("fp32") == trace.issued_under("bf16") == Issued(40, 9, 12)
    both = check_trace(a_row(issued=[40, 9, 12], autocast_issued=[50, 9, 20]), "trace")
    assert both.issued_under("bf16") == Issued(50, 9, 20)
    assert check_trace(a_row(schema_version="6"), "trace").issued is None
    for wrong in ([-1, 0, 0], [1, 2], "abc", 3, [1.5, 0, 0], [float("inf"), 0, 0]):
        with pytest.raises(Refused):
            check_trace(a_row(issued=wrong), "trace")
