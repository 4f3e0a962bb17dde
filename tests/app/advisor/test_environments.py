"""An environment is offered, and recommended, only where it was measured to pay."""

from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.curves.winners import winners
from app.advisor.environments import KEEP_BYTES, KEEP_MEMORY, bare, export_lines, gain_of
from probes.hardware import Load
from probes.measurement import Measurement, Overheads, Timing
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import a_profile

KEEPING = replace(TWO, environment=dict(KEEP_MEMORY))
REST = [a_measurement(ONE, 16, 0.9), a_measurement(ONE_BF16, 16, 2.0), a_measurement(TWO_BF16, 16, 1.5)]


def timing(seconds: float, spread: float = 0.01) -> Timing:
    found = a_measurement(TWO, 16, seconds, spread).step
    assert found is not None
    return found


def tried(seconds: float, control: float = 0.6, spread: float = 0.01, **changes: Any) -> Measurement:
    return a_measurement(KEEPING, 16, seconds, spread, **{"control": timing(control, spread), **changes})


def answer(*rows: Measurement, among: float = 0.6, **changes: Any) -> Recommendation:
    survey = changes.pop("survey", a_survey())
    everything = [*REST, a_measurement(TWO, 16, among), *rows]
    return recommend(survey, None, None, everything, Request(a_workload(**changes)))


def plans(found: Recommendation) -> set[object]:
    return {option.plan.key for option in found.options}


def test_an_environment_that_pays_is_recommended_with_its_lines_and_its_gain() -> None:
    found = answer(tried(0.48))
    assert found.recommended == KEEPING
    assert found.to_json()["recommended"]["environment"] == KEEP_MEMORY
    assert found.options[0].step_seconds is not None
    assert found.options[0].step_seconds.median == pytest.approx(0.48)
    assert found.options[0].basis == "measured"
    assert found.settings["environment"] == {"OMP_NUM_THREADS": "2", **KEEP_MEMORY}
    (reason,) = (reason for reason in found.reasons if reason.code == "environment-pays")
    assert reason.evidence["gain"] == pytest.approx(0.2)
    assert reason.evidence["export"] == [f"export {name}={KEEP_BYTES}" for name in sorted(KEEP_MEMORY)]
    assert all(line in reason.text for line in reason.evidence["export"])
    assert found.snippet is not None
    assert all(f"#   {line}" in found.snippet.splitlines() for line in export_lines(KEEPING))
    assert "MALLOC_MMAP_THRESHOLD_" in found.verdict


@pytest.mark.parametrize(
    ("seconds", "spread"),
    [(0.6, 0.01), (0.59, 0.001), (0.7, 0.01), (0.5, 0.4), (0.54, 0.001)],
    ids=["same", "small", "slower", "loud", "as two processes differ"],
)
def test_where_it_does_not_pay_nothing_is_said(seconds: float, spread: float) -> None:
    found, without = answer(tried(seconds, spread=spread)), answer()
    assert found == without
    assert found.recommended == TWO
    assert "MALLOC" not in str(found.to_json())


def over_processes(steps: list[float], controls: list[float], **changes: Any) -> Measurement:
    """One figure of each process, a pair of processes after the other."""
    with_it, without = Timing.from_samples(steps), Timing.from_samples(controls)
    return a_measurement(KEEPING, 16, 0.5, step=with_it, control=without, processes=len(steps), **changes)


def test_a_gain_that_every_pair_of_processes_shows_is_offered_though_one_pair_could_not_tell_it() -> None:
    found = answer(over_processes([0.551, 0.549, 0.55], [0.6, 0.602, 0.598]))
    assert found.recommended == KEEPING
    (reason,) = (reason for reason in found.reasons if reason.code == "environment-pays")
    assert reason.evidence["gain"] == pytest.approx(1 - 0.55 / 0.6, abs=1e-3)
    assert reason.evidence["processes"] == 6
    assert "in 6 fresh processes" in reason.text


