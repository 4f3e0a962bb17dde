"""A map rests on what its answers rest on, and says what they say of that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.recommendation import Reason
from app.advisor.request import InvalidRequest, Request
from app.advisor.summary import trace_of_summary
from app.errors import StoreError, UnknownProfile
from app.mapping import Map, Row, draw_map
from app.service import Crosspoint
from probes.hardware import Survey
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, TWO, a_measurement, a_summary, a_survey
from tests.app.advisor.machine import GPU, a_profile
from tests.app.answering.obedient import IRIS, jobs, obedient
from tests.app.opened import with_crosspoint
from tests.app.test_busy_cards import BUSY, SUMMARY

SMALL = Request(replace(IRIS, batch_size=16), effort="quick")
LARGE = Request(replace(IRIS, batch_size=4096), effort="quick")


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


async def keep_trace(crosspoint: Crosspoint, trace: Trace | None = None) -> None:
    """Of something else, so that no process has to make one."""
    survey = await crosspoint.survey()
    version = survey.software.torch.version if survey.software.torch else None
    await crosspoint.store.keep_trace(IRIS, version or "unknown", trace or a_profile().networks[0].trace)


def test_what_could_not_be_saved_is_in_the_picture_and_the_reason_beneath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreError("It was not saved: the disk is full.")

    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        monkeypatch.setattr(crosspoint.store, "keep_measurements", full)
        return await draw_map(crosspoint, SMALL, [1.0])

    drawn = with_crosspoint(tmp_path, use, obedient(tmp_path / "jobs"))
    (row,) = drawn.rows
    assert "measured" in {cell.basis for cell in row.cells}
    assert "not-saved" in {told.reason.code for told in drawn.reasons}


def test_a_machine_that_is_busy_is_told_as_a_recommendation_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answering.recommending.LEAST_PATIENCE_SECONDS", 0.2)

    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        held = crosspoint.lab.reserve(600)
        drawn = await draw_map(crosspoint, replace(SMALL, time_limit_seconds=0.1), [1.0])
        crosspoint.lab.release(held)
        return drawn

    drawn = with_crosspoint(tmp_path, use)
    (told,) = [told for told in drawn.reasons if told.reason.code == "not-measured"]
    assert "busy" in told.reason.text
    assert told.widths == (1.0,)
    assert told.to_json() in drawn.to_json()["reasons"]


def test_a_map_of_a_captured_machine_advises_nothing_that_cannot_be_done_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        return await draw_map(crosspoint, replace(SMALL, effort="instant"), [1.0])

    here = with_crosspoint(tmp_path, use)
    monkeypatch.setattr(Crosspoint, "is_here", False)
    captured = with_crosspoint(tmp_path, use)
    for drawn, is_advised in ((here, True), (captured, False)):
        (row,) = drawn.rows
        assert row.cells
        assert all(("crosspoint calibrate" in (cell.why_not or "")) is is_advised for cell in row.cells)
        assert all(cell.why_not for cell in row.cells)


def test_a_sentence_is_told_once_with_the_widths_that_it_is_about() -> None:
    def row(width: float, *reasons: Reason) -> Row:
        return Row(width, None, (), reasons=reasons)

    none = Reason("no-calibration", "Nothing is known.")
    there = [Reason("other-machine", f"{steps} of this model there is known.") for steps in ("What", "Nothing")]
    crowds = [Reason("crowded", f"Others hold {count} cores.") for count in (1, 2)]
    slower = [Reason("slower-than-calibrated", f"At least {times} times as long.") for times in (1.6, 1.7)]
    failed = Reason("not-measured", "It failed.", {"possible": True})
    rows = (row(0.5, there[0], none, crowds[0], slower[0]), row(1.0, there[1], none, crowds[1], slower[1], failed))
    assert [(told.reason, told.widths) for told in Map(IRIS, (1,), rows).reasons] == [
        (there[0], (0.5,)),
        (none, (0.5, 1.0)),
        (crowds[1], (0.5, 1.0)),
        (slower[1], (0.5, 1.0)),
        (there[1], (1.0,)),
        (failed, (1.0,)),
    ]


def test_of_each_card_that_wins_it_is_said_that_others_use_it() -> None:
    first, second = (Reason("busy-device", f"Others use {card}.", {"device": card}) for card in ("cuda:0", "cuda:1"))
    later = Reason("busy-device", "Others use cuda:0 more.", {"device": "cuda:0"})
    rows = (Row(0.5, None, (), reasons=(first,)), Row(1.0, None, (), reasons=(later, second)))
    told = Map(IRIS, (1,), rows).reasons
    assert [(each.reason, each.widths) for each in told] == [(later, (0.5, 1.0)), (second, (1.0,))]


@pytest.mark.parametrize("asked", [{"profile": "typo"}, {"devices": ("cuda:7",)}], ids=["profile", "device"])
def test_what_cannot_be_asked_is_refused_before_a_process_is_started(tmp_path: Path, asked: dict[str, Any]) -> None:
    config = parse_model({"huggingface": {"model_type": "bert", "num_hidden_layers": 1}})
    started = tmp_path / "started"

    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises((UnknownProfile, InvalidRequest)):
            await draw_map(crosspoint, Request(Workload(config, 8), **asked), [0.5, 1.0])

    with_crosspoint(tmp_path, use, obedient(started))
    assert not started.exists()


def test_a_width_is_measured_at_a_batch_that_fits(tmp_path: Path) -> None:
    """Of 1, 2, 4, … 4096 the middle is 64; of this model it takes five times the memory that is free."""

    async def use(crosspoint: Crosspoint) -> Map:
        free = (await crosspoint.survey()).memory.usable_bytes
        assert free is not None
        heavy = Workload(a_summary(parameters=1000, activation_bytes_per_sample=free / 12), 1)
        await keep_trace(crosspoint, trace_of_summary(heavy))
        return await draw_map(crosspoint, LARGE, [1.0])

    heard, starts = tmp_path / "jobs", tmp_path / "starts"
    *interpreter, program = obedient(heard)
    drawn = with_crosspoint(tmp_path, use, (*interpreter, f"open({str(starts)!r}, 'a').write('x')\n{program}"))
    assert starts.read_text() == "x", "no process is started for a batch that does not fit"
    (size,) = jobs(heard)[0]["batch_sizes"]
    (row,) = drawn.rows
    fitting = [cell.batch_size for cell in row.cells if cell.may_run]
    assert size == fitting[len(fitting) // 2] < 64
    assert [cell.basis for cell in row.cells if cell.batch_size == size] == ["measured"]


_REFUSED = "dict(known, outcome='out-of-memory', reason='It was too large.')"
# Says how far it is, the less the smaller the batch, and refuses all above two.
TOO_LARGE = (
    "say(event='progress', job=job['job'], fraction=size / 16, message='')\n"
    f"            if size > 2: rows.append({_REFUSED}); continue"
)


def test_a_width_whose_middle_batch_runs_out_of_memory_is_measured_at_a_smaller_one(tmp_path: Path) -> None:
    said: list[float] = []

    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        return await draw_map(crosspoint, SMALL, [1.0], lambda fraction, _: said.append(fraction))

    heard = tmp_path / "jobs"
    drawn = with_crosspoint(tmp_path, use, obedient(heard, of_a_step=TOO_LARGE))
    sizes = [job["batch_sizes"] for job in jobs(heard)]
    assert sizes.index([4]) < sizes.index([2])
    (row,) = drawn.rows
    assert [cell.fits is False for cell in row.cells] == [False, False, True, True, True]
    assert row.cells[1].basis == "measured"
    assert said == sorted(said)
    assert said[-1] >= 4 / 16


def test_a_width_is_not_measured_again_when_its_time_is_over(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        return await draw_map(crosspoint, replace(SMALL, time_limit_seconds=1.0), [1.0])

    heard = tmp_path / "jobs"
    (row,) = with_crosspoint(tmp_path, use, obedient(heard, of_a_step=TOO_LARGE)).rows
    assert [job["batch_sizes"] for job in jobs(heard)] == [[4]]
    assert [cell.fits is False for cell in row.cells] == [False, False, True, True, True]


def test_what_cells_rest_on_is_told_though_the_middle_one_was_measured(tmp_path: Path) -> None:
    told = {"noisy-profile", "experts-evenly-chosen", "layers-dropped"}

    async def use(crosspoint: Crosspoint) -> tuple[Map, set[str]]:
        await keep_trace(crosspoint, replace(a_profile().networks[0].trace, evenly_routed=True, layers_dropped=0.1))
        profile = a_profile(fingerprint=(await crosspoint.survey()).fingerprint)
        await crosspoint.store.keep_profile(replace(profile, noise={"spread": 0.5}))
        drawn = await draw_map(crosspoint, LARGE, [1.0])
        middle = await crosspoint.recommend(Request(replace(IRIS, batch_size=64)))
        return drawn, {reason.code for reason in middle.reasons}

    drawn, of_the_middle = with_crosspoint(tmp_path, use, obedient(tmp_path / "jobs"))
    (row,) = drawn.rows
    assert {"measured", "predicted"} <= {cell.basis for cell in row.cells}
    assert not told & of_the_middle
    assert sorted(each.reason.code for each in drawn.reasons if each.reason.code in told) == sorted(told)


def test_a_map_says_who_computes_on_the_card_that_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from probes import survey as surveys

    take = surveys.take_survey

    def with_card(*arguments: Any, **named: Any) -> Survey:
        return replace(take(*arguments, **named), accelerators=(BUSY,))

    monkeypatch.setattr("probes.survey.take_survey", with_card)

    async def use(crosspoint: Crosspoint) -> Map:
        profile = a_profile((ONE, GPU), (await crosspoint.survey()).fingerprint)
        await crosspoint.store.keep_profile(profile)
        return await draw_map(crosspoint, Request(SUMMARY, "fp32", ("cuda",)), [0.5, 1.0])

    drawn = with_crosspoint(tmp_path, use)
    assert drawn.plans == (GPU,)
    (told,) = [told for told in drawn.reasons if told.reason.code == "busy-device"]
    assert "98 %" in told.reason.text
    assert told.widths == (0.5, 1.0)


def test_a_plan_that_a_cell_is_without_is_told_though_the_middle_one_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from probes import survey as surveys

    take, cpu = surveys.take_survey, a_survey().cpu

    def of_two_cores(*arguments: Any, **named: Any) -> Survey:
        return replace(take(*arguments, **named), cpu=cpu, accelerators=())

    monkeypatch.setattr("probes.survey.take_survey", of_two_cores)

    async def use(crosspoint: Crosspoint) -> Map:
        fingerprint = (await crosspoint.survey()).fingerprint
        await crosspoint.store.keep_profile(a_profile((ONE,), fingerprint))
        await crosspoint.store.keep_measurements(fingerprint, SUMMARY, [a_measurement(TWO, 4, 0.1)])
        return await draw_map(crosspoint, Request(SUMMARY, "fp32"), [1.0])

    (told,) = [each for each in with_crosspoint(tmp_path, use).reasons if each.reason.code == "threads-not-calibrated"]
    assert told.reason.evidence == {"plans": [TWO.label]}
