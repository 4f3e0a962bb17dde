"""How the benchmark of estimates spends its time; what it measures is measured by the code that the product runs."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any, cast

import pytest

from app.advisor.summary import trace_of_summary
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.estimates import Bench, Case, main, measured, run_estimates, split, true_times
from benchmarks.workloads import WORKLOADS, Row
from probes.measurement import Measurement
from tests.app.advisor.build import ONE, ONE_BF16, a_measurement, a_workload
from tests.app.advisor.machine import a_profile


def test_blocks_keep_the_order_and_hold_about_as_many_batch_sizes() -> None:
    blocks = split(WORKLOADS, 4)
    assert [row for block in blocks for row in block] == list(WORKLOADS)
    sizes = [sum(len(row.batch_sizes) for row in block) for block in blocks]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 4


def test_what_the_time_did_not_do_for_is_a_row_that_says_so() -> None:
    row, nothing = WORKLOADS[0], None
    said: list[str] = []
    kept: list[Any] = []
    stores: Any = (nothing, nothing, nothing)  # nobody is asked
    bench = Bench(*stores, seconds=1.0, processes=2, say=said.append, keep=kept.append, until=0.0)
    cases = [Case(row, row.workload(size), 0) for size in row.batch_sizes]
    asyncio.run(bench._compare_in_time(cases))
    documents = [asyncio.run(bench._told(case)) for case in cases]
    assert {document["error"] for document in documents} == {"not begun: the time was over"}
    assert {document["name"] for document in documents} == {row.name}


def test_the_first_block_is_told_by_as_many_calibrations_as_a_new_service_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`block` is the place of the last calibration that a row's `instant` knew, whatever the blocks are."""
    happened: list[str] = []

    async def calibrate(bench: Bench, cases: list[Case]) -> None:
        happened.append("calibration")
        bench.profiles.append(a_profile())
        for case in cases:
            case.instant.append({"options": {}, "by": len(bench.profiles)})

    async def compare(_bench: Bench, cases: list[Case]) -> None:
        happened.append(cases[0].row.name)

    monkeypatch.setattr(Bench, "_calibrate", calibrate)
    monkeypatch.setattr(Bench, "_compare", compare)
    monkeypatch.setattr(Bench, "_told", lambda _bench, case: asyncio.sleep(0, measured(case)))
    rows, stores = WORKLOADS[:3], cast(Any, (None, None, None))
    bench = Bench(*stores, 1.0, 2, print, lambda _rows: None, math.inf, at_first=2, pause=0.0)
    found = asyncio.run(bench.rows(rows, 3))
    first, second, third = (row.name for row in rows)
    assert happened == ["calibration", "calibration", first, "calibration", second, "calibration", third]
    known = {row["name"]: (row["block"], row["instant"]["by"]) for row in found}
    assert known == {first: (1, 2), second: (2, 3), third: (3, 4)}


def test_a_choice_that_leaves_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--workloads", "1", "--only", WORKLOADS[-1].name])
    assert "none of these is among the first 1 workloads" in capsys.readouterr().err


def a_process(seconds: float, slowdown: float | None) -> Measurement:
    return a_measurement(ONE, 8, seconds, slow_share=0.5, slowdown=slowdown)


def test_a_process_that_met_no_calm_block_has_no_say_in_the_truth_where_others_did() -> None:
    reckoned, calm = a_process(9.0, None), a_process(1.0, 1.2)
    truth = true_times({ONE.label: [reckoned, calm, calm], ONE_BF16.label: [reckoned, a_process(7.0, None)]})
    row, alone = truth[ONE.label], truth[ONE_BF16.label]
    assert (row["median"], row["processes"], row["reckoned"]) == (1.0, [1.0, 1.0], False)
    assert (row["slow_share"], row["slowdown"]) == ([0.5, 0.5], [1.2, 1.2])
    assert row["faults"] == [None, None]  # of a device's, which nobody counts
    assert (alone["median"], alone["processes"], alone["reckoned"]) == (8.0, [9.0, 7.0], True)


def test_instant_knows_no_measurement_and_quick_no_truth(tmp_path: Path) -> None:
    """Each is asked of its own store. What is in the others would be told as measured."""
    workload = a_workload(16)
    case = Case(Row("a summary", "dense", None, (16,)), workload, 0)

    async def ask() -> None:
        stores = [Crosspoint(Settings(data_dir=tmp_path / name)) for name in ("calibrating", "asked", "truth")]
        async with stores[0] as calibrating, stores[1] as asked, stores[2] as measuring:
            survey = await asked.survey()
            version = asked._traces._torch_version(survey)
            for crosspoint in (calibrating, asked):
                await crosspoint.store.keep_trace(workload, version, trace_of_summary(workload))
            for crosspoint, seconds in ((asked, 3.0), (measuring, 5.0)):
                await crosspoint.store.keep_measurements(
                    survey.fingerprint, workload, [a_measurement(ONE, 16, seconds)]
                )
            bench = Bench(*stores, seconds=1.0, processes=2, say=print, keep=print, until=0.0)
            bench.calibrations = [a_profile(fingerprint=survey.fingerprint)]
            await calibrating.store.keep_profile(bench.calibrations[0])
            await bench._ask_instant(case)
            await bench._ask_quick(case)

    asyncio.run(ask())
    (instant,), quick = case.instant, case.quick
    assert instant["options"][ONE.label]["basis"] == "predicted"
    assert quick is not None
    told = quick["options"][ONE.label]
    assert (told["basis"], told["median"]) == ("measured", pytest.approx(3.0))


def test_a_run_has_three_stores_of_its_own_and_none_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Bench] = []

    async def nothing_ran(bench: Bench, _rows: Any, _calibrations: int) -> list[Any]:
        bench.profiles.append(a_profile())
        seen.append(bench)
        return []

    monkeypatch.setattr(Bench, "rows", nothing_ran)
    asyncio.run(run_estimates(1.0, [], tmp_path, print, print, processes=2, calibrations=1))
    (bench,) = seen
    used = [bench.calibrating.settings, bench.asked.settings, bench.measuring.settings]
    assert len({settings.data_dir for settings in used}) == 3
    assert not any(settings.learning for settings in used)
