"""Whole commands with the real service and the real measuring process, on models that take no time."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.endings import ExitCode
from app.cli.main import main
from app.keeping import Kept
from app.service import Crosspoint
from probes.profile import Profile
from probes.workload.models import parse_model
from tests.app.advisor.machine import a_profile


@pytest.fixture(autouse=True)
def data_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSPOINT_DATA_DIR", str(tmp_path_factory.mktemp("data")))


def run_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit code, and standard output as the one document that it has to be."""
    code = main(words)
    return code, json.loads(capsys.readouterr().out)


def test_hardware_prints_the_document_of_get_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run_json(["hardware", "--json"], capsys)
    assert code == ExitCode.DONE
    assert {"schema_version", "fingerprint", "cpu", "memory", "accelerators", "findings", "probes"} <= set(document)


def test_models_lists_the_catalogue_and_shows_a_row_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    _, listed = run_json(["models", "--json"], capsys)
    assert listed["models"][0]["name"] == "iris-mlp"
    for name in (row["name"] for row in listed["models"]):
        _, row = run_json(["models", name, "--json"], capsys)
        assert parse_model(row["model"]).key == parse_model(name).key  # it can be changed and asked about
    _, row = run_json(["models", "LeNet", "--json"], capsys)
    assert row["name"] == parse_model("lenet").name


def test_measure_runs_real_steps_under_every_plan(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["measure", "iris-mlp", "--seconds", "2", "--device", "cpu", "--precision", "fp32", "--json"]
    code, document = run_json(words, capsys)
    assert code == ExitCode.DONE
    ran = [row for row in document["measurements"] if row["outcome"] == "ok"]
    assert ran
    assert all(row["step"]["median"] > 0 for row in ran)


def test_what_fits_nowhere_is_answered_with_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = {
        "parameters": 10**12,
        "flops_per_sample": 10**15,
        "activation_bytes_per_sample": 10**12,
        "operations": 10**4,
    }
    model = tmp_path / "huge.json"
    model.write_text(json.dumps({"summary": sizes}))
    code, document = run_json(["recommend", str(model), "--effort", "instant", "--json"], capsys)
    assert code == ExitCode.NOTHING_FITS
    assert all(option["fits"] is False for option in document["options"])
    assert document["saved"] is True


def test_the_user_s_own_python_that_fails_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_model.py").write_text("def make():\n    raise RuntimeError('my own fault')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["recommend", "own_model:make", "--effort", "instant"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert "my own fault" in captured.err
    assert "Traceback" not in captured.err


def test_the_experiment_ends_with_its_words_and_writes_its_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    words = [
        "experiment",
        "iris",
        "--epochs",
        "60",
        "--log-every",
        "1,10,never",
        "--device",
        "cpu",
        "--report",
        str(report),
    ]
    assert main(words) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "every 10 epochs" in out
    assert "the time does not follow the number of readings" in " ".join(out.split())
    assert "Accuracy on the 30 held-out rows" in out
    assert "Time against readings" in report.read_text(encoding="utf-8")


def test_a_calibration_that_could_not_be_kept_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def calibrate(*_: object, **__: object) -> Kept[Profile]:
        return Kept(a_profile(), "This was not saved: the disk is full.")

    monkeypatch.setattr(Crosspoint, "calibrate_and_keep", calibrate)
    assert main(["calibrate", "--device", "cpu", "--json"]) == ExitCode.FAULT
    out, err = capsys.readouterr()
    assert json.loads(out)["name"] == a_profile().name
    assert "not saved: the disk is full" in err