@pytest.mark.parametrize(
    ("steps", "controls"),
    [([0.31, 0.31, 0.47], [0.31, 0.47, 0.47]), ([0.4, 0.55], [0.6, 0.58]), ([0.58, 0.57, 0.59], [0.6, 0.6, 0.6])],
    ids=["two kinds of process", "two pairs", "small"],
)
def test_a_gain_within_what_processes_of_one_plan_differ_by_is_not_offered(
    steps: list[float], controls: list[float]
) -> None:
    assert answer(over_processes(steps, controls)) == answer()


def test_a_time_from_several_processes_is_the_bare_plans_less_what_the_pairs_saved_on_average() -> None:
    found = answer(over_processes([0.3, 0.32, 0.4], [0.6, 0.62, 0.78]), among=1.0)
    assert found.options[0].step_seconds is not None
    saved = (0.3 * 0.32 * 0.4 / (0.6 * 0.62 * 0.78)) ** (1 / 3)
    assert found.options[0].step_seconds.median == pytest.approx(saved)


def test_the_parts_of_a_step_with_an_environment_add_up_to_it() -> None:
    """Whatever the bare plan took among the others, and however that was put together."""
    parts = Overheads(transfer_seconds=0.0, launch_seconds=0.18, compute_seconds=0.3)
    for among in (0.4, 0.9):
        best = answer(tried(0.48, overheads=parts), among=among).options[0]
        assert best.plan == KEEPING
        assert best.step_seconds is not None
        assert best.step_seconds.median == pytest.approx(0.8 * among)
        assert best.breakdown_seconds.launch == pytest.approx(0.18 / 0.48 * 0.8 * among)
        assert best.breakdown_seconds.compute == pytest.approx(0.3 / 0.48 * 0.8 * among)


def test_a_first_step_shows_no_gain_and_is_nothing_to_compare_with() -> None:
    assert answer(replace(tried(0.3), steps=1)) == answer()
    begun = replace(a_measurement(TWO, 16, 6.0), steps=1)
    found = recommend(a_survey(), None, None, [*REST, begun, tried(0.48)], Request(a_workload()))
    assert found.options[0].step_seconds is not None
    assert found.options[0].step_seconds.median == pytest.approx(0.48)


def test_a_gain_is_judged_against_its_own_control() -> None:
    found = answer(tried(0.9, control=1.2), among=0.6)
    assert found.recommended == KEEPING
    assert found.options[0].step_seconds is not None
    assert found.options[0].step_seconds.median == pytest.approx(0.45)


def test_a_fast_process_without_a_gain_is_none() -> None:
    assert answer(tried(0.3, control=0.3), among=0.6).recommended == TWO


def test_a_measurement_without_a_control_shows_no_gain() -> None:
    assert gain_of(tried(0.3, control=0.6)) is not None
    assert gain_of(tried(0.3, outcome="failed")) is None
    assert answer(a_measurement(KEEPING, 16, 0.3)).recommended == TWO


def test_a_gain_says_nothing_of_other_batches_or_of_plans_left_out() -> None:
    assert KEEPING.key not in plans(answer(tried(0.3), batch_size=32))
    one_only = recommend(
        a_survey(), None, None, [*REST, tried(0.3)], Request(a_workload(16), precision="bf16", devices=("cpu",))
    )
    assert KEEPING.key not in plans(one_only)


def test_curves_and_crossovers_compare_plans_as_torch_has_them() -> None:
    rows = [a_measurement(plan, 4, seconds) for plan, seconds in ((ONE, 0.3), (TWO, 0.2))]
    found, without = answer(*rows, tried(0.48)), answer(*rows)
    assert found.crossovers == without.crossovers
    assert not any(curve.plan.environment for curve in found.curves)
    assert bare(KEEPING).key in {curve.plan.key for curve in found.curves}


def test_threads_and_precision_are_compared_with_all_else_equal() -> None:
    found, without = answer(tried(0.3)), answer()
    for code in ("threads-help", "precision-hurts"):
        texts = [[reason.text for reason in each.reasons if reason.code == code] for each in (found, without)]
        assert texts[0] == texts[1]


def test_a_gain_is_surer_than_the_two_intervals_say() -> None:
    among = a_measurement(TWO, 16, 0.6, 0.3)
    found = recommend(a_survey(), None, None, [*REST, among, tried(0.5, spread=0.01)], Request(a_workload(16)))
    assert found.recommended == KEEPING


