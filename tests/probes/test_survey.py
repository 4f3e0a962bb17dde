import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes import survey as survey_module
from probes.gpu.amdsmi import AmdsmiReading
from probes.gpu.cuda import CudaReading
from probes.gpu.nvml_process import NvidiaReading
from probes.hardware import Accelerator, Memory, Outcome, ProbeReport, Software, Survey, Torch
from probes.reading import Root
from probes.running import Answer
from probes.survey import PROBES, assemble, compute_fingerprint, take_survey, with_torch_facts
from tests.probes.machines import CPU, Files, with_cgroup_v2, write_machine, x86_machine

MACHINE = with_cgroup_v2(x86_machine(), "/job", {"job": {"cpu.max": "200000 100000", "memory.max": "1073741824"}}) | {
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030000",
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de",
    "sys/bus/pci/devices/0000:01:00.0/device": "0x2204",
    "proc/self/status": "Cpus_allowed_list: 0-7\nMems_allowed_list: 0-1\n",
}


def survey_of(files: Files) -> Survey:
    with tempfile.TemporaryDirectory() as folder:
        return take_survey(write_machine(Path(folder), files), deadline_seconds=60)


def check(survey: Survey) -> dict[str, object]:
    """The document is JSON, and every probe has an outcome with a reason unless it is fine."""
    document = survey.to_json()
    json.dumps(document, allow_nan=False).encode()
    assert list(document["probes"]) == [name for name, _ in PROBES]
    for report in document["probes"].values():
        assert report["outcome"] == "ok" or report["reason"]
    return document


def test_this_machine_is_surveyed_without_torch() -> None:
    survey = take_survey(deadline_seconds=60)
    check(survey)
    assert survey.probes["cpu"].outcome is Outcome.OK
    assert survey.cpu.usable_cores is not None
    assert survey.memory.usable_bytes is not None
    assert survey.surveyed_at.endswith("Z")


def test_a_captured_machine_is_read_and_nothing_of_this_host_mixed_in() -> None:
    survey = survey_of(MACHINE)
    check(survey)
    assert (survey.cpu.usable_cores, survey.cpu.usable_cores_limit) == (2.0, "cgroup")
    assert survey.memory.limit_bytes == 1 << 30
    assert [card.vendor for card in survey.accelerators] == ["NVIDIA"]
    assert (survey.software.python, survey.software.torch) == (None, None)
    assert survey.system.hostname == "somewhere"
    assert "quota-below-cores" in [finding.code for finding in survey.findings]


def test_a_capture_without_the_bus_does_not_say_that_there_is_no_card() -> None:
    """Those made for lscpu hold /proc and /sys/devices/system alone."""
    blind = survey_of({name: text for name, text in x86_machine().items() if not name.startswith("sys/bus/")})
    check(blind)
    assert blind.probes["pci"].outcome is Outcome.ABSENT
    assert "no-gpu" not in {finding.code for finding in blind.findings}
    assert "no-gpu" in {finding.code for finding in survey_of(x86_machine()).findings}


def test_links_to_functions_that_were_not_captured_are_no_bus(tmp_path: Path) -> None:
    bus = write_machine(tmp_path, {"sys/devices/system/cpu/online": "0\n"}) / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    assert take_survey(tmp_path, deadline_seconds=60).probes["pci"].outcome is Outcome.OK
    (bus / "0000:01:00.0").symlink_to("../../../devices/pci0000:00/0000:01:00.0")
    assert take_survey(tmp_path, deadline_seconds=60).probes["pci"].outcome is Outcome.ABSENT
    write_machine(tmp_path, {"sys/devices/pci0000:00/0000:00:00.0/class": "0x060000\n"})
    assert take_survey(tmp_path, deadline_seconds=60).probes["pci"].outcome is Outcome.OK


def test_the_fingerprint_changes_with_the_machine_and_not_with_the_moment() -> None:
    first = survey_of(MACHINE).fingerprint
    busy = MACHINE | {"proc/meminfo": MACHINE["proc/meminfo"].replace("12582912", "1048576")}
    assert survey_of(busy).fingerprint == first
    assert survey_of(MACHINE | {"sys/fs/cgroup/job/cpu.max": "100000 100000"}).fingerprint != first
    assert survey_of(MACHINE | {f"{CPU}/online": "0-3\n", "proc/cpuinfo": ""}).fingerprint != first


@pytest.mark.parametrize("change", [{"driver_version": "581"}, {"id": "GPU-2"}, {"name": "another"}])
def test_the_fingerprint_changes_with_the_card(change: dict[str, str]) -> None:
    card = Accelerator("GPU-1", name="a card", driver_version="580", temperature_celsius=40)
    assert _fingerprint(card) != _fingerprint(replace(card, **change))
    assert _fingerprint(card) == _fingerprint(replace(card, temperature_celsius=80, memory_free_bytes=1))


