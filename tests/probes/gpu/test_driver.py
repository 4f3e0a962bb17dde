"""Drivers as files show them: real files, real permissions, trees for machines that are not here."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from probes.gpu.cuda import CudaReading
from probes.gpu.driver import (
    FAMILIES,
    find_library,
    join_answers,
    read_device_file,
    read_drivers,
    read_fabric_manager,
    read_modules,
)
from probes.gpu.nvml_process import NvidiaReading
from probes.hardware import Accelerator, DeviceFile, Driver, Outcome
from probes.reading import Root
from tests.probes.machines import Files, write_machine

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def drivers_of(folder: Path, files: Files) -> dict[str, Driver]:
    return {driver.vendor: driver for driver in read_drivers(Root(write_machine(folder, files)))}


def test_modules_come_from_both_lists(tmp_path: Path) -> None:
    files = {
        "proc/modules": "nvidia_uvm 1 0 - Live 0x0\n\nnvidia 2 1 nvidia_uvm, Live 0x0\n",
        "sys/module/xe/version": "",
    }
    root = Root(write_machine(tmp_path, files))
    assert read_modules(root) == {"nvidia", "nvidia_uvm", "xe"}


def test_a_capture_without_modules_or_devices_is_silent_about_them(tmp_path: Path) -> None:
    for driver in drivers_of(tmp_path, {"proc/cpuinfo": ""}).values():
        assert (driver.kernel_modules, driver.device_files) == (None, None)


def test_a_whole_driver_is_found_part_by_part(tmp_path: Path) -> None:
    files = {
        "proc/modules": "nvidia 1 0 - Live 0x0\namdgpu 1 0 - Live 0x0\n",
        "sys/module/nvidia/version": "580.65.06\n",
        "dev/nvidia0": "",
        "dev/nvidiactl": "",
        "dev/nvidia-uvm": "",
        "dev/nvidia-caps": "",
        "dev/null": "",
        "dev/kfd": "",
        "dev/dri/renderD128": "",
        "dev/dri/card0": "",
        "sys/class/drm/renderD128/device/vendor": "0x1002\n",
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.82.07": "",
    }
    write_machine(tmp_path, files)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.82.07")
    found = drivers_of(tmp_path, {})
    nvidia = found["NVIDIA"]
    assert nvidia.kernel_modules == ("nvidia",)
    assert nvidia.kernel_module_version == "580.65.06"
    assert (nvidia.library, nvidia.library_version) == ("libnvidia-ml.so.1", "580.82.07")
    assert [file.path for file in nvidia.device_files or ()] == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert [file.path for file in found["AMD"].device_files or ()] == ["/dev/kfd", "/dev/dri/renderD128"]
    assert found["Intel"].device_files == ()


def test_of_a_captured_device_file_nobody_can_tell_who_may_use_it(tmp_path: Path) -> None:
    files = drivers_of(tmp_path, {"dev/nvidiactl": ""})["NVIDIA"].device_files
    assert files == (DeviceFile("/dev/nvidiactl"),)


def test_a_file_that_this_user_may_use_has_no_error(tmp_path: Path) -> None:
    place = tmp_path / "device"
    place.touch(0o660)
    file = read_device_file(Root(), str(place))
    assert (file.readable, file.writable, file.error) == (True, True, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_file_for_others_is_refused_by_its_permissions() -> None:
    """In a real process of another user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place = Path(folder) / "device"
        place.touch()
        place.chmod(0o660)
        told = _read_as_nobody(place)
    assert (told["readable"], told["writable"], told["error"]) == (False, False, "EACCES")
    assert told["group"] is not None


