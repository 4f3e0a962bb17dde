"""`crosspoint map`: a picture of which plan wins, the same in letters, JSON and SVG."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.advisor.curves.crossover import batch_grid
from app.advisor.curves.winners import Cell, winners
from app.advisor.decide import recommend
from app.advisor.request import Request
from app.cli.endings import CommandFailed, ExitCode
from app.cli.main import main
from app.cli.map import check_drawn
from app.cli.map_view import letter_of, show_map, write_svg
from app.errors import LabError
from app.lab import Lab
from app.mapping import Map, Row
from app.service import Crosspoint
from app.settings import Settings
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_gpu, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile
from tests.app.advisor.test_one_value import DENSE, traced
from tests.app.lab.programs import serving
from tests.app.test_mapping import keep_trace

ALL = (ONE, TWO, ONE_BF16, TWO_BF16, GPU)
SUMMARY = {"parameters": 10**6, "flops_per_sample": 10**7, "activation_bytes_per_sample": 10**5, "operations": 60}
MODEL = json.dumps({"summary": SUMMARY})


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a profile of another machine, `rig`."""
    folder = tmp_path / "data"
    monkeypatch.setenv("CROSSPOINT_DATA_DIR", str(folder))
    monkeypatch.setenv("COLUMNS", "200")

    async def keep() -> None:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            await crosspoint.store.keep_profile(replace(a_profile(ALL), name="rig", fingerprint="another"))

    asyncio.run(keep())


def test_every_cell_is_what_a_recommendation_says_there() -> None:
    survey, profile = a_survey(gpus=[a_gpu()]), a_profile(ALL)
    request = Request(a_workload())
    sizes = (1, 8, 64, 512)
    cells = winners(survey, profile, None, [], request, sizes)
    for size, cell in zip(sizes, cells, strict=True):
        answer = recommend(survey, profile, None, [], replace(request, workload=a_workload(size)))
        assert cell.plan == answer.recommended
        assert cell.step_seconds == (answer.options[0].step_seconds if answer.recommended else None)


def test_what_fits_nowhere_and_what_nobody_knows_are_told_apart() -> None:
    small = a_survey(usable_bytes=10**6)
    (cell,) = winners(small, a_profile(), None, [], Request(a_workload()), (8,))
    assert (cell.plan, cell.fits) == (None, False)
    (cell,) = winners(a_survey(), None, None, [], Request(a_workload()), (8,))
    assert (cell.plan, cell.fits) == (None, None)


def test_what_torch_refuses_is_told_apart_from_what_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    """Batch norm over one value a channel."""
    asked = Request(Workload(parse_model(DENSE), 2))
    cells = winners(a_survey(), None, traced(DENSE, "training"), [], asked, (1, 2))
    assert [(cell.fits, cell.cannot_run) for cell in cells] == [(None, True), (None, False)]
    assert "batch of 2" in str(cells[0].why_not)
    drawn = Map(asked.workload, (1, 2), (Row(1.0, None, tuple(cells)),))
    assert [letter_of(drawn, cell) for cell in cells] == ["!", "?"]
    show_map(drawn)
    assert "Batch 1: torch refuses to train batch norm" in capsys.readouterr().out
    check_drawn(replace(drawn, batch_sizes=(1,), rows=(Row(1.0, None, (cells[0],)),)))  # as a recommendation ends
    large = winners(a_survey(usable_bytes=10**6), None, traced(DENSE, "training"), [], asked, (1, 2))
    with pytest.raises(CommandFailed, match="from 2 on: every plan asked for needs more memory"):
        check_drawn(Map(asked.workload, (1, 2), (Row(1.0, None, tuple(large)),)))


def test_why_nothing_is_known_of_a_batch_is_said_of_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    def row(width: float, *unknown: int) -> Row:
        cells = [Cell(size, why_not="Nobody knows.") if size in unknown else Cell(size, plan=ONE) for size in (1, 2, 4)]
        return Row(width, None, tuple(cells))

    show_map(Map(a_workload(), (1, 2, 4), (row(0.5, 4), row(1.0, 1, 2), row(2.0, 1, 2))))
    shown = " ".join(capsys.readouterr().out.split())
    assert "Width 0.5, batch 4: Nobody knows." in shown
    assert "Width 1, 2, batch 1, 2: Nobody knows." in shown


