from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor import recommend
from app.advisor.plans import candidate_plans, find_devices, thread_counts
from app.advisor.recommendation import Reason, Recommendation
from app.advisor.request import InvalidRequest, Request
from probes.hardware import Accelerator, CoreCluster, Cpu, Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

TURING = a_gpu(name="Tesla T4", compute_capability="7.5")


def labels(plans: object) -> list[str]:
    return [plan.label for plan in plans]  # type: ignore[attr-defined]


def test_two_cores_give_one_thread_and_two_in_both_precisions() -> None:
    assert labels(candidate_plans(a_survey(), Request(a_workload()))) == [
        "cpu fp32, 1 thread",
        "cpu bf16, 1 thread",
        "cpu fp32, 2 threads",
        "cpu bf16, 2 threads",
    ]


def test_a_big_machine_gets_the_powers_of_two_between() -> None:
    assert thread_counts(Cpu(physical_cores=24, logical_cores=48, usable_cores=48.0)) == (1, 2, 4, 8, 16, 24, 32, 48)


def test_a_quota_of_four_cores_on_a_big_host_is_never_exceeded() -> None:
    assert thread_counts(Cpu(physical_cores=64, logical_cores=128, usable_cores=4.0)) == (1, 2, 4)


def test_a_cpuset_of_whole_cores_is_asked_with_a_thread_on_each() -> None:
    """Six cores of 48, as Kubernetes's static CPU manager or Slurm gives them: 0-5,48-53."""
    left = CoreCluster(physical_cores=48, logical_cores=96, allowed_physical_cores=6, allowed_logical_cores=12)
    cpu = Cpu(physical_cores=48, logical_cores=96, usable_cores=12.0, clusters=(left,))
    assert thread_counts(cpu) == thread_counts(Cpu(physical_cores=6, logical_cores=12, usable_cores=12.0))
    assert 6 in thread_counts(cpu)


def test_a_quota_below_two_cores_leaves_one_thread() -> None:
    assert thread_counts(Cpu(physical_cores=8, logical_cores=16, usable_cores=1.9)) == (1,)
    assert thread_counts(Cpu(physical_cores=8, logical_cores=16, usable_cores=0.5)) == (1,)


def test_a_machine_that_hides_its_cores_still_has_one_thread() -> None:
    assert thread_counts(Cpu()) == (1,)


@given(
    physical=st.none() | st.integers(1, 256),
    logical=st.none() | st.integers(1, 512),
    usable=st.none() | st.floats(0.1, 512),
)
def test_thread_counts_rise_from_one_and_stay_within_what_may_be_used(
    physical: int | None, logical: int | None, usable: float | None
) -> None:
    counts = thread_counts(Cpu(physical_cores=physical, logical_cores=logical, usable_cores=usable))
    assert counts[0] == 1
    assert list(counts) == sorted(set(counts))
    if usable is not None:
        assert counts[-1] <= max(1, usable)


def test_an_ampere_card_computes_in_four_precisions_and_an_older_one_in_two() -> None:
    request = Request(a_workload(), devices=("cuda:0",))
    assert labels(candidate_plans(a_survey(gpus=[a_gpu()]), request)) == [
        "cuda:0 fp32",
        "cuda:0 tf32",
        "cuda:0 bf16",
        "cuda:0 fp16",
    ]
    turing = a_survey(gpus=[a_gpu(compute_capability="7.5")])
    assert labels(candidate_plans(turing, request)) == ["cuda:0 fp32", "cuda:0 fp16"]


def test_a_card_that_torch_cannot_use_is_no_plan() -> None:
    survey = a_survey(gpus=[a_gpu(usable=False, why_not="torch was built without CUDA.", torch_device="cuda:0")])
    assert all(plan.is_cpu for plan in candidate_plans(survey, Request(a_workload())))
    with pytest.raises(InvalidRequest, match=r"NVIDIA A10 .* torch was built without CUDA\. .*cpu"):
        candidate_plans(survey, Request(a_workload(), devices=("cuda:0",)))


# As probes.gpu.judge leaves it: torch has no name for what it cannot use.
NO_CUDA = {"usable": False, "why_not": "torch was built without CUDA.", "torch_device": None}
WITHOUT_CUDA = a_gpu(**NO_CUDA)
RADEON = a_gpu(vendor="AMD", name="AMD Radeon RX 7900 XTX", compute_capability=None, **NO_CUDA)


