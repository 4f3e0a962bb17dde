"""A kept run is told again by the code as it stands: its truth stays, and `instant` comes from its own calibrations."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from app.service import Crosspoint
from app.settings import Settings
from benchmarks.estimates import profile_file
from benchmarks.retell import main, read_calibrations, retell, run_retell

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-24-amd-epyc-zen-5-2-cores"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A small run: the first rows of a real one, beside two of its calibrations."""
    rows = json.loads((RESULTS / "estimates.json").read_text(encoding="utf-8"))["rows"][:2]
    result = tmp_path / "kept.json"
    unknown = {**rows[0], "name": "a model that the benchmark no longer has"}
    document = {"truth_processes": 4, "rows": [*rows, unknown, {"name": "iris", "error": "did not run"}]}
    result.write_text(json.dumps(document), encoding="utf-8")
    for number in (1, 2):
        kept = json.loads(profile_file(RESULTS / "estimates.json", number).read_bytes())
        profile_file(result, number).write_text(json.dumps(of_few_networks(kept)), encoding="utf-8")
    return result


def of_few_networks(profile: dict[str, Any]) -> dict[str, Any]:
    """A calibration that met every fifth network alone, and is fitted in a fifth of the time."""
    names = sorted({network["name"] for network in profile["networks"]})[::5]
    steps = [step["network"] in names for step in profile["steps"]]
    return {
        **profile,
        "networks": [network for network in profile["networks"] if network["name"] in names],
        "contexts": [context for context in profile["contexts"] if steps[context["step"]]],
    }


def test_instant_and_rules_of_thumb_are_told_anew_and_all_else_stays(kept: Path, tmp_path: Path) -> None:
    before = json.loads(kept.read_text(encoding="utf-8"))
    for row in before["rows"][:2]:
        row["instant"] = row["baselines"] = None
    after = asyncio.run(run_retell(before, read_calibrations(kept), tmp_path / "store"))
    for old, new in zip(before["rows"][:2], after["rows"], strict=False):
        assert (new["truth"], new["quick"]) == (old["truth"], old["quick"])
        assert set(new["instant"]["options"]) == set(old["truth"])
        for option in new["instant"]["options"].values():
            assert option["basis"] == "predicted"
            assert 0 < option["low"] < option["median"] < option["high"]
        assert all(new["baselines"][label]["roofline"] > 0 for label in old["truth"])
        assert len(new["instant of each calibration alone"]) == 2
    assert after["truth_processes"] == 4
    assert after["rows"][2:] == before["rows"][2:]
    assert after["table"]["advisers"]["instant"]["estimates"] == 12


def test_a_block_is_told_by_what_was_calibrated_until_then(kept: Path, tmp_path: Path) -> None:
    (row, *_), calibrations = json.loads(kept.read_text(encoding="utf-8"))["rows"], read_calibrations(kept)

    async def tell() -> list[dict[str, Any]]:
        async with Crosspoint(Settings.from_environment(data_dir=tmp_path / "store", learning=False)) as crosspoint:
            rows = [{**row, "block": block} for block in range(3)]
            return await retell(rows, calibrations, crosspoint)

    first, second, beyond = asyncio.run(tell())
    alone = first["instant of each calibration alone"]
    assert alone == second["instant of each calibration alone"]
    assert first["instant"] == alone[0]
    assert second["instant"] not in alone  # but between them
    assert beyond == {**row, "block": 2}  # it was not reached: no calibration of its own was kept


@pytest.mark.parametrize("at_least", [2, math.inf])
def test_each_block_may_be_told_by_more_calibrations(kept: Path, tmp_path: Path, at_least: float) -> None:
    document = json.loads(kept.read_text(encoding="utf-8"))
    row = document["rows"][0]
    document["rows"] = [{**row, "block": block} for block in range(3)]
    told = asyncio.run(run_retell(document, read_calibrations(kept), tmp_path / "store", at_least=at_least))["rows"]
    assert told[0]["instant"] == told[1]["instant"] not in told[0]["instant of each calibration alone"]
    assert told[2] == document["rows"][2]


def test_every_block_may_be_told_by_calibrations_of_another_hour(kept: Path, tmp_path: Path) -> None:
    document = json.loads(kept.read_text(encoding="utf-8"))
    document["rows"] = [{**document["rows"][0], "block": block} for block in range(3)]
    kept.write_text(json.dumps(document), encoding="utf-8")
    other = tmp_path / "another_hour.json"
    profile_file(kept, 2).replace(other)
    profile_file(kept, 1).unlink()
    output = tmp_path / "told.json"
    assert main([str(kept), "--by", str(other), "--store", str(tmp_path / "store"), "--output", str(output)]) == 0
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert all(row["instant"] == rows[0]["instant"] for row in rows)
    assert [row["instant of each calibration alone"] for row in rows] == [[row["instant"]] for row in rows]


def test_a_run_without_its_calibrations_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="alone_profile_1"):
        read_calibrations(tmp_path / "alone.json")


def test_what_cannot_be_told_again_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.json")])
    assert "none.json cannot be told again" in capsys.readouterr().err
