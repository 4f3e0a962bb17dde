"""How far off operations are told by the other networks of a calibration."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.estimates import profile_file
from benchmarks.prices_left_out import describe, errors_in, errors_of, main
from probes.context import Context
from tests.app.advisor.machine import a_profile
from tests.app.advisor.operation_prices.test_context_prices import SIZES, a_context, an_operation, prices_of
from tests.app.advisor.time_model.test_slow_calibrations import ALL_SIZES


def test_an_error_is_what_the_others_tell_over_what_was_taken_and_counts_as_its_share_of_the_step() -> None:
    """`b` is as slow as nothing else: by the others its operations take half of their time."""
    slow = a_context(an_operation(moved=1e8), an_operation(moved=2e8), network="b", times=2.0)
    errors = list(errors_of(slow, prices_of(a_context(*SIZES), slow)))
    assert [error.kind for error in errors] == ["light", "light"]
    assert [error.log_ratio for error in errors] == pytest.approx([-math.log(2)] * 2, abs=0.15)
    assert [error.share for error in errors] == pytest.approx([1 / 3, 2 / 3], rel=0.01)


def test_what_takes_next_to_no_time_is_not_looked_at() -> None:
    quick = a_context(an_operation(moved=1e3), network="b")
    assert list(errors_of(quick, prices_of(a_context(*SIZES), quick))) == []


def test_errors_are_told_by_kind() -> None:
    product = an_operation("aten.mm", 1e6, 1e8)
    contexts: list[Context] = [a_context(*SIZES, product), a_context(*SIZES, product, network="b", times=2.0)]
    prices = prices_of(*contexts)
    table = describe([error for context in contexts for error in errors_of(context, prices)])
    rows = [line for line in table.splitlines() if line.startswith(("| light", "| matmul"))]
    assert [row.split("|")[1].strip() for row in rows] == ["light", "matmul"]
    assert float(rows[1].split("|")[2]) == pytest.approx(math.log(2), abs=0.15)


def test_kept_calibrations_are_pooled_and_every_kind_of_operation_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(profile_file(ALL_SIZES, number)) for number in (1, 2)]) == 0
    rows = [line.split("|")[1:] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == ["attention", "convolution", "light", "matmul", "recurrent"]
    assert all(0 < float(row[1]) < 1 and int(row[3]) > 40 for row in rows)


def test_plans_without_clocked_operations_tell_of_nothing() -> None:
    assert list(errors_in(replace(a_profile(), contexts=()))) == []
