"""What an answer says of another machine, it does not say of this one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.environments import KEEP_MEMORY
from app.advisor.summary import trace_of_summary
from probes.machine_facts import DeviceFacts, MachineFacts
from probes.measurement import Measurement, MemoryPeak, Overheads, Timing
from probes.workload.description import Plan
from tests.app.advisor.build import GB, ONE, TWO, TWO_BF16, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

THERE = replace(
    a_profile((ONE, TWO, TWO_BF16, GPU), fingerprint="elsewhere"),
    hardware=MachineFacts(
        physical_cores=2,
        usable_cores=2.0,
        memory_bytes=8 * GB,
        accelerators=(DeviceFacts("cuda:0", "NVIDIA A10", 24 * GB, "8.6"),),
    ),
)
HERE_OR_NOW = re.compile(r"\b(here|now)\b")


def answer(*rows: Measurement, plans: tuple[Plan, ...] = (), **asked: Any) -> Recommendation:
    workload = a_workload(**asked)
    devices = tuple(dict.fromkeys(plan.device for plan in plans))
    request = Request(workload, devices=devices, profile="made-up")
    return recommend(a_survey(), THERE, trace_of_summary(workload), rows, request)


def sentences(found: Recommendation) -> list[str]:
    """But for that one that says which machine it is."""
    reasons = [reason.text for reason in found.reasons if reason.code != "other-machine"]
    return [found.verdict, *reasons, *(option.why_not or option.note or "" for option in found.options)]


def ran_out(plan: Plan) -> Measurement:
    return a_measurement(plan, 16, 1.0, outcome="out-of-memory", step=None, available_bytes=24 * GB, reason="")


HELD_UP = 40.0  # seconds, of a step that takes far less by the profile
UNSTEADY = Timing(HELD_UP, HELD_UP / 50, 2 * HELD_UP, (HELD_UP,))
ONE_SAMPLE = Timing.from_samples([HELD_UP])
PARTS = Overheads(transfer_seconds=0.0, launch_seconds=0.1, compute_seconds=0.5, synchronize_seconds=0.2)


@pytest.mark.parametrize(
    ("rows", "plans", "told"),
    [
        ([ran_out(plan) for plan in (ONE, TWO, TWO_BF16, GPU)], (), "Nothing there is big enough"),
        ([a_measurement(GPU, 16, 1.0, memory=MemoryPeak(reserved_bytes=30 * GB))], (GPU,), "it took 30 GB, and 24 GB"),
        ([a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 0.6)], (ONE,), "More threads are faster:"),
        ([a_measurement(TWO, 16, 1.0), a_measurement(TWO_BF16, 16, 0.4)], (ONE,), "bf16 pays:"),
        ([a_measurement(ONE, 16, 0.8, overheads=PARTS)], (ONE,), "Reading the loss"),
        ([a_measurement(ONE, 16, 0.1, slow_share=1.0, slowdown=None)], (ONE,), "No block was calm"),
        ([a_measurement(TWO, 16, HELD_UP, others_cores=2.0)], (TWO,), "It was measured while others held 2.0 cores: "),
        (
            [a_measurement(TWO, 16, HELD_UP, others_cores=2.0, slow_share=0.3, slowdown=2.0)],
            (TWO,),
            "The cores were slow in 30 % of the blocks of cpu fp32, 2 threads, while others held 2.0 cores of that",
        ),
        ([a_measurement(TWO, 16, HELD_UP, step=UNSTEADY)], (TWO,), "as if others had held it up"),
        (
            [a_measurement(TWO, 16, HELD_UP, steps=1, step=ONE_SAMPLE, others_cores=2.0)],
            (TWO,),
            "Only its first step ran",
        ),
    ],
)
def test_nothing_is_told_as_what_is_so_here_or_now(rows: list[Measurement], plans: tuple[Plan, ...], told: str) -> None:
    found = answer(*rows, plans=plans, log_every=1)
    said = sentences(found)
    assert any(told in sentence for sentence in said)
    assert [sentence for sentence in said if HERE_OR_NOW.search(sentence)] == []
    assert not any("easure it again" in sentence or "ffort quick" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"compiled": True}, "compile-pays"),
        ({"channels_last": True}, "channels-last-pays"),
        ({"flush_denormal": True}, "flush-denormal-pays"),
        ({"environment": dict(KEEP_MEMORY)}, "environment-pays"),
    ],
)
def test_what_a_variant_gained_there_is_told_as_on_the_machine_itself(change: dict[str, Any], code: str) -> None:
    plan = replace(TWO, **change)
    plain = a_measurement(TWO, 16, 0.6, denormal_share=0.1)
    row = a_measurement(plan, 16, 0.3, control=plain.step, startup_seconds=20.0, denormal_share=0.1)
    found = answer(a_measurement(ONE, 16, 1.0), plain, row, plans=(ONE,))
    assert found.recommended == plan
    assert code in {reason.code for reason in found.reasons}
    assert [sentence for sentence in sentences(found) if HERE_OR_NOW.search(sentence)] == []
    (reason,) = [reason for reason in found.reasons if reason.code == "other-machine"]
    assert "took there counts" in reason.text


def test_what_steps_took_beside_others_there_is_no_time_of_that_machine() -> None:
    """Who holds its cores now nobody knows: what it takes by itself is told, as its memory is."""
    found = answer(a_measurement(TWO, 16, HELD_UP, others_cores=2.0), plans=(TWO,))
    (two,) = [option for option in found.options if option.plan == TWO]
    assert two.relieved
    assert two.basis != "measured"
    assert two.step_seconds is not None
    assert two.step_seconds.median < HELD_UP
    assert found.load is None
    assert "crowded" not in {reason.code for reason in found.reasons}


@pytest.mark.parametrize(("physical", "usable"), [(1, 2.0), (None, 2.0)])
def test_two_threads_of_a_core_are_in_nobody_s_way_there(physical: int | None, usable: float) -> None:
    assert THERE.hardware is not None
    there = replace(THERE, hardware=replace(THERE.hardware, physical_cores=physical, usable_cores=usable))
    row = a_measurement(TWO, 16, HELD_UP, others_cores=0.0)
    request = Request(a_workload(), devices=("cpu",), profile="made-up")
    found = recommend(a_survey(), there, trace_of_summary(a_workload()), [row], request)
    (two,) = [option for option in found.options if option.plan == TWO]
    assert (two.basis, two.relieved) == ("measured", False)


def test_a_variant_that_the_other_machine_s_profile_has_as_a_plan_is_no_second_option() -> None:
    keeping = replace(TWO, environment=dict(KEEP_MEMORY))
    points = [replace(point, plan=keeping) for point in THERE.points if point.plan == TWO]
    networks = [replace(network, plan=keeping) for network in THERE.networks if network.plan == TWO]
    both = replace(THERE, points=(*THERE.points, *points), networks=(*THERE.networks, *networks))
    rows = [a_measurement(TWO, 16, 0.6), a_measurement(keeping, 16, 0.3, control=a_measurement(TWO, 16, 0.6).step)]
    request = Request(a_workload(), devices=("cpu",), profile="made-up")
    found = recommend(a_survey(), both, trace_of_summary(a_workload()), rows, request)
    assert [option.plan for option in found.options].count(keeping) == 1
