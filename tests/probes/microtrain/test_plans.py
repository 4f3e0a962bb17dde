"""Which plans are worth measuring, and which this process cannot run."""

import pytest
import torch

from probes.limits import UsableCores
from probes.microtrain import plans
from probes.microtrain.plans import (
    Cores,
    cuda_plans,
    fewer_thread_counts,
    read_cores,
    sensible_plans,
    thread_counts,
    why_impossible,
    why_never,
)
from probes.topology import Topology
from probes.workload.description import Plan


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (Cores(1, 1), (1,)),
        (Cores(2, 2), (1, 2)),
        (Cores(8, 4), (1, 2, 4, 8)),
        (Cores(24, 16), (1, 2, 4, 8, 16, 24)),
        (Cores(4, 64), (1, 2, 4)),
        (Cores(6), (1, 2, 4, 6)),
    ],
)
def test_threads_never_outnumber_the_usable_cores(cores: Cores, expected: tuple[int, ...]) -> None:
    assert thread_counts(cores) == expected


def test_fewer_counts_keep_both_ends() -> None:
    assert fewer_thread_counts((1, 2, 4, 8, 16, 32, 64), 4) == (1, 4, 16, 64)
    assert fewer_thread_counts((1, 2), 4) == (1, 2)


def test_this_machine_has_cores() -> None:
    cores = read_cores()
    assert cores.usable >= 1
    assert Plan("cpu", "fp32", 1) in sensible_plans(cores)


def test_of_some_cpus_only_the_cores_that_they_are_of_count(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Topology(0xFF, tuple(0b11 << first for first in range(0, 8, 2)), 1)
    monkeypatch.setattr(plans, "read_topology", lambda *_: whole)
    for some, physical in ((None, 4), (0b1111, 2), (0b0101, 2)):
        usable = UsableCores(4.0, "affinity", 4, some)
        monkeypatch.setattr(plans, "read_usable_cores", lambda *_, usable=usable: usable)
        assert read_cores() == Cores(4, physical)


@pytest.mark.parametrize(
    ("capability", "precisions"), [((8, 6), ("fp32", "tf32", "bf16", "fp16")), ((7, 5), ("fp32", "fp16"))]
)
def test_tensor_cores_decide_a_cards_precisions(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], precisions: tuple[str, ...]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(plans, "capability_of", lambda device: capability)
    assert tuple(plan.precision for plan in cuda_plans()) == precisions
    assert {plan.device for plan in cuda_plans()} == {"cuda:0"}


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError])
def test_a_cuda_that_does_not_start_has_no_plans_and_the_cpu_has(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """torch counts the driver's cards before it starts CUDA."""

    def no_cuda(device: str) -> tuple[int, int]:
        raise kind("The NVIDIA driver on your system is too old (found version 12020).")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(plans, "capability_of", no_cuda)
    assert cuda_plans() == ()
    assert {plan.device for plan in sensible_plans(Cores(2))} == {"cpu"}


def test_only_the_devices_asked_for_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def capability(device: str) -> tuple[int, int]:
        asked.append(device)
        return (8, 6)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(plans, "capability_of", capability)
    assert {plan.device for plan in cuda_plans(["cpu", "cuda:1"])} == {"cuda:1"}
    assert cuda_plans(["cpu"]) == ()
    assert asked == ["cuda:1"]


def test_a_plan_that_can_run_has_nothing_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    assert why_impossible(Plan("cpu", "bf16", 2, {"MALLOC_TOP_PAD_": "1"}), Cores(2)) is None


@pytest.mark.parametrize(
    "plan",
    [
        Plan("cpu", "fp32", 3),
        Plan("cpu", "fp32", 0),
        Plan("cpu", "tf32", 1),
        Plan("cpu", "fp12", 1),  # type: ignore[arg-type]
        Plan("cuda:63"),
        Plan("tpu"),
        Plan("cpu", "fp32", 1, {"A_VARIABLE_THAT_IS_NOT_SET": "1"}),
    ],
)
def test_a_plan_that_cannot_run_is_told_why(plan: Plan) -> None:
    assert (why_impossible(plan, Cores(2)) or "").endswith(".")


def test_what_a_process_may_use_for_a_moment_is_told_from_what_none_can_do() -> None:
    assert why_never(Plan("cpu", "tf32", 3)) == why_impossible(Plan("cpu", "tf32", 3), Cores(2))
    assert [why_never(plan) for plan in (Plan("cpu", "fp32", 3), Plan("cuda:63"))] == [None, None]
