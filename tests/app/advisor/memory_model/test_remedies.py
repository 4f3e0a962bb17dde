"""What would make a workload fit is said with what it saves."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor import Request, recommend
from app.advisor.memory_model.memory import estimate_memory
from app.advisor.memory_model.remedies import (
    CHECKPOINTING,
    LIGHTER,
    SMALLER,
    Remedy,
    is_checkpointed,
    remedies_for,
    say_remedies,
)
from app.advisor.recommendation import Breakdown, Option
from app.advisor.summary import trace_of_summary
from probes.microtrain.tracing import trace_workload
from probes.trace import Affine, Trace
from probes.workload.description import Plan, Workload
from probes.workload.models import python_model
from tests.app.advisor.build import ONE, ONE_BF16, a_survey, a_workload
from tests.app.advisor.machine import a_profile

GB = 10**9


def traced(workload: Workload) -> Trace:
    return replace(
        trace_of_summary(workload), activation_peaks=(Affine(0.0, 100e6),), autocast_peaks=(Affine(0.0, 60e6),)
    )


def an_option(workload: Workload, plan: Plan = ONE, available: int = GB) -> Option:
    memory = replace(estimate_memory(None, None, traced(workload), [], plan), overhead=0, available=available)
    parts, largest = memory.parts(workload.batch_size), memory.max_batch_size()
    return Option(plan, False, "", None, None, None, Breakdown(), parts, largest, held=memory.stretches())


def found(workload: Workload, plan: Plan = ONE, available: int = GB) -> dict[str, Remedy]:
    option = an_option(workload, plan, available)
    return {remedy.change: remedy for remedy in remedies_for(option, traced(workload), workload)}


def test_each_change_is_told_with_the_bytes_that_it_saves() -> None:
    remedies = found(a_workload(16))
    assert remedies["bf16"].saves_bytes == 16 * 40e6
    assert remedies["the optimizer sgd"].saves_bytes == 200_000_000
    assert remedies["a batch of 6"] == Remedy("a batch of 6", 1_000_000_000, fits=True)
    assert remedies["bf16"].fits is False  # 1.6 GB of activations and 0.4 GB of the rest, in 1 GB


def test_what_a_step_takes_with_a_change_is_told_where_that_is_enough_and_it_is_known() -> None:
    """By checkpointing a step computes its forward twice: of this one a third."""

    def seconds(plan: Plan, batch_size: int) -> float | None:
        return batch_size * (2e-3 if plan.precision == "bf16" else 3e-3)

    workload, trace = a_workload(16), traced(a_workload(16))
    shares = {"forward": 1.0, "backward": 2.0}
    operations = [
        replace(each, phase=phase, flops=Affine(0.0, share * 1e9))
        for each in trace.operations[:1]
        for phase, share in shares.items()
    ]
    trace = replace(trace, operations=tuple(operations))

    def told(available: int) -> dict[str, float | None]:
        option = an_option(workload, available=available)
        return {r.change: r.step_seconds for r in remedies_for(option, trace, workload, step_seconds=seconds)}

    little, much = told(GB), told(17 * GB // 10)  # 1.0 and 0.3 GB are missing
    assert little["a batch of 6"] == pytest.approx(6 * 3e-3)
    assert (little["bf16"], little[LIGHTER]) == (None, None)
    assert much["bf16"] == pytest.approx(16 * 2e-3)
    assert much[CHECKPOINTING] == pytest.approx(16 * 3e-3 * 4 / 3)
    remedies = remedies_for(an_option(workload, available=17 * GB // 10), trace, workload, step_seconds=seconds)
    assert ", enough, 32 ms a step)" in say_remedies(remedies)
    assert ", enough, about 64 ms a step)" in say_remedies(remedies)


def test_an_answer_tells_what_a_step_takes_at_a_batch_that_fits() -> None:
    workload = a_workload(64)
    survey = a_survey(usable_bytes=3 * GB // 2)
    found = recommend(survey, a_profile((ONE,)), None, [], Request(workload, "fp32"))
    (reason,) = (reason for reason in found.reasons if reason.code == "does-not-fit")
    (smaller,) = (each for each in reason.evidence["remedies"] if each["change"].startswith(SMALLER))
    batch_size = int(smaller["change"].removeprefix(SMALLER))
    again = recommend(survey, a_profile((ONE,)), None, [], Request(replace(workload, batch_size=batch_size), "fp32"))
    assert again.options[0].fits
    assert again.options[0].step_seconds is not None
    assert smaller["step_seconds"] == pytest.approx(again.options[0].step_seconds.median)


def test_two_changes_are_told_where_neither_keeps_the_batch_alone_and_both_do() -> None:
    remedies = found(a_workload(16), available=7 * GB // 10)  # 1.3 GB are missing
    alone = [remedy for change, remedy in remedies.items() if " and " not in change and "batch" not in change]
    assert not any(remedy.fits for remedy in alone)
    (both,) = [remedy for change, remedy in remedies.items() if " and " in change]
    assert both.fits
    assert both.change.startswith("the optimizer sgd and ")
    most = max(remedy.saves_bytes for remedy in alone if "sgd" not in remedy.change)
    assert both.saves_bytes == 200_000_000 + most


@pytest.mark.parametrize(("optimizer", "available"), [("adamw", 19 * GB // 10), ("adamw", GB // 2), ("sgd", GB)])
def test_two_changes_are_not_told_where_one_does_or_both_do_not(optimizer: str, available: int) -> None:
    assert not any(" and " in change for change in found(a_workload(16, optimizer=optimizer), available=available))


def test_checkpointing_saves_less_than_all_activations() -> None:
    (remedy,) = [r for change, r in found(a_workload(16)).items() if "checkpointing" in change]
    assert 0 < remedy.saves_bytes < 16 * 100e6


def test_checkpointing_gains_nothing_where_one_layer_holds_most() -> None:
    workload = a_workload(16)
    trace = traced(workload)
    largest = max(operation.written_bytes.at(16) for operation in trace.operations)
    like = next(operation for operation in trace.operations if operation.kind == "matmul")
    first = replace(like, count=1, written_bytes=Affine(0.0, 100 * largest))
    back = replace(like, phase="backward", count=2 * (like.count + 1))
    steps = replace(trace, operations=(first, like, back))
    assert not any("checkpointing" in r.change for r in remedies_for(an_option(workload), steps, workload))


def test_checkpointing_saves_nothing_of_what_is_frozen() -> None:
    """It keeps nothing for a backward that it has not."""
    workload = a_workload(16)
    trace = traced(workload)
    head = [
        replace(each, count=1) if each.phase == "backward" and each.kind == "matmul" else each
        for each in trace.operations
    ]
    frozen = replace(trace, operations=tuple(head))
    assert not any("checkpointing" in r.change for r in remedies_for(an_option(workload), frozen, workload))


def test_an_optimizer_s_own_step_is_saved_by_another_optimizer_and_not_by_checkpointing() -> None:
    workload = a_workload(1)
    held = replace(traced(workload), update_peaks=(Affine(900e6, 0.0),))
    memory = replace(estimate_memory(None, None, held, [], ONE), overhead=0, available=GB)
    option = replace(an_option(workload), memory=memory.parts(1), held=memory.stretches())
    remedies = {remedy.change: remedy for remedy in remedies_for(option, held, workload)}
    assert not any("checkpointing" in change or change == "bf16" for change in remedies)
    assert remedies[LIGHTER].saves_bytes == 200_000_000 + 800_000_000  # the step takes 100 MB itself
    assert remedies[LIGHTER].fits


def test_what_is_chosen_already_is_no_remedy() -> None:
    assert "bf16" not in found(a_workload(16), ONE_BF16)
    assert "the optimizer sgd" not in found(a_workload(16, optimizer="sgd"))
    assert not any("checkpointing" in change for change in found(a_workload(16, mode="inference")))


def test_without_known_memory_no_change_is_said_to_be_enough() -> None:
    workload = a_workload(16)
    option = an_option(workload)
    unknown = replace(option, memory=replace(option.memory, available_bytes=None))
    assert {remedy.fits for remedy in remedies_for(unknown, traced(workload), workload)} == {None}


@pytest.mark.parametrize(("fits", "word"), [(True, ", enough"), (False, ""), (None, "")])
def test_the_sentence_says_which_change_is_enough(fits: bool | None, word: str) -> None:
    assert say_remedies((Remedy("bf16", 2 * GB, fits),)) == f" What saves memory: bf16 (2.0 GB{word})."
    assert say_remedies(()) == ""


def test_a_smaller_batch_is_a_smaller_one_ahead_as_well() -> None:
    workload, card = a_workload(16, data="pinned"), Plan("cuda:0")
    trace = replace(traced(workload), input_bytes=Affine(0.0, 50e6))
    memory = replace(estimate_memory(None, None, trace, [], card, data="pinned"), overhead=0, available=GB)
    option = replace(an_option(workload, card), memory=memory.parts(16), held=memory.stretches())
    smaller = next(remedy for remedy in remedies_for(option, trace, workload) if "batch" in remedy.change)
    assert smaller == Remedy("a batch of 4", 12 * 150_000_000, fits=True)


def test_a_precision_is_told_that_the_device_has_for_it() -> None:
    workload = a_workload(16)
    option = an_option(workload)
    changes = [{r.change for r in remedies_for(option, traced(workload), workload, half)} for half in ("fp16", None)]
    assert "fp16" in changes[0]
    assert not {"bf16", "fp16"} & changes[1]
    assert "bf16" not in changes[0]


def test_a_device_is_told_what_its_own_step_saves() -> None:
    workload, card = a_workload(16), Plan("cuda:0")
    there = replace(traced(workload), activation_peaks=(Affine(0.0, 200e6),), autocast_peaks=(Affine(0.0, 50e6),))
    trace = replace(traced(workload), device=there)
    saved = [
        next(r.saves_bytes for r in remedies_for(an_option(workload, plan), trace, workload) if r.change == "bf16")
        for plan in (ONE, card)
    ]
    assert saved == [16 * 40e6, 16 * 150e6]


def test_sgd_saves_what_an_optimizer_of_a_device_holds_at_once_as_well() -> None:
    workload, card = a_workload(1), Plan("cuda:0")
    trace = replace(traced(workload), activation_peaks=(Affine(0.0, 60e6),))
    saved = {
        plan.device: next(
            r.saves_bytes for r in remedies_for(an_option(workload, plan), trace, workload) if r.change == LIGHTER
        )
        for plan in (ONE, card)
    }
    beside = 100_000_000 + trace.input_bytes.at(1)
    assert saved == {"cpu": 200_000_000, "cuda:0": 200_000_000 + beside - 60_000_000}


CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stack(nn.Module):
    def __init__(self, again):
        super().__init__()
        layers = (nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(8))
        self.layers, self.again = nn.ModuleList(layers), again

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return x


def checkpointed():
    return Stack(True), lambda n: (torch.randn(n, 64), torch.randint(0, 64, (n,)))


def plain():
    return Stack(False), lambda n: (torch.randn(n, 64), torch.randint(0, 64, (n,)))
"""


@pytest.mark.parametrize("name", ["checkpointed", "plain"])
def test_checkpointing_is_no_remedy_for_what_checkpoints_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The activations that it would save are gone."""
    (tmp_path / "stacks_of_layers.py").write_text(CHECKPOINTED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = Workload(python_model(f"stacks_of_layers:{name}"), 4096)
    trace = trace_workload(workload)
    memory = replace(estimate_memory(None, None, trace, [], ONE), overhead=0, available=10**6)
    option = Option(ONE, False, "", None, None, None, Breakdown(), memory.parts(4096), None)
    changes = {remedy.change for remedy in remedies_for(option, trace, workload)}
    assert "the optimizer sgd" in changes  # bf16 saves nothing where its kernels take as much inside (AMX)
    assert ("gradient checkpointing" in changes) is (name == "plain")
    assert is_checkpointed(trace) is (name == "checkpointed")
