"""The mounts that training reads from and writes to, and what kind of storage each one is."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from probes.cgroups import unescape
from probes.hardware import Storage
from probes.reading import Root

_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_VIRTUAL = {"9p", "virtiofs", "vboxsf", "fuse.vmhgfs-fuse", "drvfs", "fuse.gvfsd-fuse"}
_NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "fuse.ceph", "fuse.sshfs", "fuse.glusterfs", "glusterfs",
    "beegfs", "gpfs", "afs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs", "ocfs2", "gfs2", "wekafs",
}  # fmt: skip
_VIRTUAL_VENDORS = (
    "QEMU", "VMware", "VBOX", "Msft", "Google", "Xen", "innotek", "Virtual",
    # AWS's, Google's and Azure's volumes behind NVMe, as their guides name them; their local disks have other names
    "Amazon Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator",
)  # fmt: skip
_NVME_OVER_NETWORK = {"tcp", "rdma", "fc"}  # the kernel's drivers/nvme/host; a disk's own is pcie or apple-nvme
# A disk's place in /sys/devices: below a session of iSCSI, or a remote port of Fibre Channel.
_OVER_NETWORK = re.compile(r"/session\d+/|/rport-")
_CAPTURED_MOUNTS = ("/", "/home", "/dev/shm")
_MAX_STACK = 8  # partitions on LVM on encryption on RAID: four levels in practice


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    filesystem: str
    source: str
    device: str | None = None  # major:minor


def read_storage(root: Root, paths: tuple[Path, ...] = ()) -> tuple[Storage, ...]:
    """The mounts that hold /, the home folder, the working folder, /dev/shm and `paths`, each once."""
    if not root.is_linux:
        return read_portable(paths)
    mounts = read_mounts(root)
    places = [*_CAPTURED_MOUNTS] if not root.is_host else _interesting_places(paths)
    held = [find_mount(mounts, place) for place in places]
    if not root.is_host:
        held = [mount if mount and mount.point == place else None for mount, place in zip(held, places, strict=True)]
    unique = {mount.point: mount for mount in held if mount is not None}
    return tuple(_describe(root, mount) for mount in unique.values())


def read_portable(paths: tuple[Path, ...]) -> tuple[Storage, ...]:
    """macOS and Windows: the partition that holds each place, with its sizes; the kind is not told."""
    import psutil

    partitions = [Mount(row.mountpoint, row.fstype, row.device) for row in psutil.disk_partitions()]
    held = [find_mount(partitions, place) for place in _interesting_places(paths)]
    points = dict.fromkeys(mount.point for mount in held if mount is not None)
    return tuple(Storage(point, None, *_read_usage(point)) for point in points)


def _read_usage(point: str) -> tuple[int | None, int | None]:
    """Total and free bytes; None where a drive is empty, locked or gone."""
    import psutil

    try:
        sizes = psutil.disk_usage(point)
    except OSError:
        return None, None
    return sizes.total, sizes.free


def _interesting_places(paths: tuple[Path, ...]) -> list[str]:
    data = os.environ.get("CROSSPOINT_DATA_DIR")
    home, here = os.path.expanduser("~"), _working_folder()  # noqa: PTH111
    candidates = ["/", home, *here, "/dev/shm", *([data] if data else []), *map(str, paths)]
    return [os.path.realpath(place) for place in candidates if os.path.isabs(place)]  # noqa: PTH117


def _working_folder() -> list[str]:
    """Empty where it was removed since."""
    try:
        return [os.getcwd()]  # noqa: PTH109
    except OSError:
        return []


def read_mounts(root: Root) -> list[Mount]:
    text = root.read("/proc/self/mountinfo", 1 << 20)
    if text:
        return parse_mountinfo(text)
    return parse_mounts(root.read("/proc/self/mounts", 1 << 20) or root.read("/proc/mounts", 1 << 20) or "")


def parse_mountinfo(text: str) -> list[Mount]:
    """proc(5): `36 35 98:0 /mnt1 /mnt2 opts - ext3 /dev/sda1 opts`."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if dash and len(before) >= 5 and len(after) >= 2:
            mounts.append(Mount(unescape(before[4]), after[0], unescape(after[1]), before[2]))
    return mounts


def parse_mounts(text: str) -> list[Mount]:
    rows = [line.split() for line in text.splitlines()]
    return [Mount(unescape(row[1]), row[2], unescape(row[0])) for row in rows if len(row) >= 3]


