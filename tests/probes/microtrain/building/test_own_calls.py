"""Who waits for a trace knows while the user's own function has not returned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes.microtrain.building.own_calls import called
from probes.microtrain.jobs import run_trace
from probes.microtrain.protocol import Desk
from probes.workload.description import Workload
from probes.workload.models import CALLING, parse_model, python_model

PROGRAM = """
from torch import nn

def make_model():
    print("called")
    return nn.Linear(4, 2)
"""


def heard_of(workload: Workload) -> list[str]:
    heard: list[str] = []
    desk = Desk(lambda _, message: heard.append(message), lambda _: pytest.fail("it ended its process"))
    job: dict[str, Any] = {"kind": "trace", "workload": workload.to_json()}
    run_trace(job, desk)
    return heard


def test_a_trace_says_when_the_user_s_function_is_called_and_when_it_has_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_called.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    heard = heard_of(Workload(python_model("own_called:make_model"), 4))
    assert heard[0] == CALLING
    assert heard[-1] != CALLING
    assert not heard_of(Workload(parse_model({"layers": [{"type": "linear", "out": 3}], "input_shape": [5]}), 4))
    with called():
        assert heard[-1] != CALLING  # nobody listens any more
