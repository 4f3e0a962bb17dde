"""Other models' measurements correct a prediction as far as they are like it, and never further than they were off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor import Request, recommend
from app.advisor.recommendation import Interval
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.experience import NOTHING, Experience, Learned, Lesson, learn
from app.advisor.time_model.likeness import likeness
from probes.signature import Signature, signature_of
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_measurement, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

STEP = Signature({"aten.mm forward": 0.7, "aten.relu forward": 0.3}, -6.0, -9.0)
NEAR = Signature({"aten.mm forward": 0.6, "aten.relu forward": 0.4}, -5.5, -8.8)
UNLIKE = Signature({"aten.convolution forward": 0.9, "aten.relu forward": 0.1}, 2.0, -2.0)


def a_lesson(ratio: float, name: str = "a", signature: Signature = NEAR, plan: Plan = ONE) -> Lesson:
    return Lesson(name, "training", plan, signature, math.log(ratio))


def learned(*lessons: Lesson, plan: Plan = ONE) -> Learned:
    return learn(lessons, plan, "training", STEP)


def test_likeness_is_whole_with_itself_mutual_and_small_with_the_unlike() -> None:
    assert likeness(STEP, STEP) == 1.0
    assert likeness(STEP, NEAR) == pytest.approx(likeness(NEAR, STEP))
    assert likeness(STEP, UNLIKE) < 0.01 < 0.5 < likeness(STEP, NEAR)


def test_what_like_steps_took_longer_this_one_is_expected_to_take_longer() -> None:
    one = learned(a_lesson(1.5, "a"))
    three = learned(a_lesson(1.5, "a"), a_lesson(1.5, "b"), a_lesson(1.5, "c"))
    assert 1.0 < math.exp(one.log_ratio) < math.exp(three.log_ratio) < 1.5


def test_an_unlike_step_teaches_nothing() -> None:
    assert learned(a_lesson(3.0, signature=UNLIKE)) == NOTHING


def test_another_device_teaches_nothing() -> None:
    assert learned(a_lesson(1.5, plan=GPU)) == NOTHING


def test_a_card_that_is_alike_teaches_as_much_as_the_same() -> None:
    lesson, twin = a_lesson(1.5, plan=GPU), replace(GPU, device="cuda:1")
    alike = learn([lesson], twin, "training", STEP, kinds={"cuda:0": "kind", "cuda:1": "kind"})
    assert alike == learned(lesson, plan=GPU) != NOTHING
    assert learn([lesson], twin, "training", STEP, kinds={"cuda:0": "kind", "cuda:1": "other"}) == NOTHING


def test_of_a_workloads_lessons_the_same_plans_count_for_most_and_then_those_of_other_threads() -> None:
    same, threads, precision = (
        learned(a_lesson(1.5, plan=plan), a_lesson(1.0, plan=TWO_BF16)).log_ratio for plan in (ONE, TWO, ONE_BF16)
    )
    assert same > threads > precision > 0


def test_what_a_workload_taught_of_some_plans_alone_puts_no_other_plan_before_them() -> None:
    """Of a run in a crowd often one plan teaches; the longer it took, the better looked what it had outrun."""
    lessons = [a_lesson(1.85, "one plan"), a_lesson(0.9, "both"), a_lesson(1.2, "both", plan=ONE_BF16)]
    plans = (ONE, TWO, ONE_BF16, TWO_BF16)
    told = [learned(lessons[0], plan=plan).log_ratio for plan in plans]
    assert told == pytest.approx([told[0]] * len(plans))
    alone, beside = (
        learned(*rows, plan=ONE_BF16).log_ratio - learned(*rows).log_ratio for rows in (lessons[1:], lessons)
    )
    assert alone > beside > 0


def test_a_workload_has_one_voice_however_often_it_was_measured() -> None:
    once = learned(a_lesson(2.0, "often"), a_lesson(1.0, "b"))
    often = learned(*[a_lesson(2.0, "often")] * 50, a_lesson(1.0, "b"))
    assert often.log_ratio == pytest.approx(once.log_ratio)


def test_what_is_off_by_a_factor_of_hundreds_is_not_learned_from() -> None:
    assert learned(a_lesson(500.0)) == NOTHING
    assert learned(a_lesson(1e-6)) == NOTHING


@given(st.lists(st.tuples(st.floats(0.11, 9.0), st.sampled_from("abcdef"), st.sampled_from([STEP, NEAR, UNLIKE]))))
def test_no_estimate_moves_further_than_others_were_off(rows: list[tuple[float, str, Signature]]) -> None:
    found = learned(*(a_lesson(ratio, name, signature) for ratio, name, signature in rows))
    assert abs(found.log_ratio) <= max((abs(math.log(ratio)) for ratio, _, _ in rows), default=0.0) + 1e-9


def test_workloads_that_agree_narrow_the_interval_and_those_that_do_not_widen_it() -> None:
    agree = learned(*(a_lesson(1.2, name, STEP) for name in "abcdef"))
    scattered = learned(*(a_lesson(ratio, name, STEP) for name, ratio in zip("abcdef", (0.3, 3.0) * 3, strict=True)))
    assert agree.spread(0.3) < 0.3 < scattered.spread(0.3)
    assert NOTHING.spread(0.3) == pytest.approx(0.3)


def an_experience(ratio: float, batch_size: int = 16, plans: Sequence[Plan] = (ONE, TWO)) -> Experience:
    """Of three workloads nearly like the one asked for, each off by this."""
    lessons = []
    for number in range(3):
        other = trace_of_summary(replace(a_workload(), model=a_summary(parameters=25_000_000 + number)))
        signature = signature_of(other, batch_size)
        assert signature is not None
        lessons += [Lesson(f"w{number}", "training", plan, signature, math.log(ratio)) for plan in plans]
    return Experience(lessons, trace_of_summary(a_workload()))


def test_what_may_be_far_quicker_than_told_may_be_so_when_it_is_corrected_too() -> None:
    told = Interval(1.0, 0.1, 1.2)
    corrected = Learned(math.log(2), 0.5, 0.1).correct(told)
    assert corrected.median == pytest.approx(2.0)
    assert corrected.median / corrected.low > 5
    assert corrected.high / corrected.median < 1.25


def test_an_answer_says_what_it_learned_from_how_many_and_by_how_much() -> None:
    question = Request(a_workload())
    without = recommend(a_survey(), a_profile(), None, [], question)
    with_it = recommend(a_survey(), a_profile(), None, [], question, an_experience(1.5))
    before, after = ({option.plan.key: option for option in answer.options}[TWO.key] for answer in (without, with_it))
    assert before.step_seconds is not None
    assert after.step_seconds is not None
    assert after.basis == "predicted"
    assert 1.2 < after.step_seconds.median / before.step_seconds.median < 1.5
    (reason,) = [reason for reason in with_it.reasons if reason.code == "learned-from-like-models"]
    assert reason.evidence["workloads"] == 3
    assert 1.2 < reason.evidence["factor"] < 1.5
    assert "longer than profile and trace predict" in reason.text
    assert all(reason.code != "learned-from-like-models" for reason in without.reasons)


def test_an_answer_tells_only_of_those_that_are_like_it() -> None:
    like = an_experience(1.5)
    unlike = [Lesson(f"u{number}", "training", TWO, UNLIKE, math.log(3.0)) for number in range(20)]
    wild = [Lesson("wild", "training", TWO, like.lessons[0].signature, math.log(500.0))]
    more = Experience([*like.lessons, *unlike, *wild], like.trace)
    answer = recommend(a_survey(), a_profile(), None, [], Request(a_workload()), more)
    (reason,) = [reason for reason in answer.reasons if reason.code == "learned-from-like-models"]
    assert (reason.evidence["workloads"], reason.evidence["measurements"]) == (3, 6)
    assert reason.text.startswith("The time is")
    assert "because 3 other workloads that ran here" in reason.text


def test_a_batch_far_from_those_that_ran_is_corrected_less() -> None:
    experience = an_experience(1.5, batch_size=16)
    near, far = (experience.at(TWO, batch).log_ratio for batch in (16, 65536))
    assert near > far >= 0


def test_its_own_measurements_say_more_than_those_of_others() -> None:
    """Also under the device's other plans, which they correct."""
    rows = [a_measurement(TWO, 16, 1.0)]
    answers = [recommend(a_survey(), a_profile(), None, rows, Request(a_workload()), more)
               for more in (None, an_experience(3.0))]  # fmt: skip
    assert answers[0].to_json() == answers[1].to_json()


