"""Several calibrations of one machine as one profile."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from app.advisor.summary import trace_of_summary
from app.advisor.time_model.pooled import LOOKED_AT, POOLED, pool
from app.advisor.time_model.predicted import predict
from probes.context import Context, ContextOperation, OperationCost
from probes.issued import Issued
from probes.measurement import Timing
from probes.profile import Profile
from tests.app.advisor.build import ONE, TWO, a_workload
from tests.app.advisor.machine import GPU, NETWORKS, a_profile

ADD = ContextOperation("aten.add", "elementwise", "", "float32", 0.0, 800.0, 400.0)
MUL = ADD._replace(name="aten.mul")


@pytest.fixture(autouse=True)
def all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far apart they are (test_slow_calibrations)."""
    monkeypatch.setattr("app.advisor.time_model.pooled.SLOWER", math.inf)


def timed(seconds: Timing, times: float) -> Timing:
    return Timing.from_samples([sample * times for sample in seconds.samples])


def in_state(times: float, profile: Profile | None = None, **changes: Any) -> Profile:
    """The made-up machine's calibration in a minute in which everything took so many times as long."""
    profile = profile or a_profile()
    return replace(
        profile,
        points=tuple(replace(point, seconds=timed(point.seconds, times)) for point in profile.points),
        networks=tuple(replace(point, seconds=timed(point.seconds, times)) for point in profile.networks),
        **changes,
    )


def a_context(times: float, *operations: ContextOperation, issued: Issued | None = None) -> Context:
    costs = tuple(OperationCost(operation, 2, 1e-5 * times, 0.1 * times) for operation in operations)
    return Context("network 0", 8, "training", ONE, costs, issued)


def test_one_calibration_is_the_profile() -> None:
    profile = a_profile()
    assert pool([profile]) is profile


def test_times_are_geometric_means() -> None:
    truth, pooled = a_profile(), pool([in_state(2.0), in_state(0.5), in_state(1.0)])
    assert pooled.calibrations == 3
    for rows, true in ((pooled.points, truth.points), (pooled.networks, truth.networks)):
        assert len(rows) == len(true)
        for mean, alone in zip(rows, true, strict=True):
            assert mean.seconds.median == pytest.approx(alone.seconds.median, rel=1e-3)
            assert len(mean.seconds.samples) == 3
            assert mean.seconds.low <= mean.seconds.median <= mean.seconds.high


def test_a_prediction_is_nearer_to_the_machine_than_the_worst_of_them() -> None:
    workload = a_workload()
    trace = trace_of_summary(workload)

    def seconds(profile: Profile) -> float:
        found = predict(profile, ONE, trace, None)
        assert found is not None
        return found.at(workload.batch_size, "resident").median

    usual, slow, pooled = (seconds(each) for each in (a_profile(), in_state(2.0), pool([in_state(2.0), a_profile()])))
    assert slow == pytest.approx(2 * usual, rel=0.01)
    assert pooled == pytest.approx(math.sqrt(2) * usual, rel=0.01)


def test_the_newest_says_who_and_when_and_the_newest_full_one_what_was_done() -> None:
    newest = in_state(1.0, created_at="2026-11-22T09:00:00Z", duration_seconds=25.0)
    older = in_state(1.0, created_at="2026-11-21T09:00:00Z", effort="full", duration_seconds=57.0)
    pooled = pool([newest, older])
    assert pooled.created_at == "2026-11-22T09:00:00Z"
    assert (pooled.effort, pooled.duration_seconds) == ("full", 57.0)  # some of its points are of that one
    both_quick = pool([newest, replace(older, effort="quick")])
    assert (both_quick.effort, both_quick.duration_seconds) == ("quick", 25.0)


