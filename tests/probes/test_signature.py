"""A signature tells steps apart by what they spend their time on, and says nothing that no trace holds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from app.advisor.summary import trace_of_summary
from probes.signature import Signature, signature_of
from tests.app.advisor.build import a_workload


def test_shares_are_of_the_whole_step_and_add_up_to_it() -> None:
    signature = signature_of(trace_of_summary(a_workload()), 16)
    assert signature is not None
    assert sum(signature.shares.values()) == pytest.approx(1.0, abs=0.05)
    assert signature.log_operation < signature.log_step


def test_a_larger_batch_is_a_longer_step() -> None:
    small, large = (signature_of(trace_of_summary(a_workload()), batch) for batch in (1, 256))
    assert small is not None
    assert large is not None
    assert small.log_step < large.log_step


def test_a_signature_outlives_the_process_that_made_it() -> None:
    signature = signature_of(trace_of_summary(a_workload()), 16)
    assert signature is not None
    assert Signature.from_json(signature.to_json()) == signature


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"shares": [], "log_step": 0, "log_operation": 0},
        {"shares": {"a": math.nan}, "log_step": 0, "log_operation": 0},
        {"shares": {}, "log_step": math.inf, "log_operation": 0},
        {"shares": {}, "log_step": "much", "log_operation": 0},
    ],
)
def test_what_is_no_signature_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Signature.from_json(document)
