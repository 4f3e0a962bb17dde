"""Middle batches of a kept run of crossovers, told from those on either side of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.advisor.summary import trace_of_summary
from app.advisor.time_model.predicted import predict
from benchmarks.between_batches import main, middles, times_of_plans
from tests.app.advisor.build import ONE
from tests.app.advisor.machine import a_profile
from tests.app.advisor.time_model.test_step_time import WORKLOAD


def test_each_plan_has_the_medians_of_its_turns_and_none_of_a_batch_without() -> None:
    row = {"model": "mlp", "from": ONE.label, "to": "other", "times": {"4": [[1.0, 3.0, 2.0], [5.0]], "8": [[], [6.0]]}}
    found = times_of_plans([row, {"model": "digits", "error": "It did not run."}])
    assert found == {("mlp", ONE.label): {4: 2.0}, ("mlp", "other"): {4: 5.0, 8: 6.0}}


def test_a_batch_is_told_from_every_two_that_are_an_octave_from_it() -> None:
    trace = trace_of_summary(WORKLOAD)
    assert trace is not None
    predicted = predict(a_profile(), ONE, trace, None)
    assert predicted is not None
    times = {size: 2 * predicted.at(size, "resident").median for size in (4, 5, 64, 4096)}
    found = list(middles(ONE, times, predicted))
    assert [round(middle.octaves) for middle in found] == [10, 10]  # 5 is no octave from 4
    for middle in found:
        assert middle.off("alone") == pytest.approx(-0.693, abs=0.001)
        assert abs(middle.off("told")) < abs(middle.off("line"))
        assert middle.is_held("told")
        assert not middle.is_held("alone") or middle.alone.high > middle.seconds


def test_a_file_that_is_none_is_refused_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.json").write_text(json.dumps([]), encoding="utf-8")
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.json"), "--profile", str(tmp_path / "none.json")])
    assert "cannot be told again" in capsys.readouterr().err