def test_what_only_some_measured_stands() -> None:
    """A calibration of the card alone hides nothing of the CPU's."""
    older = replace(a_profile([ONE]), context_bytes={"cuda:1": 1}, start_seconds={"cuda:0": 2.5})
    pooled = pool([a_profile([GPU]), older])
    for rows in (pooled.points, pooled.networks):
        assert {point.plan.label for point in rows} == {ONE.label, GPU.label}
    assert pooled.context_bytes == {"cuda:0": 500_000_000, "cuda:1": 1}
    assert pooled.start_seconds == {"cuda:0": 2.5}


def test_operations_in_context_are_means_by_what_they_are() -> None:
    newest = replace(a_profile(), contexts=(a_context(1.0, ADD),))
    older = replace(a_profile(), contexts=(a_context(4.0, MUL, ADD, issued=Issued(3, 2, 1)),))
    (context,) = pool([newest, older]).contexts
    assert [(cost.operation, cost.times, cost.seconds) for cost in context.costs] == [
        (ADD, 2, pytest.approx(2e-5)),
        (MUL, 2, pytest.approx(4e-5)),
    ]
    assert context.issued == Issued(3, 2, 1)


def test_what_met_slow_cores_alone_counts_where_no_other_met_calm_ones() -> None:
    """How much it suffered is a guess, be the calibration as calm as it may on the whole."""
    network = next(point for point in a_profile().networks if point.plan.key == ONE.key)

    def calibration(times: float, *reckoned: str) -> Profile:
        contexts = [replace(a_context(times, ADD), network=name, reckoned=name in reckoned) for name in ("one", "two")]
        step = replace(network, seconds=Timing.from_samples([1e-4 * times]), reckoned="step" in reckoned)
        return replace(a_profile(), contexts=tuple(contexts), networks=(step,))

    pooled = pool([calibration(9.0, "one", "two", "step"), calibration(1.0, "two"), calibration(4.0, "two")])
    by_network = {context.network: context for context in pooled.contexts}
    assert by_network["one"].costs[0].seconds == pytest.approx(2e-5)
    assert not by_network["one"].reckoned
    assert by_network["two"].costs[0].seconds == pytest.approx(36 ** (1 / 3) * 1e-5, rel=1e-3)
    assert by_network["two"].reckoned
    (told,) = pooled.networks
    assert not told.reckoned
    assert len(told.seconds.samples) == 2


def test_a_calibration_that_says_which_of_its_times_met_slow_cores_counts_beside_calm_ones() -> None:
    """Half of what networks ran met slow cores alone; the other half is as good as in a calm hour."""
    calm, half = a_context(1.0, ADD), a_context(4.0, ADD)
    calmly = replace(a_profile(), contexts=(calm, replace(calm, network="two")), noise={"slow_fraction": 0.0})
    slowly = (replace(half, reckoned=True), replace(half, network="two"))
    marked = replace(a_profile(), contexts=slowly, noise={"slow_fraction": 0.5})
    pooled = pool([marked, calmly])
    assert pooled.calibrations == 2
    told = {context.network: context.costs[0].seconds for context in pooled.contexts}
    assert told == pytest.approx({"network 0": 1e-5, "two": 2e-5})
    assert pooled.noise["slow_fraction"] == 0
    unmarked = replace(marked, contexts=(half, slowly[1]))  # from before this was kept
    assert pool([unmarked, calmly]).calibrations == 1


def test_what_every_calibration_met_slow_cores_in_is_still_said() -> None:
    slow = replace(
        a_profile(),
        networks=(),
        contexts=(replace(a_context(1.0, ADD), reckoned=True), replace(a_context(1.0, ADD), network="two")),
        noise={"slow_fraction": 0.6},
    )
    assert pool([slow, slow]).noise["slow_fraction"] == 0.5


