"""A recommendation as text."""

from dataclasses import replace

import pytest

from app.advisor.recommendation import (
    Breakdown,
    Crossover,
    Interval,
    MemoryParts,
    Option,
    Reason,
    Recommendation,
)
from app.cli.recommend import measurement_failed
from app.cli.recommend_view import describe_crossover, describe_crossovers, show_recommendation
from probes.workload.description import Mode, ModelDescription, Plan, Workload

ONE = Plan("cpu", "fp32", 1)
TWO = Plan("cpu", "fp32", 2)
GPU = Plan("cuda:0", "bf16")
CROSSOVER = Crossover(TWO, GPU, "pinned", "at", 3, 2, 4, 12, 90, "probed", (2, 4096))


def option(plan: Plan, seconds: float | None, fits: bool | None = True, note: str | None = None) -> Option:
    return Option(
        plan=plan,
        fits=fits,
        why_not=None if fits is not False else "It needs 3 GB more memory than there is; batch 8 would fit.",
        basis="measured" if seconds else None,
        step_seconds=Interval(seconds, seconds * 0.9, seconds * 1.1) if seconds else None,
        samples_per_second=64 / seconds if seconds else None,
        breakdown_seconds=Breakdown(),
        memory=MemoryParts(peak_bytes=4_000_000_000, available_bytes=13_000_000_000),
        max_batch_size=410,
        note=note,
    )


def recommendation(*options: Option) -> Recommendation:
    return Recommendation(
        workload=Workload(ModelDescription("summary", "resnet-50", {}), batch_size=64),
        parameters=25_557_032,
        flops_per_step=1_570_000_000_000,
        recommended=options[0].plan,
        verdict="Train on cuda:0 in bf16: 31 ms a step.",
        confidence=0.99,
        options=options,
        crossovers=(CROSSOVER,),
        curve_batch_sizes=(),
        curves=(),
        settings={"num_workers": 4, "environment": {"OMP_NUM_THREADS": "2"}},
        reasons=(Reason("compute-bound", "The device is the limit."),),
        snippet="import torch\ndevice = torch.device('cuda:0')\n",
    )


def show(answer: Recommendation, capsys: pytest.CaptureFixture[str]) -> str:
    show_recommendation(answer.to_json())
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "possible", "failed"),
    [("not-measured", True, True), ("not-measured", False, False), ("compute-bound", True, False)],
)
def test_a_measurement_that_was_asked_for_and_failed_is_known_to_the_caller(
    code: str, possible: bool, failed: bool
) -> None:
    reason = Reason(code, "…", {"possible": possible})
    answer = replace(recommendation(option(GPU, 0.031)), reasons=(reason,))
    assert measurement_failed(answer.reasons) is failed


def test_the_verdict_comes_first_and_the_snippet_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(recommendation(option(GPU, 0.031), option(TWO, 0.43)), capsys)
    assert out.startswith("Train on cuda:0 in bf16: 31 ms a step.\n")
    assert "import torch\ndevice = torch.device('cuda:0')\n" in out