def find_mount(mounts: list[Mount], place: str) -> Mount | None:
    """The mount that holds a path: the longest mount point above it; of equal ones the last, which covers the rest."""
    found = None
    for mount in mounts:
        below = place == mount.point or place.startswith(mount.point.rstrip("/") + "/")
        if below and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _describe(root: Root, mount: Mount) -> Storage:
    total, free = _read_sizes(mount.point) if root.is_host else (None, None)
    return Storage(mount.point, read_kind(root, mount), total, free)


def _read_sizes(point: str) -> tuple[int | None, int | None]:
    """Total and free bytes for this user. A network mount that does not answer holds only this probe's thread."""
    try:
        facts = os.statvfs(point)
    except OSError:
        return None, None
    return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize


def read_kind(root: Root, mount: Mount) -> str | None:
    """None where the filesystem hides what it lies on (overlay in a container, ZFS pools)."""
    if mount.filesystem in _MEMORY:
        return "memory"
    if mount.filesystem in _NETWORK:
        return "network"
    if mount.filesystem in _VIRTUAL:
        return "virtual"
    name = _find_block_device(root, mount)
    return classify_block(root, name) if name else None


def _find_block_device(root: Root, mount: Mount) -> str | None:
    """The kernel's name of the device under a mount, by number, else by the name in /dev."""
    if mount.device and (target := root.link_target(f"/sys/dev/block/{mount.device}")):
        return target.rsplit("/", 1)[-1]
    if not mount.source.startswith("/dev/"):
        return None
    if mount.source.startswith("/dev/mapper/"):
        wanted = mount.source.removeprefix("/dev/mapper/")
        names = (name for name in root.list("/sys/class/block") if name.startswith("dm-"))
        return next(
            (name for name in names if (root.read(f"/sys/class/block/{name}/dm/name") or "").strip() == wanted), None
        )
    return mount.source.removeprefix("/dev/").replace("/", "!")


def classify_block(root: Root, name: str, depth: int = 0) -> str | None:
    """nvme, ssd, hdd, virtual, network or memory for a block device; the slowest of what a stacked one lies on."""
    if name.startswith(("zram", "ram", "pmem")):
        return "memory"
    if name.startswith(("nbd", "rbd", "drbd")):
        return "network"
    if name.startswith(("vd", "xvd")):
        return "virtual"
    if depth < _MAX_STACK and (beneath := root.list(f"/sys/class/block/{name}/slaves")):
        kinds = {classify_block(root, slave, depth + 1) for slave in beneath}
        return next((kind for kind in ("network", "hdd", "virtual", "ssd", "nvme", "memory") if kind in kinds), None)
    disk = _find_disk(root, name)
    if _is_virtual(root, disk):
        return "virtual"
    if _is_over_network(root, disk):
        return "network"
    return "nvme" if name.startswith("nvme") else _classify_disk(root, disk)


def _find_disk(root: Root, name: str) -> str:
    """The whole disk that a partition is on."""
    target = root.link_target(f"/sys/class/block/{name}")
    if target and root.exists(f"/sys/class/block/{name}/partition"):
        return target.rstrip("/").rsplit("/", 2)[-2]
    return name


def _is_virtual(root: Root, disk: str) -> bool:
    """A hypervisor's, or a cloud's volume, which lies somewhere else than its protocol says."""
    vendor = " ".join(root.read(f"/sys/class/block/{disk}/device/{name}") or "" for name in ("vendor", "model"))
    return any(mark in vendor for mark in _VIRTUAL_VENDORS)


def _is_over_network(root: Root, disk: str) -> bool:
    """Whether another machine holds it: an NVMe disk's controller tells, or those below it where it has several ways
    to go (multipath: `device` is its subsystem then)."""
    folder = f"/sys/class/block/{disk}/device"
    if disk.startswith("nvme"):
        ways = [f"/{name}" for name in root.list(folder) if re.fullmatch(r"nvme\d+", name)]
        transports = {(root.read(f"{folder}{way}/transport") or "").strip() for way in ("", *ways)}
        return not transports.isdisjoint(_NVME_OVER_NETWORK)
    return _OVER_NETWORK.search(root.link_target(f"/sys/class/block/{disk}") or "") is not None


def _classify_disk(root: Root, disk: str) -> str | None:
    rotational = root.read_int(f"/sys/class/block/{disk}/queue/rotational")
    if rotational not in (0, 1) or disk.startswith("loop"):
        return None
    return "hdd" if rotational else "ssd"