@pytest.mark.parametrize("card", [WITHOUT_CUDA, RADEON])
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
def test_a_card_without_a_name_is_told_of_by_any_that_may_mean_it(card: Accelerator, device: str) -> None:
    survey = a_survey(gpus=[card])
    with pytest.raises(InvalidRequest, match=rf"{card.name} .* torch was built without CUDA\. Devices here: cpu"):
        candidate_plans(survey, Request(a_workload(), devices=(device,)))
    with pytest.raises(InvalidRequest, match=rf"{card.name} .* torch was built without CUDA\. Devices here: cpu"):
        find_devices(survey, (device,))


def test_of_several_cards_the_one_of_that_name_is_told_of_and_nvidia_s_before_amd_s() -> None:
    named = replace(WITHOUT_CUDA, torch_device="cuda:1", why_not="its driver is too old", name="NVIDIA A40")
    for device, name in (("cuda:0", "NVIDIA A10"), ("cuda:1", "NVIDIA A40")):
        with pytest.raises(InvalidRequest, match=f"^{name} "):
            find_devices(a_survey(gpus=[RADEON, WITHOUT_CUDA, named]), (device,))


@pytest.mark.parametrize("others", [(), (RADEON,)])
def test_another_number_than_a_usable_card_s_is_not_here(others: tuple[Accelerator, ...]) -> None:
    """Nor is it another vendor's: a torch that has names for NVIDIA's cards has none for AMD's."""
    with pytest.raises(InvalidRequest, match=r"^A device was asked for that is not here\."):
        find_devices(a_survey(gpus=[a_gpu(), *others]), ("cuda:1",))


def test_another_number_than_a_usable_card_s_may_be_its_neighbour_s() -> None:
    broken = replace(WITHOUT_CUDA, name="NVIDIA A40", why_not="it fell off the bus")
    with pytest.raises(InvalidRequest, match=r"^NVIDIA A40 cannot be trained on: it fell off the bus\."):
        find_devices(a_survey(gpus=[RADEON, a_gpu(), broken]), ("cuda:1",))


def test_devices_go_by_their_own_names() -> None:
    survey = a_survey(gpus=[a_gpu()])
    assert find_devices(survey, []) == ()
    assert find_devices(survey, ["cuda", "cpu", "cuda:0"]) == ("cuda:0", "cpu")
    for asked in (["cuda:9"], ["foo"], ["cpu", "cuda:9"]):
        with pytest.raises(InvalidRequest, match=r"Devices here: cpu \(A CPU\), cuda:0 \(NVIDIA A10\)\."):
            find_devices(survey, asked)


def test_a_device_that_is_not_here_is_answered_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match=r"cpu \(A CPU\), cuda:0 \(NVIDIA A10\)") as caught:
        candidate_plans(a_survey(gpus=[a_gpu()]), Request(a_workload(), devices=("cuda:7",)))
    assert caught.value.suggestions == ("cpu", "cuda:0")


def test_cuda_means_every_cuda_device() -> None:
    survey = a_survey(gpus=[a_gpu(), a_gpu(id="GPU-2", torch_device="cuda:1")])
    plans = candidate_plans(survey, Request(a_workload(), precision="fp32", devices=("cuda",)))
    assert labels(plans) == ["cuda:0 fp32", "cuda:1 fp32"]


def test_only_the_precision_asked_for_is_looked_at() -> None:
    plans = candidate_plans(a_survey(), Request(a_workload(), precision="bf16"))
    assert labels(plans) == ["cpu bf16, 1 thread", "cpu bf16, 2 threads"]


def test_a_precision_that_no_device_has_is_refused_with_the_devices_here() -> None:
    with pytest.raises(InvalidRequest, match=r"tf32\. Here: cpu \(fp32, bf16\)\. Leave precision at auto\.$"):
        candidate_plans(a_survey(), Request(a_workload(), precision="tf32"))
    here = a_survey(gpus=[TURING, a_gpu(torch_device="cuda:1")])
    told = r"cuda:0 \(fp32, fp16\), cuda:1 \(.*\)\. Leave precision at auto, or ask for cuda:1\.$"
    with pytest.raises(InvalidRequest, match=told):
        candidate_plans(here, Request(a_workload(), precision="tf32", devices=("cuda:0",)))