def test_a_map_knows_it_where_it_was_measured() -> None:
    rows = [*REST, a_measurement(TWO, 16, 0.6), a_measurement(TWO, 32, 1.0), tried(0.4)]
    cells = winners(a_survey(gpus=[a_gpu()]), None, None, rows, Request(a_workload(16), devices=("cpu",)), [16, 32])
    assert [cell.plan for cell in cells] == [KEEPING, TWO]


def test_a_map_knows_it_at_every_batch_where_it_was_measured() -> None:
    """Not only at the one that the map was asked with."""
    rows = [*REST, a_measurement(TWO, 16, 0.6), a_measurement(TWO, 32, 1.0), tried(0.4)]
    cells = winners(a_survey(gpus=[a_gpu()]), None, None, rows, Request(a_workload(32), devices=("cpu",)), [16, 32])
    assert [cell.plan for cell in cells] == [KEEPING, TWO]


def test_a_trial_in_another_moment_is_not_taken_for_a_calmer_one() -> None:
    load = Load(busy_fraction=0.5, own_busy_fraction=0.0)
    rows = [a_measurement(ONE, 16, 0.9, others_cores=1.0), a_measurement(TWO, 16, 0.6, others_cores=1.0)]
    survey = replace(a_survey(), load=load)
    found = recommend(survey, None, None, [*rows, tried(0.48, others_cores=0.0)], Request(a_workload(16)))
    assert found.recommended == KEEPING
    assert not any(option.crowded for option in found.options)


def test_a_variant_is_compared_with_what_its_bare_plan_is_told_to_take() -> None:
    """Of calm cores, where who held them later has left."""
    calm = a_measurement(TWO, 16, 0.6, others_cores=0.0, slow_share=0.0, slowdown=1.0)
    crowded = a_measurement(TWO, 16, 3.0, others_cores=2.0)
    survey = replace(a_survey(), load=Load(busy_fraction=0.0, own_busy_fraction=0.0))
    found = recommend(survey, None, None, [*REST, calm, crowded, tried(0.48)], Request(a_workload(16)))
    assert found.recommended == KEEPING
    assert found.options[0].step_seconds is not None
    assert found.options[0].step_seconds.median == pytest.approx(0.48)


def test_channels_last_is_recommended_where_it_pays_with_its_line() -> None:
    plan = replace(TWO, channels_last=True)
    found = answer(replace(tried(0.4), plan=plan))
    assert found.recommended == plan
    assert found.to_json()["recommended"]["channels_last"] is True
    assert found.settings["memory_format"] == "channels_last"
    assert "channels-last-pays" in codes(found)
    assert found.snippet is not None
    assert "model = model.to(device, memory_format=torch.channels_last)" in found.snippet
    assert answer(replace(tried(0.59), plan=plan)) == answer()


def test_of_two_variants_that_pay_the_faster_is_recommended() -> None:
    found = answer(tried(0.5), replace(tried(0.4), plan=replace(TWO, channels_last=True)))
    assert found.recommended == replace(TWO, channels_last=True)
    assert {KEEPING.key, TWO.key} <= plans(found)
    assert "environment-pays" not in codes(found)


COMPILED = replace(TWO, compiled=True)


def compiled(seconds: float = 0.4, startup_seconds: float | None = 19.9) -> Measurement:
    return replace(tried(seconds), plan=COMPILED, startup_seconds=startup_seconds)


def test_a_compiled_plan_that_pays_is_recommended_with_its_price() -> None:
    found = answer(compiled())
    assert found.recommended == COMPILED
    assert found.to_json()["recommended"]["compiled"] is True
    assert found.settings["compile"] is True
    (reason,) = (reason for reason in found.reasons if reason.code == "compile-pays")
    assert reason.evidence["startup_seconds"] == 19.9
    assert reason.evidence["break_even_steps"] == 100
    assert "20 s" in reason.text
    assert "100 steps" in reason.text
    assert found.snippet is not None
    assert "model = torch.compile(model)" in found.snippet.splitlines()
    assert "compiled" in found.verdict