def test_what_only_a_slow_calibration_timed_is_told_as_on_average() -> None:
    def calibration(times: float, *networks: str) -> Profile:
        adds = [ADD._replace(read_bytes=800.0 * (1 + size)) for size in range(5)]
        contexts = [replace(a_context(times, *adds), network=network) for network in networks]
        return replace(a_profile(), contexts=tuple(contexts))

    pooled = pool([calibration(1.0, "one"), calibration(4.0, "one", "two")])
    assert {context.network for context in pooled.contexts} == {"one", "two"}
    assert [cost.seconds for context in pooled.contexts for cost in context.costs] == pytest.approx([2e-5] * 10)


def test_a_step_and_its_operations_are_of_the_same_minutes_whoever_timed_them() -> None:
    """All timed its operations, the slow one alone the whole step."""
    adds = [ADD._replace(read_bytes=800.0 * (1 + size)) for size in range(5)]
    network = replace(next(point for point in a_profile().networks if point.plan.key == ONE.key), batch_size=8)
    step = replace(network, name="network 0", seconds=Timing.from_samples([1e-4]))

    def calibration(times: float, *, timed_it: bool) -> Profile:
        others = [replace(a_context(times, *adds), network=f"network {number}") for number in range(3)]
        steps = (replace(step, seconds=timed(step.seconds, times)),) if timed_it else ()
        return replace(a_profile(), contexts=tuple(others), networks=steps)

    pooled = pool([calibration(1.0, timed_it=False), calibration(4.0, timed_it=True)])
    (told,) = pooled.networks
    (context,) = [context for context in pooled.contexts if context.network == "network 0"]
    assert told.seconds.median / context.seconds == pytest.approx(1e-4 / a_context(1.0, *adds).seconds, rel=0.01)
    assert told.seconds.low <= told.seconds.median <= told.seconds.high


@pytest.mark.parametrize(
    "sign", ["contention", "steal_fraction", "waiting_fraction", "hindrance", "spread", "slow_fraction"]
)
def test_a_disturbed_calibration_counts_only_where_all_are(sign: str) -> None:
    disturbed, calm = in_state(9.0, noise={sign: 0.5}), in_state(1.0, noise={sign: 0.0, "drift": 0.4})
    assert pool([disturbed, calm]) is calm
    assert pool([calm, disturbed, calm]).calibrations == 2
    assert pool([disturbed, disturbed]).calibrations == 2


@pytest.mark.parametrize(("sign", "counts"), [("contention", False), ("slow_fraction", True), ("hindrance", True)])
def test_a_disturbed_calibration_counts_for_plans_that_no_other_measured(sign: str, counts: bool) -> None:
    """Of a card alone there was a calm one, of the whole machine none. What the threads of a CPU's plans found says
    nothing of the card's, which have none: on an H200 and an H100 both together told its steps better than one."""
    whole = in_state(3.0, a_profile((ONE, GPU)), noise={sign: 0.6})
    card = in_state(1.0, a_profile((ONE, GPU)), noise={"slow_fraction": 0.0})
    card = replace(
        card,
        points=tuple(point for point in card.points if point.plan.key == GPU.key),
        networks=tuple(point for point in card.networks if point.plan.key == GPU.key),
    )
    pooled = pool([whole, card])
    times = {point.plan.key: point.seconds.median for point in pooled.points if point.constant == "matmul"}
    expected = {point.plan.key: point.seconds.median for point in whole.points if point.constant == "matmul"}
    assert times[ONE.key] == expected[ONE.key]
    assert times[GPU.key] == pytest.approx(expected[GPU.key] / (math.sqrt(3) if counts else 3), rel=1e-3)


def test_what_threads_found_counts_no_more_than_their_plans() -> None:
    """Of the whole machine there was a calm one: of a disturbed one the card's steps alone are in the pool."""
    calm = in_state(1.0, a_profile((ONE, GPU)), noise={"hindrance": 0.0, "drift": 0.1})
    disturbed = in_state(3.0, a_profile((ONE, GPU)), noise={"hindrance": 0.6, "drift": 0.3})
    pooled = pool([disturbed, calm])
    assert pooled.calibrations == 2
    assert pooled.noise == {"hindrance": 0.0, "drift": pytest.approx(0.2)}


