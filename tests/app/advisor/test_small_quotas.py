"""What a quota below one core takes of the only thread is in every time, and no work of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.crowding import Crowd, crowd_of
from probes.hardware import Cpu, Load, Survey
from probes.measurement import Timing
from tests.app.advisor.build import ONE, a_measurement, a_survey, a_workload

ALONE = Load(steal_fraction=0.0, busy_fraction=0.01, own_busy_fraction=0.0, quota_others_cores=0.0)
BESIDE_OTHERS = replace(ALONE, quota_others_cores=0.5)


def a_pod(load: Load, cores: float = 0.5) -> Survey:
    """As Kubernetes' `cpu: 500m` on a host of 64 cores."""
    cpu = Cpu(physical_cores=64, logical_cores=64, usable_cores=cores, usable_cores_limit="cgroup")
    return replace(a_survey(), cpu=cpu, load=load)


def crowd(load: Load) -> Crowd:
    found = crowd_of(a_pod(load))
    assert found is not None
    return found


def answer(**of_the_measurement: Any) -> Recommendation:
    row = a_measurement(ONE, 16, 0.3, others_cores=0.0, **of_the_measurement)
    return recommend(a_pod(ALONE), None, None, [row], Request(a_workload(), "fp32"))


def test_a_thread_beside_nobody_was_exposed_to_nobody() -> None:
    assert crowd(ALONE).exposure(ONE) == 0
    assert crowd(ALONE).exposure_then(ONE, 0.0) == 0
    assert crowd(ALONE).still_met(ONE, 0.0) == 0
    assert not crowd(ALONE).may_tell_of_others(a_measurement(ONE, 16, 0.3, others_cores=0.0))


def test_others_in_the_quota_hold_as_much_of_it_as_they_use() -> None:
    """But for what always runs: a quarter of a core and 2 % of what is usable."""
    assert crowd(BESIDE_OTHERS).exposure(ONE) == pytest.approx(0.5 - 0.26)
    assert crowd(BESIDE_OTHERS).exposure_then(ONE, 0.5) == pytest.approx(0.5 - 0.26)


def test_one_sample_beside_nobody_is_a_measurement() -> None:
    (option,) = answer(step=Timing.from_samples([0.3])).options
    assert (option.basis, option.relieved, option.note) == ("measured", False, None)
    assert option.step_seconds is not None
    assert option.step_seconds.median == 0.3


@pytest.mark.parametrize("slowdown", [None, 1.5])
def test_cores_that_were_slow_beside_nobody_are_told_as_another_machine_s_work(slowdown: float | None) -> None:
    (reason,) = (each for each in answer(slow_share=0.4, slowdown=slowdown).reasons if each.code == "slow-cores")
    assert "as beside another machine's work" in reason.text