def test_a_run_too_short_to_repay_it_is_not_told_to_compile() -> None:
    found = answer(compiled(), dataset_samples=160, epochs=10)
    assert found.recommended == TWO
    assert COMPILED.key not in plans(found)
    (reason,) = (reason for reason in found.reasons if reason.code == "compile-too-late")
    assert (reason.evidence["steps"], reason.evidence["break_even_steps"]) == (100, 100)
    assert "torch.compile" not in (found.snippet or "")
    assert answer(compiled(), dataset_samples=161, epochs=10).recommended == COMPILED


def test_a_start_is_repaid_against_whatever_else_is_best() -> None:
    """Not against its own control alone: the whole run is what counts."""
    rows = (tried(0.42), compiled(0.4))
    found = answer(*rows, dataset_samples=120 * 16)
    assert found.recommended == KEEPING
    assert COMPILED.key not in plans(found)
    (reason,) = (reason for reason in found.reasons if reason.code == "compile-too-late")
    assert reason.evidence["steps"] == 120
    assert reason.evidence["break_even_steps"] == pytest.approx(19.9 / (0.42 - 0.4), abs=1)
    assert f"steps repay against {KEEPING.label}" in reason.text
    for longer in ({"dataset_samples": 1000 * 16}, {}):
        found = answer(*rows, **longer)
        assert found.recommended == COMPILED
        (reason,) = (reason for reason in found.reasons if reason.code == "compile-pays")
        assert reason.evidence["break_even_steps"] == pytest.approx(19.9 / (0.42 - 0.4), abs=1)


def test_a_start_is_repaid_by_the_times_that_are_told() -> None:
    """Of the plan among the others, which may be far from those of the trial."""
    row = replace(compiled(0.9), control=timing(1.2))
    found = answer(row, among=0.6, dataset_samples=133 * 16)
    assert found.recommended == TWO
    (reason,) = (reason for reason in found.reasons if reason.code == "compile-too-late")
    assert reason.evidence["break_even_steps"] == 133
    assert answer(row, among=0.6, dataset_samples=134 * 16).recommended == COMPILED


def test_a_start_that_no_run_repays_is_no_option_of_one_whose_length_is_told() -> None:
    rows = (tried(0.4), compiled(0.42))
    assert COMPILED.key in plans(answer(*rows))
    found = answer(*rows, dataset_samples=10**6 * 16)
    assert found.recommended == KEEPING
    assert COMPILED.key not in plans(found)
    assert not {"compile-pays", "compile-too-late"} & codes(found)


def test_without_a_time_of_what_is_compiled_the_best_that_has_one_is_what_it_is_held_against() -> None:
    """Nothing else could be recommended instead; and where nothing has a time, what repays it is not known."""
    for rows, steps in (REST, 40), ([], None):
        found = recommend(a_survey(), None, None, [*rows, compiled()], Request(a_workload(dataset_samples=1600)))
        assert found.recommended == COMPILED
        (reason,) = (reason for reason in found.reasons if reason.code == "compile-pays")
        assert reason.evidence["break_even_steps"] == steps
        assert ("steps repay against" in reason.text) is (steps is not None)


@pytest.mark.parametrize("rival", [tried(0.48), a_measurement(TWO_BF16, 16, 0.48)])
def test_of_equals_the_one_to_compile_is_never_the_cheaper(rival: Measurement) -> None:
    rows = [a_measurement(ONE, 16, 0.9), a_measurement(ONE_BF16, 16, 2.0), a_measurement(TWO, 16, 0.6)]
    found = recommend(a_survey(), None, None, [*rows, rival, compiled(0.484)], Request(a_workload()))
    assert found.recommended == rival.plan
    (reason,) = (reason for reason in found.reasons if reason.code == "too-close-to-call")
    assert COMPILED.label in reason.text
    assert "nothing compiled" in reason.text


def test_a_run_whose_length_is_told_counts_compiling() -> None:
    found = answer(compiled(), dataset_samples=16_000)
    (reason,) = (reason for reason in found.reasons if reason.code == "run-time")
    assert reason.evidence["seconds"] == pytest.approx(1000 * 0.4 + 19.9)


