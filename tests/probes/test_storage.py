import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from probes.hardware import Storage
from probes.reading import Root
from probes.storage import Mount, classify_block, find_mount, parse_mountinfo, read_kind, read_portable, read_storage
from tests.probes.machines import write_machine

BLOCK = "sys/class/block"


def test_a_captured_machines_mounts_have_a_kind_and_no_size(tmp_path: Path) -> None:
    files = {
        "proc/mounts": "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n",
        f"{BLOCK}/sda1/queue/rotational": "1\n",
    }
    found = read_storage(Root(write_machine(tmp_path, files)))
    assert found == (Storage("/", "hdd"), Storage("/home", "network"), Storage("/dev/shm", "memory"))


@pytest.mark.parametrize(
    ("files", "name", "kind"),
    [
        ({}, "nvme0n1p2", "nvme"),
        ({f"{BLOCK}/nvme0n1/device/model": "Amazon Elastic Block Store  \n"}, "nvme0n1", "virtual"),
        ({f"{BLOCK}/nvme0n1/device/model": "nvme_card-pd\n"}, "nvme0n1", "virtual"),
        ({f"{BLOCK}/nvme0n1/device/model": "MSFT NVMe Accelerator v1.0\n"}, "nvme0n1", "virtual"),
        ({f"{BLOCK}/nvme1n1/device/model": "Amazon EC2 NVMe Instance Storage\n"}, "nvme1n1", "nvme"),
        ({f"{BLOCK}/nvme2n1/device/transport": "pcie\n"}, "nvme2n1", "nvme"),
        ({f"{BLOCK}/nvme2n1/device/transport": "tcp\n"}, "nvme2n1", "network"),
        ({f"{BLOCK}/nvme2n1/device/nvme{way}/transport": "rdma\n" for way in (2, 3)}, "nvme2n1", "network"),
        ({f"{BLOCK}/nvme2n1/device/nvme2/transport": "pcie\n"}, "nvme2n1", "nvme"),
        ({f"{BLOCK}/dm-1/slaves/nvme2n1/x": "", f"{BLOCK}/nvme2n1/device/transport": "fc\n"}, "dm-1", "network"),
        ({}, "vda1", "virtual"),
        ({}, "zram0", "memory"),
        ({}, "nbd0", "network"),
        ({f"{BLOCK}/sdb/queue/rotational": "0\n"}, "sdb", "ssd"),
        ({f"{BLOCK}/sdb/queue/rotational": "0\n", f"{BLOCK}/sdb/device/vendor": "QEMU \n"}, "sdb", "virtual"),
        ({f"{BLOCK}/dm-0/slaves/nvme0n1p3/x": ""}, "dm-0", "nvme"),
        ({f"{BLOCK}/md0/slaves/{disk}/x": "" for disk in ("sda", "nvme0n1")} | {f"{BLOCK}/sda/queue/rotational": "1"},
         "md0", "hdd"),
        ({f"{BLOCK}/loop0/slaves/loop0/x": ""}, "loop0", None),
        ({}, "sdz", None),
    ],
)  # fmt: skip
def test_a_block_device_is_as_slow_as_what_it_lies_on(
    tmp_path: Path, files: dict[str, str], name: str, kind: str | None
) -> None:
    assert classify_block(Root(write_machine(tmp_path, files)), name) == kind


def test_a_partition_is_of_its_disks_kind(tmp_path: Path) -> None:
    disk = write_machine(
        tmp_path, {"sys/devices/block/sda/queue/rotational": "1", "sys/devices/block/sda/sda1/partition": "1"}
    )
    (disk / BLOCK).mkdir(parents=True)
    (disk / BLOCK / "sda").symlink_to("../../devices/block/sda")
    (disk / BLOCK / "sda1").symlink_to("../../devices/block/sda/sda1")
    assert classify_block(Root(disk), "sda1") == "hdd"


@pytest.mark.parametrize("way", ["platform/host3/session1/target3:0:0", "pci0000:00/host7/rport-7:0-1/target7:0:1"])
def test_a_disk_of_another_machine_is_storage_over_the_network(tmp_path: Path, way: str) -> None:
    """By iSCSI, or by Fibre Channel."""
    machine = write_machine(tmp_path, {f"sys/devices/{way}/block/sda/queue/rotational": "0"})
    (machine / BLOCK).mkdir(parents=True)
    (machine / BLOCK / "sda").symlink_to(f"../../devices/{way}/block/sda")
    assert classify_block(Root(machine), "sda") == "network"


def test_an_overlay_hides_what_it_lies_on(tmp_path: Path) -> None:
    assert read_kind(Root(tmp_path), Mount("/", "overlay", "overlay")) is None


def test_a_mapped_name_leads_to_its_device(tmp_path: Path) -> None:
    files = {f"{BLOCK}/dm-3/dm/name": "vg-root\n", f"{BLOCK}/dm-3/slaves/nvme0n1/x": ""}
    root = Root(write_machine(tmp_path, files))
    assert read_kind(root, Mount("/", "xfs", "/dev/mapper/vg-root")) == "nvme"


def test_the_longest_and_latest_mount_holds_a_path() -> None:
    mounts = [
        Mount("/", "ext4", "a"),
        Mount("/home", "ext4", "b"),
        Mount("/home", "nfs", "c"),
        Mount("/ho", "xfs", "d"),
    ]
    assert find_mount(mounts, "/home/me") == mounts[2]
    assert find_mount(mounts, "/homes") == mounts[0]


def test_mountinfo_tells_the_device_number() -> None:
    assert parse_mountinfo("36 35 98:0 /r /m\\040t rw - ext4 /dev/root rw\n") == [
        Mount("/m t", "ext4", "/dev/root", "98:0")
    ]


def test_other_systems_tell_sizes_without_a_kind(tmp_path: Path) -> None:
    found = read_portable((tmp_path,))
    assert all(storage.kind is None and storage.total_bytes for storage in found)


def test_this_hosts_root_has_a_size(tmp_path: Path) -> None:
    found = read_storage(Root(), (tmp_path,))
    assert any(storage.total_bytes for storage in found)
    assert len({storage.mount for storage in found}) == len(found)
    assert all(os.path.ismount(storage.mount) for storage in found)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove a folder that is worked in.")
def test_a_working_folder_that_was_removed_costs_no_other_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    assert read_storage(Root())
    read_portable(())  # in a container there may be no drive at all


def test_a_drive_that_does_not_tell_its_size_costs_no_other_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Psutil:
        """Two drives, one of them empty: such a machine is not at hand."""

        @staticmethod
        def disk_partitions() -> list[SimpleNamespace]:
            return [SimpleNamespace(mountpoint=point, fstype="", device="") for point in ("/", "/dev/shm")]

        @staticmethod
        def disk_usage(point: str) -> SimpleNamespace:
            if point == "/dev/shm":
                raise OSError(21, "The device is not ready")
            return SimpleNamespace(total=2, free=1)

    monkeypatch.setitem(sys.modules, "psutil", Psutil)
    assert read_portable((Path("/dev/shm"),)) == (Storage("/", None, 2, 1), Storage("/dev/shm", None, None, None))
