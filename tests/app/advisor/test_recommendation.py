"""The documents that are written by hand hold every field, as `asdict` would have it."""

from dataclasses import asdict

from app.advisor import Request, recommend
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile


def test_every_field_of_an_option_a_crossover_and_a_reason_is_written() -> None:
    measured = [a_measurement(TWO, 16, 0.5, startup_seconds=0.1), a_measurement(GPU, 16, 0.01, startup_seconds=2.0)]
    profile = a_profile((ONE, TWO, ONE_BF16, GPU))
    answer = recommend(a_survey(gpus=[a_gpu()]), profile, None, measured, Request(a_workload()))
    document = answer.to_json()
    for option, written in zip(answer.options, document["options"], strict=True):
        plain = asdict(option)
        # Told in words: by note, why_not, verdict, and the reasons of what is not known.
        del plain["plan"], plain["uncopied_seconds"], plain["slowed"], plain["held"], plain["rests_on_prediction"]
        del plain["ran_out"]
        plan = option.plan.to_json()
        assert written == {**plan, **plain}
        assert list(written) == [*plan, *plain]
    for crossover, written in zip(answer.crossovers, document["crossovers"], strict=True):
        plain = asdict(crossover)
        del plain["start"], plain["to"]
        assert {name: value for name, value in written.items() if name not in ("from", "to")} == plain
    assert document["reasons"] == [asdict(reason) for reason in answer.reasons]
    assert answer.load is not None
    assert document["load"] == asdict(answer.load)
