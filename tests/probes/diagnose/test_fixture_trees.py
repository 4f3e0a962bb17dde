"""Whole machines as files, read by a real survey: what the doctor finds on them."""

from pathlib import Path

import pytest

from probes.diagnose import Facts, build_chains
from probes.hardware import Finding
from probes.survey import take_survey
from tests.probes.machines import Files, with_cgroup_v2, write_machine, x86_cpuinfo, x86_machine

ADDRESS = "0000:01:00.0"
BUS = f"sys/bus/pci/devices/{ADDRESS}"
NVIDIA_CARD = {f"{BUS}/class": "0x030000\n", f"{BUS}/vendor": "0x10de\n", f"{BUS}/device": "0x2204\n"}
AMD_CARD = {**NVIDIA_CARD, f"{BUS}/vendor": "0x1002\n", f"{BUS}/device": "0x744c\n"}
DOCKER = {".dockerenv": "", "proc/self/cgroup": "0::/\n"}
NVIDIA_DRIVER = {
    "proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\n",
    "sys/module/nvidia/version": "580.65.06\n",
}
NVIDIA_DEVICES = {"dev/nvidia0": "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""}


def survey_codes(folder: Path, files: Files, driver: str | None = None) -> list[str]:
    """`driver`: what the card is bound to, as the kernel shows it: a link."""
    return [finding.code for finding in survey_findings(folder, files, driver)]


def survey_findings(folder: Path, files: Files, driver: str | None = None) -> tuple[Finding, ...]:
    write_machine(folder, {**x86_machine(), **files})
    if driver is not None:
        (folder / BUS / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return take_survey(folder, deadline_seconds=60).findings


def test_a_machine_without_a_card(tmp_path: Path) -> None:
    assert survey_codes(tmp_path, {}) == ["no-gpu"]


def test_a_card_without_a_driver(tmp_path: Path) -> None:
    assert survey_codes(tmp_path, {**NVIDIA_CARD, "proc/modules": "ext4 1 0 - Live 0x0\n"}) == ["gpu-without-driver"]


def test_a_card_with_nouveau(tmp_path: Path) -> None:
    files = {**NVIDIA_CARD, "proc/modules": "nouveau 1 0 - Live 0x0\n"}
    assert survey_codes(tmp_path, files, "nouveau") == ["nouveau-instead-of-nvidia"]


def test_nouveau_is_known_by_its_module_where_links_were_not_captured(tmp_path: Path) -> None:
    files = {**NVIDIA_CARD, "proc/modules": "nouveau 1 0 - Live 0x0\n"}
    assert survey_codes(tmp_path, files) == ["nouveau-instead-of-nvidia"]


def test_an_amd_card_with_its_old_driver(tmp_path: Path) -> None:
    files = {**AMD_CARD, "proc/modules": "radeon 1 0 - Live 0x0\n"}
    [finding] = survey_findings(tmp_path, files, "radeon")
    assert finding.code == "gpu-without-driver"
    assert "radeon.si_support=0" in (finding.fix or "")


def test_a_laptop_whose_processor_brings_graphics_and_a_neural_processor(tmp_path: Path) -> None:
    devices = "sys/bus/pci/devices"
    files = {
        f"{devices}/0000:00:02.0/class": "0x030000\n",
        f"{devices}/0000:00:02.0/vendor": "0x8086\n",
        f"{devices}/0000:00:02.0/device": "0x7d55\n",
        f"{devices}/0000:00:0b.0/class": "0x120000\n",
        f"{devices}/0000:00:0b.0/vendor": "0x8086\n",
        f"{devices}/0000:00:0b.0/device": "0x7d1d\n",
    }
    assert survey_codes(tmp_path, files) == ["no-gpu"]


def test_a_card_that_a_virtual_machine_has(tmp_path: Path) -> None:
    assert survey_codes(tmp_path, {**NVIDIA_CARD, **NVIDIA_DRIVER}, "vfio-pci") == ["gpu-reserved-for-virtual-machine"]


def test_a_container_without_its_gpu(tmp_path: Path) -> None:
    files = {**NVIDIA_CARD, **NVIDIA_DRIVER, **DOCKER, "dev/null": ""}
    assert survey_codes(tmp_path, files, "nvidia") == ["container-without-gpu"]


def test_device_files_that_nobody_made(tmp_path: Path) -> None:
    files = {**NVIDIA_CARD, **NVIDIA_DRIVER, "dev/null": ""}
    assert survey_codes(tmp_path, files, "nvidia") == ["device-files-missing"]


def test_a_driver_that_was_updated_while_it_ran(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.82.07")
    (folder / "libnvidia-ml.so.580.82.07").touch()
    files = {**NVIDIA_CARD, **NVIDIA_DRIVER, **NVIDIA_DEVICES}
    assert survey_codes(tmp_path, files, "nvidia") == ["driver-versions-differ"]


def test_an_installed_driver_is_no_finding(tmp_path: Path) -> None:
    files = {**NVIDIA_CARD, **NVIDIA_DRIVER, **NVIDIA_DEVICES}
    assert survey_codes(tmp_path, files, "nvidia") == []
    survey = take_survey(tmp_path, deadline_seconds=60)
    [chain] = build_chains(Facts.of(survey, {}))
    assert chain.broken_at is None
    assert [link.state for link in chain.links][:3] == ["ok", "ok", "ok"]


def test_amds_card_without_its_module_and_without_its_files(tmp_path: Path) -> None:
    assert survey_codes(tmp_path, {**AMD_CARD, "proc/modules": "ext4 1 0 - Live 0x0\n"}) == ["gpu-without-driver"]
    there = write_machine(tmp_path / "other", {})
    files = {**AMD_CARD, "proc/modules": "amdgpu 1 0 - Live 0x0\n", "dev/null": ""}
    assert survey_codes(there, files) == ["device-files-missing"]


def test_two_cards_that_break_at_different_links(tmp_path: Path) -> None:
    """Each is its own finding, since each wants another mend."""
    other = {name.replace("01:00.0", "02:00.0"): text for name, text in AMD_CARD.items()}
    files = {**NVIDIA_CARD, **other, "proc/modules": "nouveau 1 0 - Live 0x0\namdgpu 1 0 - Live 0x0\n", "dev/null": ""}
    assert survey_codes(tmp_path, files, "nouveau") == ["nouveau-instead-of-nvidia", "device-files-missing"]


def test_a_quota_of_a_cgroup(tmp_path: Path) -> None:
    files = with_cgroup_v2(x86_machine(), "/job", {"job": {"cpu.max": "200000 100000"}})
    assert survey_codes(tmp_path, files) == ["no-gpu", "quota-below-cores"]


def test_a_cpuset_is_no_quota(tmp_path: Path) -> None:
    files = with_cgroup_v2(x86_machine(), "/job", {"job": {"cpuset.cpus.effective": "0-1\n"}})
    assert survey_codes(tmp_path, files) == ["no-gpu"]


def test_a_governor_that_stays_low(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    files = {f"{folder}/scaling_governor": "powersave\n", f"{folder}/scaling_driver": "acpi-cpufreq\n"}
    assert survey_codes(tmp_path, files) == ["no-gpu", "slow-governor"]


def test_a_small_dev_shm(tmp_path: Path) -> None:
    files = {"proc/mounts": "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0\n"}
    assert survey_codes(tmp_path, files) == ["no-gpu", "small-shared-memory"]


def test_limits_of_a_process(tmp_path: Path) -> None:
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            256                  4096                 files     \n"
        "Max locked memory         65536                65536                bytes     \n"
    )
    files = {**NVIDIA_CARD, **NVIDIA_DRIVER, **NVIDIA_DEVICES, "proc/self/limits": limits}
    assert survey_codes(tmp_path, files, "nvidia") == ["low-locked-memory", "low-open-files"]


def test_a_swapping_machine(tmp_path: Path) -> None:
    meminfo = (
        "MemTotal: 16777216 kB\nMemFree: 131072 kB\nMemAvailable: 1048576 kB\n"
        "SwapTotal: 8388608 kB\nSwapFree: 1048576 kB\n"
    )
    assert survey_codes(tmp_path, {"proc/meminfo": meminfo}) == ["no-gpu", "swap-in-use"]


@pytest.mark.parametrize("hypervisor", [True, False])
def test_a_guest_that_sees_less_than_its_processor_has(tmp_path: Path, hypervisor: bool) -> None:
    """Family 6, model 143 is Sapphire Rapids; the flags end at AVX2."""
    flags = "fpu lm sse2 sse4_2 avx f16c fma avx2 bmi1 bmi2" + (" hypervisor" if hypervisor else "")
    block = "cpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel Xeon Processor (SapphireRapids)\nstepping\t: 8\n"
    text = x86_cpuinfo(8, flags).replace("model name\t: Some CPU @ 2.00GHz\n", block)
    expected = ["no-gpu", "masked-instruction-sets"] if hypervisor else ["no-gpu"]
    assert survey_codes(tmp_path, {"proc/cpuinfo": text}) == expected


def test_a_narrow_link(tmp_path: Path) -> None:
    files = {
        **NVIDIA_CARD,
        **NVIDIA_DRIVER,
        **NVIDIA_DEVICES,
        f"{BUS}/current_link_width": "4\n",
        f"{BUS}/max_link_width": "16\n",
    }
    assert survey_codes(tmp_path, files, "nvidia") == ["narrow-pcie-link"]
