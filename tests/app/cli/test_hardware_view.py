"""A survey as text."""

from dataclasses import replace

import pytest

from app.cli.hardware_view import show_survey
from probes.hardware import (
    Accelerator,
    CacheSizes,
    Cpu,
    Finding,
    Limits,
    Load,
    Memory,
    Outcome,
    ProbeReport,
    Severity,
    Software,
    Storage,
    Survey,
    System,
    Torch,
)

NOTHING = Survey("2026-11-21T09:02:11Z", "0", System(), Cpu(), Memory(), (), (), Software(), (), {})
HYBRID = replace(
    NOTHING,
    cpu=Cpu(
        name="12th Gen Intel(R) Core(TM) i9-12900KF",
        vendor="Intel",
        microarchitecture="Alder Lake",
        sockets=1,
        physical_cores=16,
        logical_cores=24,
        performance_cores=8,
        efficiency_cores=8,
        usable_cores=4.0,
        usable_cores_limit="cgroup",
        cache_bytes=CacheSizes(l1d=655360, l2=14680064),
        instruction_sets=("avx2", "avx_vnni"),
    ),
    memory=Memory(total_bytes=64_000_000_000, usable_bytes=8_000_000_000, limit_bytes=10_000_000_000),
    accelerators=(
        Accelerator(
            id="GPU-1",
            name="NVIDIA GeForce RTX 3080 Ti",
            memory_total_bytes=12_000_000_000,
            usable=False,
            why_not="its driver is too old",
        ),
    ),
    storage=(Storage("/", "nvme", 100_000_000_000, 50_000_000_000),),
    software=Software(python="3.12.1", torch=Torch(version="2.13.0", cuda_version="13.0")),
    findings=(
        Finding("old-driver", Severity.ERROR, "cuda:0", "The driver is too old.", "Install driver 580 or newer."),
    ),
    probes={"cpu": ProbeReport(Outcome.OK), "nvidia": ProbeReport(Outcome.TIMEOUT, 5.0, "no answer within 5 s")},
)


def show(survey: Survey, capsys: pytest.CaptureFixture[str]) -> str:
    show_survey(survey.to_json())
    return capsys.readouterr().out


def test_cores_say_what_is_there_what_kind_and_what_may_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(HYBRID, capsys)
    assert "16 physical, 24 logical, 8 performance and 8 efficiency, 4 usable (limited by cgroup)" in out
    assert "limited to 10 GB by cgroup" in out


def test_nodes_of_a_gpus_memory_are_no_part_of_the_machines_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """A Grace Hopper: one node of the CPU's, one of the GPU's memory."""
    grace = Cpu(sockets=1, physical_cores=72, logical_cores=72, numa_nodes=1, numa_nodes_without_cpus=1)
    shown = show(replace(NOTHING, cpu=grace), capsys)
    assert "1 socket, 1 NUMA node without cores (an expander's or a GPU's memory)" in " ".join(shown.split())
    assert "of them" not in shown


def test_a_learner_reads_what_the_suffix_means_and_what_torch_takes(capsys: pytest.CaptureFixture[str]) -> None:
    cpu = replace(
        HYBRID.cpu, generation="12th Gen Core", suffix="KF", suffix_meaning="Unlocked.", torch_instruction_set="AVX2"
    )
    out = show(replace(HYBRID, cpu=cpu), capsys)
    assert "avx2, avx_vnni; torch's own kernels: AVX2" in out
    assert "suffix KF" in out
    assert "Unlocked." in out


def test_limits_and_load_are_told_where_they_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    limits = Limits(shared_memory_total_bytes=67_108_864, locked_memory_unlimited=True, open_files=1024)
    load = Load(load_average=3.5, busy_fraction=0.5, steal_fraction=0.1)
    out = show(replace(HYBRID, limits=limits, load=load), capsys)
    assert "/dev/shm 67.1 MB, locked memory unlimited, 1024 open files" in out
    assert "taken by the hypervisor for others" in out
    assert "limits" not in show(HYBRID, capsys)


def test_a_gpu_that_cannot_be_used_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no: its driver is too old" in show(HYBRID, capsys)


def test_findings_carry_their_code_and_their_fix(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(HYBRID, capsys)
    assert "error: The driver is too old. [old-driver]" in out
    assert "Install driver 580 or newer." in out


def test_a_probe_that_did_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no answer within 5 s" in show(HYBRID, capsys)


def test_a_machine_that_told_nothing_is_shown_without_invented_facts(capsys: pytest.CaptureFixture[str]) -> None:
    out = show(NOTHING, capsys)
    assert "unknown CPU" in out
    assert not {"None", "False", "0"} & set(out.replace(",", " ").split())
    assert "not installed" not in out


def test_a_fix_is_one_line_so_that_no_half_of_it_is_pasted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    fix = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    finding = Finding("slow-governor", Severity.WARNING, "cpu", "Its clock is held down.", fix)
    assert f"  {fix}" in show(replace(NOTHING, findings=(finding,)), capsys).splitlines()
