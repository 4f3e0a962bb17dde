"""Denormals are the cause of a gain only where they were seen."""

from __future__ import annotations

from dataclasses import replace

from app.advisor import Request, recommend
from app.advisor.denormals import DENORMAL_SHARE, saw_denormals
from probes.measurement import Measurement
from tests.app.advisor.build import ONE, TWO, a_measurement, a_survey, a_workload

FLUSHING = replace(TWO, flush_denormal=True)


def plain(share: float | None) -> Measurement:
    return a_measurement(TWO, 16, 0.6, denormal_share=share)


def flushed(share: float | None) -> Measurement:
    return a_measurement(FLUSHING, 16, 0.4, control=a_measurement(TWO, 16, 0.6).step, denormal_share=share)


def why(*rows: Measurement) -> str:
    found = recommend(a_survey(), None, None, [a_measurement(ONE, 16, 0.9), *rows], Request(a_workload(16)))
    assert found.recommended == FLUSHING
    (reason,) = (reason for reason in found.reasons if reason.code == "flush-denormal-pays")
    return reason.text


def test_a_plan_and_the_controls_of_its_variants_show_whether_steps_make_denormals() -> None:
    assert saw_denormals([plain(DENORMAL_SHARE)], FLUSHING, 16) is True
    assert saw_denormals([plain(None), flushed(DENORMAL_SHARE)], TWO, 16) is True
    assert saw_denormals([plain(0.0)], TWO, 16) is False
    assert saw_denormals([plain(None)], TWO, 16) is None
    assert saw_denormals([plain(DENORMAL_SHARE)], TWO, 32) is None
    assert saw_denormals([plain(DENORMAL_SHARE)], ONE, 16) is None


def test_a_gain_of_flushing_names_denormals_as_its_cause_where_they_were_seen() -> None:
    assert "steps make some" in why(plain(None), flushed(0.2))
    assert "steps make some" in why(plain(0.2), flushed(None))
    assert "steps here" not in why(plain(None), flushed(None))
