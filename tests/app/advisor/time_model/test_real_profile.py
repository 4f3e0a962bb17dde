"""Against a profile that a real machine measured: two cores of an AMD EPYC, while others were at work on them.

Only the plans with one thread, training networks and 10th to 90th percentiles were kept, and each network's optimizer
operations summed up, so that the file stays small. On a busy machine little more can be asked of it than this.
"""

import json
import math
from pathlib import Path
from statistics import fmean

import pytest

from app.advisor import Request, recommend
from app.advisor.time_model.predicted import PlanModel, model_of_plan
from probes.profile import Profile
from tests.app.advisor.build import ONE, ONE_BF16, a_survey, a_workload

PATH = Path(__file__).parents[1] / "data" / "real_profile.json"


@pytest.fixture(scope="module")
def profile() -> Profile:
    return Profile.from_json(json.loads(PATH.read_text(encoding="utf-8")))


def errors_of_networks(model: PlanModel) -> list[float]:
    """Their means over the batch sizes, rising."""
    by_network: dict[str, list[float]] = {}
    for (network, _), error in model.fit.left_out.items():
        by_network.setdefault(network, []).append(error)
    return sorted(abs(fmean(mine)) for mine in by_network.values())


@pytest.mark.parametrize("plan", [ONE, ONE_BF16])
def test_networks_left_out_are_met_within_a_factor_of_two_and_mostly_much_closer(
    profile: Profile, plan: object
) -> None:
    model = model_of_plan(profile, plan)  # type: ignore[arg-type]
    assert model is not None
    errors = errors_of_networks(model)
    assert len(errors) == 7
    assert errors[-1] < math.log(2)
    assert errors[len(errors) // 2] < math.log(1.5)


def test_the_interval_admits_what_the_machine_was_like(profile: Profile) -> None:
    model = model_of_plan(profile, ONE)
    assert model is not None
    assert model.fit.spread > errors_of_networks(model)[-1]


def test_it_answers_for_the_plans_that_were_measured(profile: Profile) -> None:
    found = recommend(a_survey(usable_cores=1.0), profile, None, [], Request(a_workload()))
    assert "noisy-profile" in {reason.code for reason in found.reasons}
    assert found.recommended in (ONE, ONE_BF16)