def test_a_device_without_the_precision_asked_for_is_named_with_those_that_it_has() -> None:
    survey = a_survey(gpus=[TURING, a_gpu(id="GPU-2", torch_device="cuda:1")])
    (reason,) = left_out(survey, Request(a_workload(), precision="bf16"))
    assert reason.text == "There is no plan in bf16 for cuda:0, which has fp32 and fp16."
    assert reason.evidence == {"precision": "bf16", "precisions": {"cuda:0": ["fp32", "fp16"]}}
    (reason,) = left_out(survey, Request(a_workload(), precision="tf32"))
    assert reason.text.endswith("for cpu, which has fp32 and bf16, and for cuda:0, which has fp32 and fp16.")
    assert not left_out(survey, Request(a_workload(), precision="fp32"))
    assert not left_out(survey, Request(a_workload()))
    assert not left_out(survey, Request(a_workload(), precision="bf16", devices=("cpu", "cuda:1")))


def test_another_machine_s_device_without_it_is_named_too() -> None:
    profile = a_profile((ONE, ONE_BF16, GPU), fingerprint="elsewhere")
    found = recommend(a_survey(), profile, None, [], Request(a_workload(), precision="bf16", profile="made-up"))
    (reason,) = [reason for reason in found.reasons if reason.code == "precision-not-there"]
    assert reason.evidence["precisions"] == {"cuda:0": ["fp32"]}


def left_out(survey: Survey, request: Request) -> list[Reason]:
    reasons = recommend(survey, None, None, [], request).reasons
    return [reason for reason in reasons if reason.code == "precision-not-there"]


FOUR, ALL_OF_THEM = Plan("cpu", "fp32", 4), Plan("cpu", "fp32", 16)
SIXTEEN_CORES = a_survey(usable_cores=16.0, physical_cores=16)


def quickly_calibrated() -> Profile:
    """Of sixteen cores, on one thread, two, and all of them."""
    made = a_profile((ONE, TWO))
    points = tuple(replace(point, plan=ALL_OF_THEM) for point in made.points if point.plan == TWO)
    networks = tuple(replace(point, plan=ALL_OF_THEM) for point in made.networks if point.plan == TWO)
    return replace(made, points=(*made.points, *points), networks=(*made.networks, *networks))


def told_with_threads(batch_size: int, *rows: Measurement, profile: Profile | None) -> tuple[list[int], Recommendation]:
    """Of which numbers of threads there are plans, and the answer."""
    found = recommend(SIXTEEN_CORES, profile, None, rows, Request(a_workload(batch_size), precision="fp32"))
    return sorted(option.plan.threads or 0 for option in found.options), found


def test_thread_counts_that_a_calibration_left_out_are_named_where_they_were_tried() -> None:
    """A quick calibration of many cores leaves some out."""
    profile = quickly_calibrated()
    threads, found = told_with_threads(16, profile=profile)
    assert threads == [1, 2, 16]
    assert found.confidence is not None
    assert "no-calibration" not in {reason.code for reason in found.reasons}
    (reason,) = [reason for reason in found.reasons if reason.code == "threads-not-calibrated"]
    assert reason.evidence == {"plans": ["cpu fp32, 4 threads", "cpu fp32, 8 threads"]}
    threads, tried = told_with_threads(16, a_measurement(FOUR, 16, 1.0), profile=profile)
    assert threads == [1, 2, 4, 16]
    assert any(reason.evidence == {"plans": ["cpu fp32, 8 threads"]} for reason in tried.reasons)
    assert told_with_threads(16, profile=None)[0] == [1, 2, 4, 8, 16]


LATE = "The time was over before its first step: a smaller batch or more time would do."


@pytest.mark.parametrize(
    "row",
    [a_measurement(FOUR, 16, 1.0), a_measurement(FOUR, 16, 1.0, outcome="failed", step=None, reason=LATE)],
    ids=["ran", "not reached"],
)
def test_what_was_tried_at_a_batch_that_tells_nothing_of_this_one_is_left_out_as_before(row: Measurement) -> None:
    """Else who had measured the model would no longer be told how sure an answer is."""
    threads, found = told_with_threads(32, row, profile=quickly_calibrated())
    assert threads == [1, 2, 16]
    assert found.confidence is not None
    assert "no-calibration" not in {reason.code for reason in found.reasons}
    (reason,) = [reason for reason in found.reasons if reason.code == "threads-not-calibrated"]
    assert reason.evidence == {"plans": ["cpu fp32, 4 threads", "cpu fp32, 8 threads"]}


