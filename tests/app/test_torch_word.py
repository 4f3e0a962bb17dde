"""For how long what torch said of its devices holds, and that it is asked again then."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import LabError
from app.service import Crosspoint
from app.torch_word import DOUBT_SECONDS, LONGEST_DOUBT_SECONDS, TorchWord
from app.upkeep import Upkeep
from probes import survey as surveys
from probes.hardware import Accelerator, Outcome, ProbeReport, Software, Survey, Torch
from tests.app.advisor.build import a_gpu, a_survey
from tests.app.lab.programs import program
from tests.app.opened import with_crosspoint

FIRST, SECOND = a_gpu(usable=None), a_gpu(id="GPU-2", torch_device="cuda:1", usable=None)
SPLIT = replace(FIRST, usable=False, why_not="MIG splits this card")
PART = a_gpu(id="MIG-7", parent_id="GPU-1", usable=None)


TORCH = Torch("2.9.0+cu128", "12.8")


def seen(
    *cards: Accelerator, cuda: str | None = None, driver: str | None = "580.65", torch: Torch | None = TORCH
) -> Survey:
    """cuda: why that does not start."""
    report = ProbeReport(Outcome.OK if cuda is None else Outcome.FAILED, None, cuda)
    software = Software(nvidia_driver=driver, torch=torch)
    return replace(a_survey(gpus=cards), software=software, probes={"cuda": report})


@pytest.mark.parametrize(
    ("then", "now", "holds"),
    [
        (seen(FIRST), seen(FIRST), True),
        (seen(FIRST), seen(FIRST, SECOND), False),  # it was added, or handed back
        (seen(), seen(FIRST), False),  # its driver came later
        (seen(FIRST), seen(SPLIT, PART), False),
        (seen(FIRST, SECOND), seen(FIRST), True),  # what is gone is in no list
        (seen(FIRST, SECOND), seen(replace(SECOND, torch_device="cuda:0")), False),
        (seen(FIRST), seen(FIRST, driver="590.1"), False),
        (seen(FIRST), seen(replace(FIRST, torch_device=None), driver=None), True),  # CUDA or NVML is slow
        (seen(replace(FIRST, torch_device=None)), seen(FIRST), False),
        (seen(cuda="SYSTEM_NOT_READY"), seen(FIRST), False),  # the fabric manager came later
        (seen(FIRST), seen(replace(FIRST, usable=False), cuda="CUDA_ERROR_UNKNOWN"), False),
        (seen(cuda="CUDA_ERROR_UNKNOWN"), seen(cuda="CUDA_ERROR_UNKNOWN"), True),
        (seen(), seen(torch=Torch("2.10.0+cpu")), False),  # it was upgraded, where there is no card as well
        (seen(FIRST), seen(FIRST, torch=Torch("2.9.0+cu128", "13.0")), False),
        (seen(FIRST), seen(FIRST, torch=None), True),  # its files are not read now
    ],
)
def test_it_holds_while_drivers_tell_of_the_same_cards(then: Survey, now: Survey, holds: bool) -> None:
    word = TorchWord({"devices": []})
    assert word.holds_for(then)
    assert word.holds_for(now) is holds


def test_what_was_not_known_of_torch_then_counts_from_when_it_is() -> None:
    word = TorchWord({"devices": []})
    assert [word.holds_for(seen(FIRST, torch=torch)) for torch in (None, TORCH, None, TORCH)] == [True] * 4
    assert not word.holds_for(seen(FIRST, torch=Torch("2.10.0+cu128", "12.8")))


@pytest.mark.parametrize(
    ("why_not", "age", "doubtful"),
    [("CUDA could not be started", 1.0, True), ("CUDA could not be started", -1.0, False), (None, 1.0, False)],
)
def test_a_device_that_did_not_start_may_have_been_mended(why_not: str | None, age: float, doubtful: bool) -> None:
    times = iter([0.0, DOUBT_SECONDS + age])
    word = TorchWord({"devices": [{"device": "cuda:0", "why_not": why_not}]}, lambda: next(times))
    assert word.is_doubtful is doubtful


def test_it_is_doubted_later_each_time_that_torch_says_the_same() -> None:
    now = [0.0]
    ready = {"devices": [{"device": "cuda:0", "why_not": "CUDA could not be started"}]}
    word = TorchWord(ready, lambda: now[0])
    for times in (2, 4, 8):
        assert word.bears_out({**ready, "torch": "another"})
        since = now[0]
        now[0] = since + times * DOUBT_SECONDS
        assert not word.is_doubtful
        now[0] += 1
        assert word.is_doubtful
    assert not word.bears_out({"devices": []})
    assert word.is_doubtful
    for _ in range(20):
        word.hold_longer()
    assert word.doubt_seconds == LONGEST_DOUBT_SECONDS


Use = Callable[[Crosspoint, "Machine"], Awaitable[None]]


class Machine:
    """This machine with other cards, and a torch that sees what a file says. starts: of its process."""

    def __init__(self, folder: Path) -> None:
        self.cards: tuple[Accelerator, ...] = (FIRST,)
        self.torch: Torch | None = None  # that is installed in this one's place
        self._devices, self._starts = folder / "devices.json", folder / "starts"
        self.show()
        self.program = program(
            f"open({str(self._starts)!r}, 'a').write('x')",
            f"devices = json.load(open({str(self._devices)!r}))",
            'say(event="ready", torch="2.13.0", python="3", devices=devices)',
            "for line in sys.stdin:",
            '    say(event="result", job=json.loads(line)["job"], result={})',
        )

    @property
    def starts(self) -> int:
        return len(self._starts.read_text())

    def show(self, *devices: dict[str, Any]) -> None:
        self._devices.write_text(json.dumps(devices))


def use_machine(monkeypatch: pytest.MonkeyPatch, folder: Path, use: Use) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    machine, take = Machine(folder), surveys.take_survey

    def with_cards(*arguments: Any, **named: Any) -> Survey:
        survey = replace(take(*arguments, **named), accelerators=machine.cards)
        torch = machine.torch or survey.software.torch
        return replace(survey, software=replace(survey.software, torch=torch))

    monkeypatch.setattr("probes.survey.take_survey", with_cards)
    with_crosspoint(folder / "data", lambda crosspoint: use(crosspoint, machine), machine.program)


def test_a_card_that_came_later_is_asked_about_by_a_process_that_started_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def use(crosspoint: Crosspoint, machine: Machine) -> None:
        machine.show({"device": "cuda:0", "uuid": "GPU-1"})
        for _ in range(2):
            survey = await crosspoint.survey_for_plans()
            assert [card.usable for card in survey.accelerators] == [True]
        assert machine.starts == 1
        machine.cards = (SPLIT, PART)
        machine.show({"device": "cuda:0", "uuid": "MIG-7"})
        assert [card.usable for card in (await crosspoint.survey(fresh=True)).accelerators] == [False, None]
        for _ in range(2):
            survey = await crosspoint.survey_for_plans()
            assert [card.usable for card in survey.accelerators] == [False, True]
            await crosspoint.survey(fresh=True)
        assert machine.starts == 2

    use_machine(monkeypatch, tmp_path, use)


def test_a_torch_that_was_exchanged_is_told_of_by_what_is_installed_until_it_was_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a machine without cards, too: traces and profiles are of a version."""

    async def use(crosspoint: Crosspoint, machine: Machine) -> None:
        machine.cards = ()
        upkeep = Upkeep(crosspoint)
        await upkeep._learn_torch()
        told = (await crosspoint.survey()).software.torch
        assert told is not None
        assert told.version == "2.13.0", "as torch says of itself"
        assert machine.starts == 1
        machine.torch = Torch("2.14.0+cpu")
        survey = await crosspoint.survey(fresh=True)
        assert survey.software.torch == machine.torch
        await upkeep._learn_torch()
        assert machine.starts == 2, "what was imported before stays what it is"

    use_machine(monkeypatch, tmp_path, use)


