"""What of a machine differs from what a profile says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from probes.hardware import Survey, Torch
from probes.machine_facts import changes_since, contradictions, facts_of
from tests.app.advisor.build import GB, a_gpu, a_survey


def test_the_same_machine_has_not_changed() -> None:
    survey = a_survey(gpus=[a_gpu()])
    assert changes_since(facts_of(survey), survey) == ()


def test_a_card_that_only_torch_can_tell_of_is_not_gone_before_it_was_asked() -> None:
    before = facts_of(a_survey(gpus=[a_gpu()]))
    assert changes_since(before, a_survey(gpus=[a_gpu(usable=None)])) == ()
    assert changes_since(before, a_survey(gpus=[a_gpu(usable=False)])) == ("accelerators NVIDIA A10 then, none now",)
    assert changes_since(before, a_survey()) == ("accelerators NVIDIA A10 then, none now",)


@pytest.mark.parametrize("heard", [None, False])
def test_a_card_that_torch_alone_shows_is_not_gone_before_it_was_asked(*, heard: bool | None) -> None:
    """ROCm's under WSL: one's own profile is no other machine's."""
    before = facts_of(a_survey(gpus=[a_gpu(vendor="AMD")]))
    bare = a_survey()
    torch = Torch("2.13.0+rocm7.0", hip_version="7.0", cuda_available=heard)
    bare = replace(bare, software=replace(bare.software, torch=torch))
    gone = () if heard is None else ("accelerators NVIDIA A10 then, none now",)
    assert changes_since(before, bare) == contradictions(before, bare) == gone


@pytest.mark.parametrize("then", [2, 1, 0])
@pytest.mark.parametrize("now", [2, 1, 0])
def test_cards_that_are_hidden_now_or_were_are_no_other_machines(then: int, now: int) -> None:
    def seen(used: int) -> Survey:
        return a_survey(gpus=[a_gpu(torch_device=f"cuda:{n}" if n < used else None, usable=n < used) for n in (0, 1)])

    assert contradictions(facts_of(seen(then)), seen(now)) == ()


def test_cards_that_are_not_here_are_another_machines() -> None:
    two = facts_of(a_survey(gpus=[a_gpu(), a_gpu(torch_device="cuda:1")]))
    for here in ([a_gpu()], [a_gpu(), a_gpu(name="NVIDIA A100", torch_device="cuda:1")], []):
        (said,) = contradictions(two, a_survey(gpus=here))
        assert said.startswith("accelerators NVIDIA A10, NVIDIA A10 then")


@pytest.mark.parametrize("total", [4, 128])
def test_other_memory_makes_no_other_machine(total: int) -> None:
    """Memory that was added, a balloon's, or that of another size of one kind of cloud machine: fingerprints know none
    of it, and what fits is judged by what is free here."""
    claimed = facts_of(a_survey(usable_bytes=total * GB))
    assert contradictions(claimed, a_survey(usable_bytes=8 * GB)) == ()
    (said,) = contradictions(replace(claimed, cpu="Another CPU"), a_survey(usable_bytes=8 * GB))
    assert said.startswith("processor ")


def test_all_memory_does_not_stand_for_a_limit_that_could_not_be_understood() -> None:
    survey = a_survey(usable_bytes=64 * GB)
    assert facts_of(survey).memory_bytes == 64 * GB
    assert facts_of(replace(survey, memory=replace(survey.memory, process_limit_bytes=8 * GB))).memory_bytes == 8 * GB
    assert facts_of(replace(survey, memory=replace(survey.memory, usable_bytes=None))).memory_bytes is None


@pytest.mark.parametrize(
    ("vendor", "total", "is_the_machines"),
    [
        ("AMD", 96, False),  # set aside by the firmware: the machine does not have it
        ("AMD", 16, False),  # the share of it that may be taken
        ("AMD", 31, True),  # no pool was told
        ("AMD", None, True),
        ("NVIDIA", 30, True),  # CUDA's figure
        ("Apple", 31, True),
    ],
)
def test_a_pool_that_a_driver_told_of_is_a_card_s_own(vendor: str, total: int | None, *, is_the_machines: bool) -> None:
    size = None if total is None else total * GB
    card = a_gpu(vendor=vendor, unified_memory=True, memory_total_bytes=size)
    (told,) = facts_of(a_survey(gpus=[card], usable_bytes=31 * GB)).accelerators
    assert (told.memory_total_bytes, told.unified_memory) == (size, is_the_machines)


def test_what_a_system_keeps_for_itself_makes_no_other_memory() -> None:
    before = facts_of(a_survey(usable_bytes=64 * GB))
    assert changes_since(before, a_survey(usable_bytes=int(64.5 * GB))) == ()
    (said,) = changes_since(before, a_survey(usable_bytes=80 * GB))
    assert said.startswith("memory ")
    assert changes_since(replace(before, memory_bytes=None), a_survey(usable_bytes=80 * GB)) == ()


def test_memory_of_a_large_server_is_told_as_it_is_sold() -> None:
    before = facts_of(a_survey(usable_bytes=1 << 40))
    assert changes_since(before, a_survey(usable_bytes=2 << 40)) == ("memory 1024 GiB then, 2048 GiB now",)