def test_between_batches_that_ran_a_thread_count_has_a_time_and_is_told() -> None:
    rows = [a_measurement(FOUR, batch, batch / 16) for batch in (16, 64)]
    threads, found = told_with_threads(32, *rows, profile=quickly_calibrated())
    assert threads == [1, 2, 4, 16]
    assert found.confidence is not None


@pytest.mark.parametrize("precision", ["auto", "bf16"])
def test_a_plan_that_a_calibration_had_no_time_for_is_none_of_those_it_left_out(precision: Any) -> None:
    """It may be the best, so it stands among the options, and what is missing is told."""
    profile = a_profile((ONE, Plan("cpu", "fp32", 2), ONE_BF16))
    found = recommend(a_survey(), profile, None, [], Request(a_workload(), precision=precision))
    missing = Plan("cpu", "bf16", 2)
    assert missing.key in {option.plan.key for option in found.options}
    told = {reason.code: reason for reason in found.reasons}
    assert told["no-calibration"].evidence == {"plans": [missing.label]}
    assert "Run `crosspoint calibrate --effort full`" in told["no-calibration"].text, "it was calibrated once"
    assert "threads-not-calibrated" not in told


@pytest.mark.parametrize(
    ("target", "capability", "precisions"),
    [
        ("gfx942", None, ["fp32", "tf32", "bf16", "fp16"]),
        ("gfx90a", None, ["fp32", "tf32", "bf16", "fp16"]),
        ("gfx1100", None, ["fp32", "tf32", "bf16", "fp16"]),
        ("gfx701", None, ["fp32", "fp16"]),
        ("something", "9.4", ["fp32", "tf32", "bf16", "fp16"]),
        (None, None, ["fp32", "fp16"]),
    ],
)
def test_a_card_of_amds_computes_in_what_its_target_has(
    target: str | None, capability: str | None, precisions: list[str]
) -> None:
    """It is calibrated in these: torch tells the first two figures of the target as the compute capability."""
    card = a_gpu(vendor="AMD", name="AMD Instinct MI300X", compute_capability=capability, gfx_target=target)
    plans = candidate_plans(a_survey(gpus=[card]), Request(a_workload(), devices=("cuda",)))
    assert [plan.precision for plan in plans] == precisions


APPLE = a_gpu(vendor="Apple", name="Apple M4 Max", torch_device="mps", compute_capability=None)
ARC = a_gpu(vendor="Intel", name="Intel Arc B580", torch_device="xpu:0", compute_capability=None)


@pytest.mark.parametrize(("card", "device"), [(APPLE, "mps"), (APPLE, "mps:0"), (ARC, "xpu:0"), (ARC, "xpu")])
@pytest.mark.parametrize("usable", [True, None])
def test_a_card_that_is_not_measured_here_is_named(card: Accelerator, device: str, usable: bool | None) -> None:
    survey = a_survey(gpus=[replace(card, usable=usable)])
    found = recommend(survey, None, None, [], Request(a_workload()))
    (reason,) = [reason for reason in found.reasons if reason.code == "device-not-measured"]
    assert str(card.name) in reason.text
    assert reason.evidence == {"cards": [card.name]}
    with pytest.raises(InvalidRequest, match=rf"{card.name} has no plan: crosspoint measures CPUs.*Devices here: cpu"):
        candidate_plans(survey, Request(a_workload(), devices=(device,)))


def test_a_card_that_nobody_asked_about_or_that_torch_cannot_use_is_not_named() -> None:
    cards = [APPLE, replace(ARC, usable=False, why_not="no driver is bound to it", torch_device=None)]
    named = [
        recommend(a_survey(gpus=[card]), None, None, [], Request(a_workload(), devices=devices)).reasons
        for card, devices in ((APPLE, ("cpu",)), (cards[1], ()), (a_gpu(), ()))
    ]
    assert "device-not-measured" not in {reason.code for reasons in named for reason in reasons}
    with pytest.raises(InvalidRequest, match=r"Intel Arc B580 cannot be trained on: no driver is bound to it\."):
        candidate_plans(a_survey(gpus=cards), Request(a_workload(), devices=("xpu",)))