@pytest.mark.parametrize(
    ("mode", "parameters", "words"),
    [
        ("training", 25_557_032, "25.6 million parameters"),
        ("training", 65_536, "65.5 thousand of 25.6 million parameters trained"),
        ("inference", 0, "25.6 million parameters"),
    ],
)
def test_of_parameters_that_are_not_all_trained_both_counts_are_told(
    mode: Mode, parameters: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model frozen for serving was said to have none."""
    answer = recommendation(option(GPU, 0.031))
    workload = replace(answer.workload, mode=mode)
    answer = replace(answer, workload=workload, parameters=parameters, all_parameters=25_557_032)
    assert f"; {words};" in " ".join(show(answer, capsys).split())


def test_options_keep_their_order_and_show_time_rate_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(recommendation(option(GPU, 0.031), option(TWO, 0.43)), capsys)
    assert out.index("cuda:0 bf16 ") < out.index("cpu fp32, 2 threads ")
    assert "31 ms (27.9 to 34.1)" in out
    assert "2065" in out
    assert "4 GB of 13 GB" in out


def test_before_a_calibration_memory_is_what_torch_allocates_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    """A largest batch stood beside a memory that was said not to be known."""
    told = MemoryParts(available_bytes=17_300_000_000, allocated_peak_bytes=64_800_000)
    assert "over 64.8 MB of 17.3 GB" in show(recommendation(replace(option(GPU, None), memory=told)), capsys)


def test_what_does_not_fit_says_so_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(recommendation(option(TWO, 0.43), option(GPU, None, fits=False)), capsys)
    assert "does not fit" in out
    assert "cuda:0 bf16: It needs 3 GB more memory" in out


def test_an_unknown_time_is_a_question_mark_and_its_reason_stands_once(capsys: pytest.CaptureFixture[str]) -> None:
    note = "No profile of this machine is stored: run crosspoint calibrate."
    out = show(recommendation(option(ONE, None, note=note), option(TWO, None, note=note)), capsys)
    assert out.count("No profile of this machine") == 1
    assert "?" in out


def test_settings_with_parts_are_shown_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(recommendation(option(GPU, 0.031)), capsys)
    assert "OMP_NUM_THREADS 2" in out


def test_a_narrow_terminal_shows_every_plan_and_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = show(recommendation(option(GPU, 0.031), option(TWO, 0.43)), capsys)
    table = out[: out.index("Crossovers")]
    assert max(map(len, table.splitlines())) <= 40
    assert "cuda:0" in table
    assert "430" in table


@pytest.mark.parametrize(("kind", "told"), [("at", False), ("undecided", True), ("always", False), ("never", False)])
def test_the_likeliest_batch_is_told_where_it_is_not_certain(kind: str, told: bool) -> None:
    crossover = replace(CROSSOVER, kind=kind, medians_cross_at=3)  # type: ignore[arg-type]
    assert ("likeliest from batch 3 on" in describe_crossover(crossover.to_json())) is told


@pytest.mark.parametrize(
    ("until", "at_largest", "words"),
    [(12, False, "until batch 12"), (None, True, "up to the largest batch"), (1, False, None), (None, None, None)],
)
def test_how_far_a_device_waits_for_the_host_is_told_where_it_is_known(
    until: int | None, at_largest: bool | None, words: str | None
) -> None:
    crossover = replace(CROSSOVER, launch_bound_until=until, launch_bound_at_largest=at_largest)
    sentence = describe_crossover(crossover.to_json())
    assert f"limited by launching {words}" in sentence if words else "limited" not in sentence


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("at", "cuda:0 bf16 overtakes cpu fp32, 2 threads at batch 3 (2 to 4)"),
        ("always", "cuda:0 bf16 is faster than cpu fp32, 2 threads at every batch looked at, from 2 to 4096"),
        ("never", "cuda:0 bf16 does not overtake cpu fp32, 2 threads for good from batch 2 to 4096"),
        ("never", "it is slower at the largest"),
        ("undecided", "for good cannot be told: at batch 4096, the largest looked at, their times overlap"),
    ],
)
def test_a_crossover_is_a_sentence_that_says_no_more_than_its_kind(kind: str, words: str) -> None:
    crossover = replace(CROSSOVER, kind=kind)  # type: ignore[arg-type]
    if kind != "at":
        crossover = replace(crossover, batch_size=None, low=None, high=None)
    sentence = describe_crossover(crossover.to_json())
    assert words in sentence
    assert sentence.endswith(
        "(data pinned, probed, limited by launching until batch 12, start-up repaid after 90 steps)."
    )


def test_other_ways_of_feeding_a_device_are_told_beside_the_one_that_was_asked_for() -> None:
    """One sentence a pair: with a card there were forty bullets."""
    ways = (
        replace(CROSSOVER, data="resident", low=None, high=None),
        replace(CROSSOVER, data="pinned"),
        replace(CROSSOVER, data="pageable", kind="never", batch_size=None, low=None, high=None),
    )
    threads = Crossover(ONE, TWO, "pinned", "always", None, None, None, None, None, "probed", (1, 64))
    rows = [row.to_json() for row in (*ways, threads)]
    first, second = describe_crossovers(rows, "pinned")
    assert first.startswith("cuda:0 bf16 overtakes cpu fp32, 2 threads at batch 3 (2 to 4) (data pinned, probed,")
    assert first.endswith("); at batch 3 with data resident; not for good with data pageable.")
    assert second.endswith("from 1 to 64 (data pinned, probed).")
    alike, _ = describe_crossovers([{**rows[1], "data": "resident"}, *rows[1:]], "pinned")
    assert alike.endswith("); the same with data resident; not for good with data pageable.")
    (untold,) = describe_crossovers(rows[:2], "pageable")
    assert untold.startswith("cuda:0 bf16 overtakes cpu fp32, 2 threads at batch 3 (data resident,")