def test_a_service_asks_again_where_a_device_did_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint, machine: Machine) -> None:
        upkeep = Upkeep(crosspoint)
        machine.show({"device": "cuda:0", "uuid": "GPU-1", "why_not": "CUDA could not be started on this device"})
        for _ in range(2):
            await upkeep._learn_torch()
            assert [card.usable for card in (await crosspoint.survey()).accelerators] == [False]
        machine.show({"device": "cuda:0", "uuid": "GPU-1"})
        word = crosspoint.surveyor._torch
        assert word is not None
        word.heard_at -= DOUBT_SECONDS + 1
        assert [card.usable for card in (await crosspoint.survey_for_plans()).accelerators] == [False]
        assert machine.starts == 1, "nobody waits for it who asks for plans"
        await upkeep._learn_torch()
        assert [card.usable for card in (await crosspoint.survey()).accelerators] == [True]
        assert machine.starts == 3, "one to ask, and one for traces, that sees the card"

    use_machine(monkeypatch, tmp_path, use)


def test_the_process_that_traces_stays_where_torch_says_the_same_or_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def use(crosspoint: Crosspoint, machine: Machine) -> None:
        upkeep = Upkeep(crosspoint)
        machine.show({"device": "cuda:0", "uuid": "GPU-1", "why_not": "CUDA could not be started on this device"})
        await upkeep._learn_torch()
        word, warm = crosspoint.surveyor._torch, crosspoint.lab._tracer._child
        assert word is not None
        assert warm is not None
        for starts in (2, 3):
            word.heard_at -= word.doubt_seconds + 1
            await upkeep._learn_torch()
            assert machine.starts == starts
            assert crosspoint.lab._tracer._child is warm
            assert warm.alive
            assert not crosspoint.surveyor.doubts_torch

        def another(*_: object) -> None:
            raise LabError("failed", "No process can be started.")

        monkeypatch.setattr(crosspoint.lab, "another", another)
        word.heard_at -= word.doubt_seconds + 1
        await upkeep._learn_torch()
        assert warm.alive
        assert crosspoint.surveyor._torch is word
        assert not crosspoint.surveyor.doubts_torch
        assert upkeep._not_before == 0.0, "calibrations are not held back"

    use_machine(monkeypatch, tmp_path, use)


def test_nothing_is_calibrated_by_itself_while_torch_cannot_be_asked_about_a_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def use(crosspoint: Crosspoint, machine: Machine) -> None:
        async def calibrate(*_: object, **__: object) -> None:
            raise AssertionError("The profile would be without the card.")

        async def ready() -> dict[str, Any]:
            raise LabError("failed", "Torch did not start.")

        monkeypatch.setattr(crosspoint, "calibrate", calibrate)
        monkeypatch.setattr(crosspoint.lab, "ready", ready)
        upkeep = Upkeep(crosspoint)
        await upkeep._learn_torch()
        await upkeep._calibrate_if_due(await crosspoint.survey())
        assert upkeep.calibration["state"] == "failed"
        assert "Torch did not start." in upkeep.calibration["reason"]
        assert upkeep._not_before > 0.0

    use_machine(monkeypatch, tmp_path, use)