def test_compiling_that_does_not_pay_or_has_no_price_is_not_spoken_of() -> None:
    assert answer(compiled(0.59)) == answer()
    assert answer(compiled(startup_seconds=None)) == answer()
    assert answer(compiled(0.59), dataset_samples=16) == answer(dataset_samples=16)


def test_flushing_denormals_is_recommended_where_it_pays_with_its_line() -> None:
    plan = replace(TWO, flush_denormal=True)
    found = answer(replace(tried(0.4), plan=plan))
    assert found.recommended == plan
    assert found.to_json()["recommended"]["flush_denormal"] is True
    assert found.settings["set_flush_denormal"] is True
    assert "flush-denormal-pays" in codes(found)
    lines = (found.snippet or "").splitlines()
    assert lines.index("torch.set_flush_denormal(True)") < lines.index("torch.set_num_threads(2)")
    assert answer(replace(tried(0.59), plan=plan)) == answer()


def test_a_change_stands_in_a_document_only_where_it_is_made() -> None:
    for name in ("channels_last", "compiled", "flush_denormal"):
        plan = replace(TWO, **{name: True})
        assert plan.to_json()[name] is True
        assert Plan.from_json(plan.to_json()) == plan
        assert plan.key != TWO.key
        assert bare(plan) == TWO
        assert name not in TWO.to_json()
    assert Plan.from_json({**TWO.to_json(), "compiled": "yes"}) == TWO


def codes(found: Recommendation) -> set[str]:
    return {reason.code for reason in found.reasons}


def test_documents_without_a_variant_do_not_speak_of_one() -> None:
    assert "channels_last" not in str(a_profile().to_json())
    assert "channels_last" not in str(a_measurement(TWO, 16, 0.6).to_json())
    assert "channels_last" not in str(answer().to_json())


def test_a_gain_is_doubted_against_every_plan_as_against_its_own() -> None:
    """Its time is its share of its plan's: how far that is known counts whatever it is compared with."""
    sure = [a_measurement(ONE, 16, 0.46), *REST[1:], a_measurement(TWO, 16, 0.6)]
    narrow, wide = (
        recommend(a_survey(), None, None, [*sure, tried(0.4, spread=spread)], Request(a_workload()))
        for spread in (0.001, 0.2)
    )
    assert narrow.recommended == wide.recommended == KEEPING
    assert narrow.confidence is not None
    assert wide.confidence is not None
    assert 0.5 < wide.confidence < narrow.confidence < 1.0


@pytest.mark.parametrize("times", [0.5, 3.0])
def test_once_others_have_left_a_variant_takes_its_share_of_what_its_plan_is_told_to_take(times: float) -> None:
    """It was told a fifth of that: what its plan takes without them was foretold, and its own was not."""
    idle = replace(a_survey(), load=Load(steal_fraction=0.0, busy_fraction=0.0, own_busy_fraction=0.0))
    request = Request(a_workload(), "fp32")
    foretold = medians(recommend(idle, a_profile(), None, [], request))
    took = times * foretold[TWO.key]
    rows = [a_measurement(ONE, 16, 4 * took, others_cores=2.0), a_measurement(TWO, 16, took, others_cores=2.0)]
    found = medians(recommend(idle, a_profile(), None, [*rows, tried(0.8 * took, took, others_cores=2.0)], request))
    assert found[KEEPING.key] == pytest.approx(0.8 * found[TWO.key], rel=0.01)


def medians(found: Recommendation) -> dict[object, float]:
    return {o.plan.key: o.step_seconds.median for o in found.options if o.step_seconds is not None}


@pytest.mark.parametrize(("among", "is_told"), [(0.6, False), (0.3, True)])
def test_a_trial_s_time_is_told_apart_from_the_one_that_plans_are_ranked_by(among: float, is_told: bool) -> None:
    """The verdict said another time than the reason, with nothing between them."""
    found = answer(tried(0.48), among=among)
    assert found.recommended == KEEPING
    (reason,) = (reason for reason in found.reasons if reason.code == "environment-pays")
    assert ("beside the other plans, as it is ranked, it is 240 ms" in reason.text) is is_told