def _read_as_nobody(place: Path) -> dict[str, object]:
    program = (
        f"import os, json, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from dataclasses import asdict\n"
        "from probes.gpu.driver import read_device_file\nfrom probes.reading import Root\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"print(json.dumps(asdict(read_device_file(Root(), {str(place)!r}))))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    told: dict[str, object] = json.loads(ended.stdout)
    return told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
def test_a_device_that_the_container_rules_out_is_refused_though_its_permissions_allow_it(tmp_path: Path) -> None:
    """A real device cgroup, where this machine has one that refuses the number of NVIDIA's devices."""
    place = tmp_path / "nvidiactl"
    try:
        os.mknod(place, 0o20666, os.makedev(195, 255))
    except PermissionError:
        pytest.skip("device files may not be made here")
    if os.access(place, os.R_OK):
        pytest.skip("no device cgroup refuses this device here")
    assert read_device_file(Root(), str(place)).error == "EPERM"


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, None),
        ({"proc/driver/nvidia-nvswitch/x": ""}, "absent"),
        ({"proc/driver/nvidia-nvswitch/x": "", "usr/bin/nv-fabricmanager": ""}, "stopped"),
        ({"proc/driver/nvidia-nvswitch/x": "", "proc/71/comm": "nv-fabricmanage\n"}, "running"),
        ({"proc/driver/nvidia-nvswitch/x": "", ".dockerenv": ""}, None),
        ({"proc/driver/nvidia-nvswitch/x": "", "proc/self/cgroup": "0::/kubepods/pod1\n"}, None),
        ({"proc/driver/nvidia-nvswitch/x": "", "var/run/secrets/kubernetes.io/x": ""}, None),
    ],
)
def test_the_fabric_manager_is_looked_for_beside_switches_only(tmp_path: Path, files: Files, state: str | None) -> None:
    assert read_fabric_manager(Root(write_machine(tmp_path, {"proc/1/comm": "systemd\n", **files}))) == state


def test_where_processes_are_hidden_nobody_knows_whether_the_fabric_manager_runs(tmp_path: Path) -> None:
    """In a PID namespace of its own, or under `hidepid`, which hides the first process as well."""
    switch = {"proc/driver/nvidia-nvswitch/x": "", "usr/bin/nv-fabricmanager": ""}
    assert read_fabric_manager(Root(write_machine(tmp_path / "hidepid", switch))) is None
    for namespace, state in (("pid:[4026534311]", None), ("pid:[4026531836]", "stopped")):
        folder = write_machine(tmp_path / namespace, switch | {"proc/1/comm": "sleep\n"})
        (folder / "proc/self/ns").mkdir(parents=True)
        (folder / "proc/self/ns/pid").symlink_to(namespace)
        assert read_fabric_manager(Root(folder)) == state


def test_what_libraries_said_goes_before_what_file_names_say() -> None:
    seen = Driver("NVIDIA", ("nvidia",), "580.65.06", "libnvidia-ml.so.1", "580.65.06", (), fabric_manager="stopped")
    nvidia = NvidiaReading(
        Outcome.FAILED,
        library="libnvidia-ml.so.1",
        library_version="580.82.07",
        library_error="NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        fabric_state="completed",
    )
    cuda = CudaReading(Outcome.FAILED, compute_error="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")
    [joined] = join_answers((seen, Driver("AMD")), nvidia, cuda, ())
    assert joined == replace(
        seen,
        library_version="580.82.07",
        library_error="NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        compute_error="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        compute_devices=0,
        fabric_manager="running",
    )


def test_a_loader_on_ones_own_path_does_not_hide_the_driver_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As conda-forge's level-zero beside the distribution's driver."""
    own, system = tmp_path / "own", tmp_path / "system"
    write_machine(tmp_path, {"own/libze_loader.so.1": "", "system/libze_intel_gpu.so.1": ""})
    monkeypatch.setenv("LD_LIBRARY_PATH", str(own))
    intel = next(family for family in FAMILIES if family.vendor == "Intel")
    assert find_library(Root(), replace(intel, folders=(str(system),)))[0] == "libze_intel_gpu.so.1"


def test_a_vendor_has_a_row_where_it_has_a_card_or_a_driver() -> None:
    drivers = (Driver("NVIDIA"), Driver("AMD", library="libamdhip64.so"), Driver("Intel", ("i915",)))
    rows = join_answers(drivers, NvidiaReading(Outcome.ABSENT), None, (Accelerator("pci", vendor="NVIDIA"),))
    assert [row.vendor for row in rows] == ["NVIDIA", "Intel"]