def test_what_failed_at_a_width_is_not_told_as_too_big_where_the_others_are() -> None:
    """Nobody looked at the smallest, which may fit."""
    failed = Row(0.25, None, (), "It was ended.", LabError("died", "It was ended."))
    too_big, unknown = Row(1.0, None, (Cell(1, fits=False),)), Row(1.0, None, (Cell(1),))
    with pytest.raises(LabError, match="It was ended"):
        check_drawn(Map(a_workload(), (1,), (failed, too_big)))
    check_drawn(Map(a_workload(), (1,), (failed, unknown)))


def test_letters_json_and_svg_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "map.svg"
    words = ["map", MODEL, "--profile", "rig", "--largest-batch", "64", "--widths", "0.5,2", "--svg", str(picture)]
    assert main([*words, "--json"]) == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    assert document["batch_sizes"] == [1, 2, 4, 8, 16, 32, 64]
    assert document["profile"] == "rig"
    (machines,) = [reason for reason in document["reasons"] if reason["code"] == "other-machine"]
    assert machines["widths"] == [0.5, 2.0]
    assert [row["width"] for row in document["rows"]] == [0.5, 2.0]
    assert all(len(row["cells"]) == 7 for row in document["rows"])
    assert not any("reasons" in cell for row in document["rows"] for cell in row["cells"])
    assert main(words) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert ", on rig" in shown.splitlines()[0]
    assert "This answer is not for this machine as it is now" in shown
    assert "Times: 14 predicted." in shown
    for place, plan in enumerate(document["plans"]):
        assert f"{'ABCDEF'[place]}  {plan['device']} {plan['precision']}" in shown
    letters = [line.split()[-7:] for line in shown.splitlines() if line.startswith("width ")]
    drawn = [element.text for element in ElementTree.parse(picture).iter() if element.tag.endswith("text")]
    assert [letter for row in letters for letter in row] == [
        text for text in drawn if text and len(text) == 1 and text.isalpha()
    ]


def test_a_config_is_made_wider_and_one_whose_sizes_are_not_known_has_its_own_width(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = {"model_type": "bert", "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
    sizeless = {"model_type": "swiftformer", "depths": [1, 1, 1, 1]}
    found = {}
    for written in (config, sizeless):
        model = json.dumps({"huggingface": written})
        words = ["map", model, "--profile", "rig", "--largest-batch", "2", "--widths", "1,2", "--json"]
        assert main(words) == ExitCode.DONE
        found[written["model_type"]] = json.loads(capsys.readouterr().out)["rows"]
    narrow, wide = found["bert"]
    assert narrow["parameters"] < wide["parameters"] < 4 * narrow["parameters"]
    assert len(wide["cells"]) == 2
    narrow, wide = found["swiftformer"]
    assert narrow["cells"]
    assert "swiftformer" in wide["why_not"]


def test_ones_own_python_has_its_own_width_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_network.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 3), lambda n: torch.randn(n, 4)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["map", "own_network:make", "--profile", "rig", "--widths", "2", "--json"]) == ExitCode.NOTHING_FITS
    written, said = capsys.readouterr()
    (row,) = json.loads(written)["rows"]
    assert "Python" in row["why_not"]
    assert f"Error: No width works out. {row['why_not']}" in said