def _fingerprint(card: Accelerator) -> str:
    from probes.diagnose import Facts

    return compute_fingerprint(Facts(accelerators=(card,)))


def test_a_root_that_is_no_folder_fails_every_probe_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "missing"):
        survey = take_survey(root)
        check(survey)
        assert {report.outcome for report in survey.probes.values()} == {Outcome.FAILED}


def test_an_empty_folder_is_a_machine_of_which_nothing_is_known(tmp_path: Path) -> None:
    survey = take_survey(tmp_path)
    check(survey)
    assert survey.cpu.logical_cores is None
    assert survey.probes["cpu"].outcome is Outcome.ABSENT


def test_an_enormous_file_is_not_read_and_said_so(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {"proc/meminfo": "", "sys/devices/x": ""})
    with (root / "proc/cpuinfo").open("wb") as file:
        file.truncate(1 << 34)  # sparse: takes no space
    survey = take_survey(root)
    assert survey.probes["cpu"].outcome is Outcome.FAILED
    assert "longer than" in (survey.probes["cpu"].reason or "")


def test_folders_in_a_ring_are_left(tmp_path: Path) -> None:
    root = write_machine(tmp_path, MACHINE)
    (root / "sys/devices/pci0000:00").symlink_to(".")
    (root / "sys/class").mkdir()
    (root / "sys/class/block").symlink_to("block")
    (root / f"{CPU}/cpu0/cache/index9").symlink_to("index9")
    check(take_survey(root))


def answers(**values: object) -> dict[str, Answer]:
    known = {name: Answer(None, ProbeReport(Outcome.FAILED, 0.0, "not run")) for name, _ in PROBES}
    return known | {name: Answer(value, ProbeReport(Outcome.OK, 0.0)) for name, value in values.items()}


ON_BUS = (Accelerator("pci-0000:01:00.0", vendor="NVIDIA", pci_address="0000:01:00.0"),)
TOLD = NvidiaReading(
    Outcome.OK,
    None,
    "580",
    "13.0",
    (Accelerator("GPU-1", vendor="NVIDIA", pci_address="0000:01:00.0", driver_version="580"),),
)
CPU_BUILD = Software("3.12", Torch("2.13.0+cpu", cuda_available=False))
CUDA_BUILD = Software("3.12", Torch("2.13.0+cu130", cuda_version="13.0"))


def test_a_card_without_its_driver_is_not_usable_and_why() -> None:
    [card] = assemble(answers(pci=ON_BUS, software=CUDA_BUILD), {}).accelerators
    assert card.usable is False
    assert "driver" in (card.why_not or "")


def test_a_card_beside_a_torch_without_cuda_is_not_usable_and_why() -> None:
    [card] = assemble(answers(pci=ON_BUS, nvidia=TOLD, software=CPU_BUILD), {}).accelerators
    assert (card.id, card.usable) == ("GPU-1", False)
    assert "without CUDA" in (card.why_not or "")


def test_whether_torch_can_use_a_card_is_open_until_it_is_asked() -> None:
    survey = assemble(answers(pci=ON_BUS, nvidia=TOLD, software=CUDA_BUILD), {})
    assert survey.accelerators[0].usable is None
    assert (survey.software.nvidia_driver, survey.software.cuda_driver_version) == ("580", "13.0")


def test_the_cuda_that_torch_loads_is_told_before_the_drivers_own() -> None:
    """As with NVIDIA's compatibility package."""
    nvidia, cuda = replace(TOLD, cuda_driver_version="12.2"), CudaReading(Outcome.OK, driver_version="13.0")
    told = assemble(answers(pci=ON_BUS, nvidia=nvidia, cuda=cuda, software=CUDA_BUILD), {})
    assert told.software.cuda_driver_version == "13.0"
    silent = CudaReading(Outcome.TIMEOUT)
    asked = assemble(answers(pci=ON_BUS, nvidia=nvidia, cuda=silent, software=CUDA_BUILD), {})
    assert asked.software.cuda_driver_version == "12.2"


@pytest.mark.parametrize(
    ("library", "outcome"),
    [
        (AmdsmiReading(Outcome.TIMEOUT, "it is late"), Outcome.TIMEOUT),
        (AmdsmiReading(Outcome.FAILED, "it is broken"), Outcome.OK),
        (AmdsmiReading(Outcome.ABSENT, "there is none"), Outcome.OK),
    ],
)
def test_a_late_amdsmi_leaves_open_what_the_files_do_not_tell_of_a_card(
    monkeypatch: pytest.MonkeyPatch, library: AmdsmiReading, outcome: Outcome
) -> None:
    """In the survey, and so in the fingerprint; a broken one would leave it open for ever."""
    card = Accelerator("pci-ffff:ff:00.0", vendor="AMD", pci_address="ffff:ff:00.0", kernel_driver="amdgpu")
    monkeypatch.setattr(survey_module, "_list_driven", lambda *_: [card])
    monkeypatch.setattr(survey_module, "read_amdsmi", lambda *_: library)
    told = survey_module.probe_amd(survey_module.Request(Root(), 5.0))
    assert told.outcome is outcome
    assert [found.id for found in told.value] == [card.id]