def test_disturbed_calibrations_never_push_calm_ones_out() -> None:
    """However many came later: they measured the same plans."""
    calm, disturbed = in_state(1.0), in_state(9.0, noise={"contention": 0.5})
    pooled = pool([*[disturbed] * (LOOKED_AT - POOLED), *[calm] * POOLED])
    assert pooled.calibrations == POOLED
    assert pooled.points[0].seconds.median == pytest.approx(calm.points[0].seconds.median, rel=1e-3)


def test_disturbed_threads_leave_calm_calibrations_of_the_cpu_in_the_pool() -> None:
    """Of the card they count, as many as of any plan."""
    calm = a_profile((ONE, GPU))
    disturbed = in_state(9.0, calm, noise={"hindrance": 0.5})
    pooled = pool([*[disturbed] * POOLED, *[calm] * POOLED])
    times = {point.plan.key: point.seconds for point in pooled.points if point.constant == "dispatch"}
    alone = {point.plan.key: point.seconds.median for point in calm.points if point.constant == "dispatch"}
    assert times[ONE.key].median == pytest.approx(alone[ONE.key], rel=1e-3)
    assert times[GPU.key].median == pytest.approx(9 * alone[GPU.key], rel=1e-3)
    assert {len(each.samples) for each in times.values()} == {POOLED}


def test_cores_are_as_quick_as_any_calibration_has_seen_them() -> None:
    rows = [replace(in_state(1.0), paces={1: 2.0e-4, 2: 3.4e-4}), replace(in_state(1.0), paces={2: 2.3e-4})]
    assert pool(rows).paces == {1: 2.0e-4, 2: 2.3e-4}


def test_noise_is_the_mean_of_what_is_known() -> None:
    pooled = pool([in_state(1.0, noise={"drift": 0.1, "spread": None}), in_state(1.0, noise={"drift": 0.3})])
    assert pooled.noise == {"drift": pytest.approx(0.2), "spread": None}


def test_the_latest_few_count() -> None:
    pooled = pool([*[in_state(1.0)] * POOLED, in_state(1000.0)])
    assert pooled.calibrations == POOLED
    assert pooled.points[0].seconds.median == pytest.approx(a_profile().points[0].seconds.median, rel=1e-3)


def test_calibrations_of_the_card_alone_leave_what_was_known_of_the_cpu() -> None:
    card = replace(a_profile((GPU,)))
    whole = a_profile((ONE, GPU))
    pooled = pool([*[card] * POOLED, *[whole] * POOLED])
    assert {point.plan.key for point in pooled.networks} == {ONE.key, GPU.key}
    on_card = [point for point in pooled.networks if point.plan == GPU]
    assert {len(point.seconds.samples) for point in on_card} == {POOLED}
    assert len(pooled.networks) == len({(each.name, each.batch_size, each.plan.key) for each in pooled.networks})


def test_page_faults_that_were_counted_once_more_are_of_the_same_point() -> None:
    fresh = replace(a_profile().points[0], constant="page-fault", parameters={"faults": 2064}, bytes=2.0**23)
    again = replace(fresh, parameters={"faults": 0})
    profiles = [
        in_state(times, replace(a_profile(), points=(replace(fresh, parameters={"faults": faults}), again)))
        for times, faults in ((1.0, 2064), (4.0, 2065))
    ]
    pooled = pool(profiles).points
    assert [point.seconds.median for point in pooled] == pytest.approx([2 * fresh.seconds.median] * 2, rel=1e-3)
    assert [point.parameters["faults"] > 0 for point in pooled] == [True, False]


def with_other_networks(profile: Profile) -> Profile:
    """As another version of crosspoint has them."""
    others = [replace(point, trace=replace(point.trace, model_key="another")) for point in profile.networks]
    return replace(profile, networks=tuple(others))


