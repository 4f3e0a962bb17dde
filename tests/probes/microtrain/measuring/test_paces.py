"""How quick the cores are is read beside a plan's runs, and held against what its profile says."""

from __future__ import annotations

import sys

import pytest

from probes.microtrain.failures import Failure
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.processes import fresh_processes
from tests.probes.microtrain.measuring.plan_processes import DENSE, ONE, brief, ending, job, measured, prepared

__all__ = ["brief", "ending", "prepared"]  # of every test here, too

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def test_a_machine_slower_than_its_profile_says_is_told_as_never_calm() -> None:
    """Others may compute on its cores from the first step to the last."""
    rows, _ = measured(DENSE, ONE, paces={"1": 1e-9})
    assert rows[0].outcome == "ok"
    assert rows[0].slow_share == 1
    assert rows[0].slowdown is None


def test_a_measurement_tells_how_quick_the_cores_were_whatever_its_profile_says() -> None:
    _, session = measured(DENSE, ONE, paces={"1": 1e-9, "7": 1e-9})
    paces = session.result()["paces"]
    assert paces.keys() == {"1"}
    assert 1e-6 < paces["1"] < 0.1


@pytest.mark.parametrize("paces", [[1.0], {"one": 1.0}, {"1": 0}, {"1": None}, {"-1": 1.0}])
def test_paces_that_are_none_are_refused(paces: object) -> None:
    with pytest.raises(Failure, match="paces"):
        job(DENSE, ONE, paces=paces)


def test_each_run_that_is_not_watched_says_how_quick_the_cores_are() -> None:
    assert fresh_processes.prepare()
    run = PlanProcess(DENSE, ONE, 8, None)
    try:
        with run.watched():  # what reading takes is not to be in the peaks of memory
            run(1)
        assert run.take_readings() == []
        run(3)
        run(2)
        readings = run.take_readings()
        assert len(readings) == 2
        assert min(readings) > 0
        assert run.take_readings() == []
    finally:
        run.drop()
