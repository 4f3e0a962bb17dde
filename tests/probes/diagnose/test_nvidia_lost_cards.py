"""Cards that a driver has lost, and cards that are there and given to somebody else."""

from dataclasses import replace

import pytest

from probes.gpu.nvml.asking import LOST, NO_ACCESS
from probes.hardware import Accelerator, DeviceFile, Xid
from tests.probes.diagnose.situations import (
    CARD,
    CONTAINER,
    HEALTHY,
    NVIDIA_FILES,
    ON_BUS,
    assert_breaks,
    codes,
    only,
    untold,
    with_card,
    with_driver,
)

FILES_LINK, RESET = "device files and permissions", "NVML_ERROR_RESET_REQUIRED"
REFUSED = DeviceFile("/dev/nvidiactl", False, False, "EACCES", "video")
TAKEN = DeviceFile("/dev/nvidiactl", False, False, "EPERM", None)


def test_a_card_that_answers_no_more_is_lost() -> None:
    lost = replace(ON_BUS, usable=False, why_not="NVML cannot reach this card: GPU is lost")
    assert_breaks(replace(HEALTHY, accelerators=(lost,)), "device on the bus", "gpu-lost")
    silent = with_card(xids=(Xid(79, "GPU has fallen off the bus", 60.0),), memory_total_bytes=None)
    assert_breaks(silent, "device on the bus", "gpu-lost")


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        ("NVML cannot reach this card: Insufficient External Power", "Check the card's power cables"),
        (LOST[RESET], "--gpu-reset"),
        ("NVML cannot reach this card: The GPU requires a reset before it can be used again", "--gpu-reset"),
        ("NVML cannot reach this card: Unknown Error", "Restart the machine"),
    ],
)
def test_a_card_that_does_not_start_is_not_said_to_be_off_the_bus(why: str, fix: str) -> None:
    facts = replace(HEALTHY, accelerators=(replace(CARD, id="nvidia-0", usable=False, why_not=why),))
    finding = assert_breaks(facts, "device on the bus", "gpu-lost")
    assert why in finding.message
    assert "bus any more" not in finding.message
    assert fix in (finding.fix or "")


OTHERS_CARD = replace(ON_BUS, id="pci-2", pci_address="0000:02:00.0", usable=False, why_not=NO_ACCESS)


def test_a_job_that_has_one_of_two_cards_is_on_no_broken_machine() -> None:
    """Slurm's device cgroup, systemd's DeviceAllow or a file's permissions keep the other from it."""
    alone = replace(OTHERS_CARD, id="nvidia-1", pci_address=None, driver_version="580.65.06")
    for card in (OTHERS_CARD, alone):
        finding = only(replace(HEALTHY, accelerators=(CARD, card)))
        assert (finding.code, finding.blocking) == ("gpu-not-in-container", False)
        assert "not given to this process, which has 1 other card:" in finding.message
    inside = only(replace(HEALTHY, accelerators=(CARD, OTHERS_CARD), system=CONTAINER))
    assert "container (docker), which has 1 other card." in inside.message


@pytest.mark.parametrize("error", ["EPERM", "EACCES"])
def test_a_card_that_the_driver_hides_and_whose_file_is_refused_is_somebody_elses(error: str) -> None:
    files = (*NVIDIA_FILES, DeviceFile("/dev/nvidia1", False, False, error))
    facts = replace(with_driver(device_files=files), accelerators=(CARD, replace(OTHERS_CARD, why_not="untold")))
    assert codes(facts) == ["gpu-not-in-container"]


@pytest.mark.parametrize(("error", "code"), [("EACCES", "no-permission-on-device-files"), ("EPERM", "gpu-access-lost")])
def test_a_card_of_amds_is_no_other_of_nvidias(error: str, code: str) -> None:
    """Their ids begin alike."""
    facts = untold(device_files=(replace(REFUSED, error=error),))
    amd = Accelerator("GPU-1a2b3c4d5e6f7081", vendor="AMD", segment="integrated")
    assert codes(replace(facts, accelerators=(ON_BUS, amd))) == [code]


def test_a_job_without_any_card_is_told_to_ask_for_one() -> None:
    refused = replace(HEALTHY, accelerators=(OTHERS_CARD,))
    alone = assert_breaks(refused, "device files and permissions", "no-permission-on-device-files")
    assert "/dev/nvidia0" not in alone.message, "of which file NVML does not say"
    assert "chmod" not in (alone.fix or "")
    assert "--gpus all" in (only(replace(refused, system=CONTAINER)).fix or "")
    finding = assert_breaks(with_driver(refused, device_files=(TAKEN,)), FILES_LINK, "gpu-access-lost")
    assert "container" not in f"{finding.message} {finding.fix}"
    inside = replace(with_driver(refused, device_files=(TAKEN,)), system=CONTAINER)
    assert "Restart the container" in (only(inside).fix or "")


def test_numbers_of_a_jobs_cards_count_its_own_alone() -> None:
    later = replace(CARD, pci_address="0000:03:00.0")
    assert codes(replace(HEALTHY, accelerators=(OTHERS_CARD, later), environment={"CUDA_VISIBLE_DEVICES": "0"})) == [
        "gpu-not-in-container"
    ]


def test_a_card_that_came_back_is_not_lost_for_what_the_log_remembers() -> None:
    assert codes(with_card(xids=(Xid(79, "GPU has fallen off the bus", 60.0),))) == ["gpu-driver-errors"]