def test_networks_of_another_version_are_not_mixed_in() -> None:
    older = with_other_networks(a_profile())
    assert pool([a_profile(), older, a_profile()]).calibrations == 2


def test_what_measured_otherwise_is_not_mixed_in_though_its_networks_are_the_same() -> None:
    """Operations of networks that are only clocked, and how they are clocked, stand in no network's name."""
    older, newer = in_state(9.0, replace(a_profile(), method=0)), in_state(1.0, replace(a_profile(), method=1))
    assert pool([newer, older, older]) is newer
    assert pool([older, newer, older]).calibrations == 2
    card = replace(a_profile((GPU,)), method=1)
    pooled = pool([card, replace(a_profile((ONE, GPU)), method=0)])
    assert {point.plan.key for point in pooled.networks} == {ONE.key, GPU.key}
    assert pooled.method == 0  # of the CPU's


def test_other_networks_of_the_card_leave_what_was_known_of_the_cpu() -> None:
    """After an update of crosspoint, a calibration of the card alone."""
    card, whole = a_profile((GPU,)), with_other_networks(a_profile((ONE, GPU)))
    pooled = pool([card, whole])
    assert {point.plan.key for point in pooled.networks} == {ONE.key, GPU.key}
    assert {point.trace.model_key for point in pooled.networks if point.plan == ONE} == {"another"}
    assert {point.trace.model_key for point in pooled.networks if point.plan == GPU}.isdisjoint({"another"})


def test_a_disturbed_calibration_with_other_networks_does_not_take_the_calm_ones_place() -> None:
    calm, disturbed = in_state(1.0), in_state(9.0, noise={"contention": 0.5})
    assert pool([with_other_networks(disturbed), calm]) is calm


def test_the_newest_that_counts_says_when_though_it_was_disturbed() -> None:
    """Lessons are priced anew by it: its times of the card are others than the profile had."""
    calm = replace(a_profile((ONE,)), created_at="2026-11-21T09:00:00Z")
    card = replace(a_profile((GPU,)), created_at="2026-11-22T09:00:00Z", noise={"contention": 0.5})
    assert pool([card, calm]).created_at == card.created_at
    beside = replace(a_profile((ONE,)), created_at="2026-11-22T09:00:00Z", noise={"contention": 0.5})
    assert pool([beside, calm, calm]).created_at == calm.created_at


def test_noise_is_that_of_the_device_which_fared_worst() -> None:
    """Calm calibrations of the CPU do not make a disturbed one of the card calm."""
    calm = replace(a_profile((ONE,)), noise={"contention": 0.0, "slow_fraction": 0.1})
    card = replace(a_profile((GPU,)), noise={"contention": 0.6, "slow_fraction": 0.0})
    assert pool([card, calm, calm, calm]).noise == {"contention": 0.6, "slow_fraction": 0.1}


def test_without_plans_of_the_cpu_nothing_is_told_of_its_threads() -> None:
    card = replace(a_profile((GPU,)), noise={"drift": 0.1, "slow_fraction": 0.0})
    assert pool([card, card]).noise == {"drift": 0.1, "slow_fraction": None}


def test_it_travels_and_says_of_how_many_it_is() -> None:
    pooled = pool([in_state(2.0), in_state(1.0)])
    document = json.loads(json.dumps(pooled.to_json()))
    assert len(document["traces"]) == len(NETWORKS)
    assert Profile.from_json(document) == pooled
    assert Profile.from_json({**document, "calibrations": 1}).calibrations == 1
    del document["calibrations"]
    assert Profile.from_json(document).calibrations == 1


def test_threads_are_told_apart() -> None:
    pooled = pool([a_profile([TWO, ONE]), a_profile([ONE, TWO])])
    assert {point.name: point.seconds.median for point in pooled.networks if point.plan == TWO} == pytest.approx(
        {point.name: point.seconds.median for point in a_profile([TWO]).networks}, rel=1e-3
    )