@pytest.mark.parametrize(("model", "code"), [("own_broken:make", ExitCode.USAGE), ("own_broken:odd", ExitCode.USAGE)])
def test_a_map_of_what_works_out_at_no_width_ends_as_a_recommendation_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, code: ExitCode
) -> None:
    (tmp_path / "own_broken.py").write_text(
        "def make():\n    raise KeyError('no weights')\n\ndef odd():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["recommend", model, "--effort", "instant"]) == code
    said = capsys.readouterr().err
    assert main(["map", model, "--profile", "rig", "--widths", "1"]) == code
    assert capsys.readouterr().err == said


def test_a_picture_is_as_wide_as_what_is_written_in_it(tmp_path: Path) -> None:
    picture = tmp_path / "map.svg"
    main(["map", MODEL, "--profile", "rig", "--largest-batch", "1", "--widths", "1", "--svg", str(picture)])
    drawn = ElementTree.parse(picture).getroot()
    for text in (element for element in drawn.iter() if element.tag.endswith("text") and element.text):
        if text.get("text-anchor") in (None, "start"):
            assert float(text.get("x", "0")) + 7 * len(text.text or "") <= float(drawn.get("width", "0"))


def test_a_map_of_what_fits_nowhere_is_drawn_and_ends_with_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    huge = json.dumps({"summary": {**SUMMARY, "parameters": 10**13}})
    assert main(["map", huge, "--widths", "1", "--largest-batch", "2"]) == ExitCode.NOTHING_FITS
    written, said = capsys.readouterr()
    assert "nothing fits" in written
    assert "every plan asked for needs more memory" in said


def test_a_map_of_which_nothing_is_known_yet_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", MODEL, "--widths", "1", "--largest-batch", "2", "--json"]) == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert {cell["plan"] is None for cell in row["cells"]} == {True}
    (reason,) = [reason for reason in document["reasons"] if reason["code"] == "no-calibration"]
    assert "crosspoint calibrate" in reason["text"]
    assert main(["map", MODEL, "--widths", "1", "--largest-batch", "2"]) == ExitCode.DONE
    assert capsys.readouterr().out.count("crosspoint calibrate") == 1


def test_a_map_that_was_to_be_measured_and_was_not_is_drawn_and_ends_with_code_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dying = serving("os.kill(os.getpid(), signal.SIGKILL)")

    async def keep() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path / "data")) as crosspoint:
            await keep_trace(crosspoint)

    asyncio.run(keep())
    monkeypatch.setattr("app.service.Lab", lambda settings: Lab(settings, dying))
    words = ["map", "iris-mlp", "--effort", "quick", "--largest-batch", "2", "--widths", "1"]
    assert main(words) == ExitCode.MEASUREMENT_FAILED
    assert "The measurement failed" in capsys.readouterr().out


@pytest.mark.parametrize("widths", ["", "x", "0", "-1", "nan", "inf", ",".join(["1"] * 17), "1e9"])
def test_widths_that_are_none_are_wrong_usage(widths: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", MODEL, "--widths", widths]) == ExitCode.USAGE
    assert "idths" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_costs_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["map", MODEL, "--profile", "rig", "--largest-batch", "1", "--widths", "1", "--json", "--svg", "/dev/full"]
    assert main(words) == ExitCode.FAULT
    written, said = capsys.readouterr()
    assert json.loads(written)["batch_sizes"] == [1]
    assert said == "Error: full could not be written: No space left on device.\n"


def test_what_a_plan_sets_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    plan = replace(ONE, environment={"MALLOC_TRIM_THRESHOLD_": "1", "MALLOC_MMAP_THRESHOLD_": "1"})
    drawn = Map(a_workload(), (1,), (Row(1.0, None, (Cell(1, plan, True),)),))
    show_map(drawn)
    assert capsys.readouterr().out.count("MALLOC_TRIM_THRESHOLD_=1") == 1
    assert write_svg(drawn).count("MALLOC_TRIM_THRESHOLD_=1") == 1


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_each_letter_stands_under_its_batch_however_narrow_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    tuned = replace(TWO, environment={"MALLOC_TRIM_THRESHOLD_": "1", "MALLOC_MMAP_THRESHOLD_": "1"})
    sizes = batch_grid(4096)

    def a_row(width: float) -> Row:
        cells = [Cell(size, ONE if size * width < 100 else tuned, True, close=size == 32) for size in sizes]
        return Row(width, None, tuple(cells), all_parameters=int(118_000 * width))

    drawn = Map(a_workload(), sizes, tuple(map(a_row, (0.25, 0.5, 1.0, 2.0, 4.0))))
    show_map(drawn)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    letters: dict[tuple[float, int], str] = {}
    for place, line in enumerate(lines):
        if line.strip().startswith("batch "):
            for size in re.finditer(r"\d+", line):
                for row, beneath in zip(drawn.rows, lines[place + 1 :], strict=False):
                    letters[row.width, int(size[0])] = beneath[size.end() - 1]
    assert letters == {(row.width, cell.batch_size): letter_of(drawn, cell) for row in drawn.rows for cell in row.cells}
    assert "472 thousand parameters" in " ".join(" ".join(lines).split())
