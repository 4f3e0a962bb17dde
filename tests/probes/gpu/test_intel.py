"""Intel's GPUs as i915 and xe write them into sysfs (the kernel's ABI documents)."""

from pathlib import Path

import pytest

from probes.gpu.intel import Meter, explain_throttling, read_intel
from probes.hardware import Accelerator
from probes.reading import Root
from tests.probes.machines import GIB, Files, write_machine

ADDRESS = "0000:03:00.0"
FOLDER = f"sys/bus/pci/devices/{ADDRESS}"
HWMON = f"{FOLDER}/hwmon/hwmon3"


def card(driver: str, **more: bool) -> Accelerator:
    return Accelerator(f"pci-{ADDRESS}", vendor="Intel", pci_address=ADDRESS, kernel_driver=driver, **more)  # type: ignore[arg-type]


def write(folder: Path, *groups: Files) -> Root:
    for group in groups:
        write_machine(folder, {name: f"{text}\n" for name, text in group.items()})
    return Root(folder)


FREQUENCIES = f"{FOLDER}/tile0/gt0/freq0"
XE: Files = {
    f"{FOLDER}/tile0/physical_vram_size_bytes": str(12 * GIB),
    f"{FREQUENCIES}/act_freq": "1200",
    f"{FREQUENCIES}/rp0_freq": "2850",
    f"{FREQUENCIES}/max_freq": "2000",
    f"{FREQUENCIES}/throttle/status": "1",
    f"{FREQUENCIES}/throttle/reason_pl1": "1",
    f"{FREQUENCIES}/throttle/reason_pl2": "1",
    f"{FREQUENCIES}/throttle/reason_thermal": "0",
    f"{HWMON}/name": "xe",
    f"{HWMON}/temp2_input": "51000",
    f"{HWMON}/temp2_label": "pkg",
    f"{HWMON}/temp3_input": "60000",
    f"{HWMON}/temp3_label": "vram",
    f"{HWMON}/energy1_input": "5000000",
    f"{HWMON}/power1_max": "190000000",
}


def test_xe_tells_clocks_heat_limits_and_what_holds_it_down(tmp_path: Path) -> None:
    told = read_intel(write(tmp_path, XE), card("xe"))
    assert (told.graphics_clock_hz, told.graphics_clock_maximum_hz) == (1_200_000_000, 2_850_000_000)
    assert (told.memory_total_bytes, told.memory_free_bytes) == (12 * GIB, None)
    assert (told.temperature_celsius, told.power_limit_watts, told.power_watts) == (51.0, 190.0, None)
    assert told.throttle_codes == ("pl1", "pl2")
    assert told.throttle_reasons == ("held down by its sustained power limit", "held down by its burst power limit")


def test_all_tiles_count_or_none(tmp_path: Path) -> None:
    two = {f"{FOLDER}/tile{n}/physical_vram_size_bytes": str(64 * GIB) for n in range(2)}
    assert read_intel(write(tmp_path / "two", two), card("xe")).memory_total_bytes == 128 * GIB
    two[f"{FOLDER}/tile1/physical_vram_size_bytes"] = "?"
    assert read_intel(write(tmp_path / "half", two), card("xe")).memory_total_bytes is None


def test_i915_tells_the_same_in_other_places(tmp_path: Path) -> None:
    gt = f"{FOLDER}/drm/card1/gt/gt0"
    files = {
        f"{gt}/rps_act_freq_mhz": "600",
        f"{gt}/rps_RP0_freq_mhz": "2400",
        f"{gt}/throttle_reason_status": "0",
        f"{gt}/throttle_reason_thermal": "0",
        f"{FOLDER}/drm/card1/lmem_total_bytes": str(16 * GIB),
        f"{FOLDER}/drm/renderD128/dev": "226:128",
        f"{HWMON}/name": "i915",
        f"{HWMON}/temp1_input": "39000",
    }
    told = read_intel(write(tmp_path, files), card("i915"))
    assert (told.graphics_clock_hz, told.graphics_clock_maximum_hz) == (600_000_000, 2_400_000_000)
    assert (told.throttle_codes, told.throttle_reasons, told.temperature_celsius) == ((), (), 39.0)
    assert told.memory_total_bytes == 16 * GIB


def test_an_older_i915_tells_its_clocks_beside_the_card(tmp_path: Path) -> None:
    files = {f"{FOLDER}/drm/card0/gt_act_freq_mhz": "0", f"{FOLDER}/drm/card0/gt_RP0_freq_mhz": "1550"}
    told = read_intel(write(tmp_path, files), card("i915"))
    assert (told.graphics_clock_hz, told.graphics_clock_maximum_hz) == (None, 1_550_000_000)
    assert told.throttle_codes is None


def test_graphics_of_a_processor_have_no_memory_of_their_own(tmp_path: Path) -> None:
    assert read_intel(write(tmp_path, XE), card("xe", unified_memory=True)).memory_total_bytes is None


def test_nothing_is_known_of_a_driver_that_tells_nothing(tmp_path: Path) -> None:
    assert read_intel(Root(tmp_path), card("xe")) == card("xe")


@pytest.mark.parametrize("garbage", ["", "x", "-1", "9" * 500, "nan", "\0", "18446744073709551615"])
def test_rubbish_is_no_fact(tmp_path: Path, garbage: str) -> None:
    told = read_intel(write(tmp_path, dict.fromkeys(XE, garbage), {f"{HWMON}/name": "xe"}), card("xe"))
    for name in ("graphics_clock_hz", "temperature_celsius", "power_watts", "power_limit_watts", "throttle_codes"):
        assert getattr(told, name) is None


def test_a_reason_is_told_once_and_an_unknown_one_by_its_code() -> None:
    assert explain_throttling(("thermal", "soc_thermal", "new")) == (
        "held down because it is too hot",
        "held down (new)",
    )


def test_power_is_the_mean_between_two_readings_of_the_energy() -> None:
    now = iter([0.0, 2.0, 2.1, 100.0, 101.0, 102.0])
    meter = Meter(lambda: next(now))
    assert meter.read("a", 10.0) is None
    assert meter.read("a", 110.0) == 50.0
    assert meter.read("a", 999.0) == 50.0, "too soon to tell: the last mean stands"
    assert meter.read("a", 500.0) is None, "a mean over minutes tells nothing of now"
    assert meter.read("a", 530.0) == 30.0
    assert meter.read("a", 1.0) is None, "a driver that was loaded again counts from nothing"
