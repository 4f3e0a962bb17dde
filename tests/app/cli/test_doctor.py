"""`crosspoint doctor`: what it prints, how it ends, and what it keeps to itself."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import doctor
from app.cli.doctor import command, to_document
from app.cli.doctor_view import escape, say_verdict, show_examination, write_markdown
from app.cli.endings import CommandFailed, ExitCode
from probes.diagnose import Facts, build_chains, diagnose
from probes.examination import Examination, judge
from probes.hardware import Outcome, ProbeReport, Survey
from probes.torch_start import TorchStart
from tests.probes.diagnose.situations import HEALTHY, with_card, with_torch
from tests.probes.machines import write_machine, x86_machine

CARD = {
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.0/device": "0x2204\n",
    "proc/modules": "nouveau 1 0 - Live 0x0\n",
    "proc/sys/kernel/hostname": "somewheres-own-box\n",
}


def examination_of(facts: Facts) -> Examination:
    survey = Survey(
        surveyed_at="2026-11-21T09:02:11Z",
        fingerprint="",
        system=replace(facts.system, hostname="somewheres-own-box"),
        cpu=facts.cpu,
        memory=facts.memory,
        accelerators=facts.accelerators,
        storage=(),
        software=facts.software,
        findings=diagnose(facts),
        probes=dict(facts.probes),
        limits=facts.limits,
        load=facts.load,
    )
    return Examination(survey, build_chains(facts))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_it_ends_with_1_when_something_stands_in_the_way(tmp_path: Path) -> None:
    write_machine(tmp_path, {**x86_machine(), **CARD})
    code, text = run("--sysroot", str(tmp_path))
    assert code == 1
    assert "nouveau-instead-of-nvidia" in text
    assert "One thing stands in the way of training" in text


def test_it_ends_with_0_on_a_machine_without_a_gpu(tmp_path: Path) -> None:
    code, text = run("--sysroot", str(write_machine(tmp_path, x86_machine())))
    assert code == 0
    assert "no-gpu" in text
    assert "Nothing that was looked at stands in the way" in text


def test_json_is_one_document_with_chain_and_findings(tmp_path: Path) -> None:
    write_machine(tmp_path, {**x86_machine(), **CARD})
    code, text = run("--sysroot", str(tmp_path), "--json")
    document = json.loads(text)
    assert (code, document["schema_version"], document["exit_code"]) == (1, "1", 1)
    [chain] = document["chain"]
    assert (chain["broken_at"], chain["finding"]) == ("kernel module", "nouveau-instead-of-nvidia")
    assert [link["state"] for link in chain["links"]] == ["ok", "broken", *["not-reached"] * 7]
    assert document["findings"][0]["documentation"] == "docs/findings/nouveau-instead-of-nvidia.md"


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_what_is_for_others_names_no_machine(tmp_path: Path, form: str) -> None:
    write_machine(tmp_path, {**x86_machine(), **CARD})
    assert "somewheres" not in run("--sysroot", str(tmp_path), form)[1]


def test_json_and_markdown_are_not_both() -> None:
    result = CliRunner().invoke(command, ["--json", "--markdown"])
    assert result.exit_code != 0


def test_the_findings_that_block_come_first() -> None:
    facts = with_card(with_torch(cuda_version=None, cuda_available=False), ecc_needs_reset=True)
    facts = replace(facts, environment={"OMP_NUM_THREADS": "1"})
    document = to_document(examination_of(facts))
    assert [finding["code"] for finding in document["findings"]] == [
        "torch-without-cuda",
        "gpu-memory-errors",
        "omp-num-threads-below-usable",
    ]


def test_a_uuid_in_a_variable_or_a_name_does_not_leave_the_machine() -> None:
    uuid = "GPU-12345678-aaaa-bbbb-cccc-1234567890ab"
    facts = replace(with_card(name=None, pci_address=None, id=uuid), environment={"CUDA_VISIBLE_DEVICES": uuid[:12]})
    facts = replace(facts, accelerators=(*facts.accelerators, replace(HEALTHY.accelerators[0], id="GPU-9")))
    document = to_document(examination_of(facts))
    for text in (json.dumps(document), write_markdown(document)):
        assert "12345678" not in text
        assert "1234567890ab" not in text


def test_markdown_is_a_report_with_tables() -> None:
    document = to_document(examination_of(with_torch(cuda_version=None, cuda_available=False)))
    text = write_markdown(document)
    assert text.startswith("## crosspoint doctor\n")
    assert re.search(r"\| torch is built for it \| BROKEN \|", text)
    assert "| torch-without-cuda | warning |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_a_cell_cannot_break_out_of_its_table() -> None:
    assert escape("a|b\n<script>`x`") == "a\\|b \\<script\\>\\`x\\`"


def test_a_healthy_machine_is_told_so() -> None:
    document = to_document(examination_of(HEALTHY))
    assert say_verdict(document) == "Nothing that was looked at stands in the way of training."


def test_what_torch_says_when_it_starts_is_judged() -> None:
    facts = with_torch(cuda_available=None, architectures=())
    before = examination_of(facts).survey
    row = {
        "device": "cuda:0",
        "uuid": facts.accelerators[0].id,
        "capability": "8.6",
        "architectures": ["sm_90", "sm_100"],
    }
    judged = judge(before, None, TorchStart({"event": "ready", "devices": [row]}), {})
    assert [finding.code for finding in judged.findings] == ["torch-without-kernels"]
    assert judged.findings[0].subject == "cuda:0"
    broken = judge(before, None, TorchStart(error="libc10.so: cannot open shared object file"), {})
    assert [finding.code for finding in broken.findings] == ["torch-does-not-start"]


def test_torch_is_not_started_for_a_captured_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.examination.start_torch", lambda _: pytest.fail("torch was started"))
    examination = doctor.run_examination(write_machine(tmp_path, x86_machine()), ask_torch=True)
    assert examination.survey.software.torch is None


def test_a_sysroot_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "missing"):
        result = CliRunner().invoke(command, ["--sysroot", str(place)])
        assert isinstance(result.exception, CommandFailed)
        assert result.exception.code == ExitCode.USAGE


def test_a_probe_that_failed_is_told_beside_the_verdict() -> None:
    examination = examination_of(HEALTHY)
    report = ProbeReport(Outcome.TIMEOUT, 5.0, "what it reads hangs")
    document = to_document(replace(examination, survey=replace(examination.survey, probes={"memory": report})))
    assert "Not to be seen: memory." in say_verdict(document)
    assert "| memory | timeout | what it reads hangs |" in write_markdown(document)


def test_a_fix_is_one_line_so_that_no_half_of_it_is_pasted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    document = to_document(examination_of(with_torch(cuda_version=None, cuda_available=False)))
    show_examination(document)
    fix = document["findings"][0]["fix"]
    assert len(fix) > 40
    assert f"  {fix}" in capsys.readouterr().out.splitlines()