def test_unified_memory_is_the_machines() -> None:
    card = Accelerator("GPU-1", vendor="NVIDIA", pci_address="0000:01:00.0", unified_memory=True)
    told = NvidiaReading(Outcome.OK, accelerators=(card,))
    survey = assemble(answers(nvidia=told, memory=Memory(total_bytes=128, available_bytes=100)), {})
    assert (survey.accelerators[0].memory_total_bytes, survey.accelerators[0].memory_free_bytes) == (128, 100)


def test_graphics_built_into_the_cpu_are_not_trained_on() -> None:
    built_in = Accelerator("pci-0000:00:02.0", vendor="Intel", segment="integrated", pci_address="0000:00:02.0")
    [card] = assemble(answers(pci=(built_in,), software=CUDA_BUILD), {}).accelerators
    assert card.usable is False


def test_every_probe_may_fail_at_once() -> None:
    check(assemble(answers(), {}))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's files")
def test_android_is_read_by_its_files_as_linux_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "android")  # so Python calls it from 3.13 on
    monkeypatch.setitem(sys.modules, "psutil", None)
    survey = take_survey(deadline_seconds=60)
    asked = ("cpu", "limits", "memory", "load", "storage")
    assert {name: survey.probes[name].outcome for name in asked} == dict.fromkeys(asked, Outcome.OK)


def test_the_probes_run_alone_and_leave_heavy_packages_out() -> None:
    script = (
        "import sys; from probes.survey import take_survey; take_survey();"
        "heavy = {'torch', 'transformers', 'numpy', 'fastapi', 'pydantic', 'pynvml', 'cpuinfo', 'psutil', 'archspec'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_python_m_probes_prints_the_survey(tmp_path: Path) -> None:
    root = write_machine(tmp_path, MACHINE)
    command = [sys.executable, "-m", "probes", "--sysroot", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["cpu"]["logical_cores"] == 8


# ---- any machine, bent in any way, is a survey

BENDS: dict[str, Callable[[Path, bytes], None]] = {
    "missing": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "garbled": lambda path, rubbish: path.write_bytes(rubbish),
    "appended": lambda path, rubbish: path.write_bytes(path.read_bytes() + rubbish),
    "truncated": lambda path, rubbish: path.write_bytes(path.read_bytes()[: len(rubbish)]),
    "enormous": lambda path, _: path.write_bytes(b"9" * 300_000),
    "folder": lambda path, _: (path.unlink(), path.mkdir()),  # type: ignore[func-returns-value]
    "loop": lambda path, _: (path.unlink(), path.symlink_to(path.name)),  # type: ignore[func-returns-value]
    "elsewhere": lambda path, _: (path.unlink(), path.symlink_to("/etc/passwd")),  # type: ignore[func-returns-value]
}
NUMBERS = st.sampled_from(
    [b"-1", b"0", b"99999999999999999999", b"0-999999999", b"ffffffff,", b"1e999", b"NaN", b"max"]
)
RUBBISH = st.binary(max_size=60) | NUMBERS
CHANGES = st.lists(
    st.tuples(st.sampled_from(sorted(MACHINE)), st.sampled_from(sorted(BENDS)), RUBBISH),
    min_size=1,
    max_size=12,
    unique_by=lambda change: change[0],
)


@pytest.fixture(scope="module")
def bendable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_machine(tmp_path_factory.mktemp("machine"), MACHINE)


def restore(path: Path, text: str) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHANGES)
def test_a_bent_machine_never_breaks_the_survey(bendable: Path, changes: list[tuple[str, str, bytes]]) -> None:
    try:
        for name, bend, rubbish in changes:
            BENDS[bend](bendable / name, rubbish)
        survey = take_survey(bendable, deadline_seconds=60)
    finally:
        for name, _, _ in changes:
            restore(bendable / name, MACHINE[name])
    check(survey)
    assert not [report for report in survey.probes.values() if "the probe failed" in (report.reason or "")]


def test_what_torch_says_later_is_diagnosed_too() -> None:
    before = assemble(answers(pci=ON_BUS, nvidia=TOLD, cuda=None, software=CUDA_BUILD), {})
    assert before.findings == ()
    row = {"device": "cuda:0", "pci_address": "0000:01:00.0", "capability": "6.1", "architectures": ["sm_75", "sm_86"]}
    card = replace(before.accelerators[0], compute_capability="6.1")
    told = with_torch_facts(replace(before, accelerators=(card,)), {"event": "ready", "devices": [row]})
    assert [finding.code for finding in told.findings if finding.blocking] == ["torch-without-kernels"]