@pytest.mark.parametrize("ran", [False, True])
def test_a_measurement_that_is_carried_far_is_not_said_to_be_what_others_taught(*, ran: bool) -> None:
    """Nor is it corrected by them, though it was taken beside others on the card, and corrects no other plan."""
    rows = [a_measurement(GPU, 32, 0.5, device_busy_fraction=0.97)] if ran else []
    question = Request(a_workload(128), "fp32", ("cuda",))
    survey, profile = a_survey(gpus=[a_gpu()]), a_profile((ONE, GPU))
    experience = an_experience(1.5, batch_size=128, plans=(GPU,))
    without, found = (recommend(survey, profile, None, rows, question, more) for more in (None, experience))
    assert [option.basis for option in found.options] == ["predicted"]
    assert (without.options == found.options) is ran
    assert ("learned-from-like-models" in {reason.code for reason in found.reasons}) is not ran


def test_without_a_profile_nothing_is_made_of_others() -> None:
    answers = [
        recommend(a_survey(), None, None, [], Request(a_workload()), more) for more in (None, an_experience(3.0))
    ]
    assert answers[0].to_json() == answers[1].to_json()


def test_another_machines_answer_learns_nothing_here() -> None:
    question = Request(a_workload(), profile="made-up")
    elsewhere = a_profile(fingerprint="another")
    answers = [recommend(a_survey(), elsewhere, None, [], question, more) for more in (None, an_experience(3.0))]
    assert answers[0].to_json() == answers[1].to_json()


def test_the_workloads_that_taught_are_told_whichever_of_their_plans_did() -> None:
    trace = trace_of_summary(a_workload())
    signature = signature_of(trace, 16)
    assert signature is not None
    same = a_lesson(0.9, "same plan", signature)
    other = replace(a_lesson(3.0, "other plan", signature, TWO_BF16), mode="inference")
    experience = Experience((same, other), trace)
    assert experience.at(ONE, 16).log_ratio > 0  # by what the other plan took
    assert set(experience.voices(ONE, 16)) == {"same plan", "other plan"}
