from pathlib import Path

import pytest

from probes.cgroups import (
    Cgroups,
    Levels,
    Mount,
    choose_mount,
    parse_memberships,
    parse_mountinfo,
    parse_mounts,
    unescape,
)
from probes.reading import Root
from tests.probes.machines import Files, with_cgroup_v1, with_cgroup_v2, write_machine


def find(folder: Path, files: Files, controller: str) -> Levels | None:
    return Cgroups(Root(write_machine(folder, files))).find(controller)


def test_every_level_up_to_the_mount_is_listed(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/a/b", {"a/b": {"cpu.max": "max 100000"}})
    assert find(tmp_path, files, "cpu") == Levels(2, ("/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"))


def test_version_1_keeps_a_tree_for_each_controller(tmp_path: Path) -> None:
    files = with_cgroup_v1({}, "/job", {"memory/job": {"memory.limit_in_bytes": "1"}})
    assert find(tmp_path, files, "memory") == Levels(1, ("/sys/fs/cgroup/memory/job", "/sys/fs/cgroup/memory"))
    assert find(tmp_path, files, "pids") is None


def test_a_hybrid_set_up_takes_each_controller_where_it_is(tmp_path: Path) -> None:
    files = with_cgroup_v1({}, "/", {"cpu": {"cpu.cfs_quota_us": "-1"}})
    files["proc/mounts"] = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n" + files["proc/mounts"]
    files["sys/fs/cgroup/unified/cgroup.controllers"] = "\n"
    found = find(tmp_path, files, "cpu")
    assert found is not None
    assert found.version == 1


def test_a_container_sees_its_own_cgroup_as_the_mounts_top(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc/inner\n",
        "proc/self/mountinfo": "30 25 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        "sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "1",
    }
    found = find(tmp_path, files, "memory")
    assert found == Levels(1, ("/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"))


@pytest.mark.parametrize("host_first", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_container_that_is_given_its_hosts_folders_reads_its_own_mount(
    tmp_path: Path, version: int, host_first: bool
) -> None:
    """podman run -v /:/host; of the host's mount the kernel tells that its top lies above the cgroup namespace."""
    kind, place = ("cgroup2", "sys/fs/cgroup") if version == 2 else ("cgroup", "sys/fs/cgroup/cpu")
    lines = [
        f"264 262 0:35 /../../.. /host/{place} rw - {kind} {kind} rw,cpu\n",
        f"300 290 0:35 / /{place} ro - {kind} {kind} rw,cpu\n",
    ]
    files = {
        "proc/self/cgroup": "0::/\n" if version == 2 else "1:cpu:/\n",
        "proc/self/mountinfo": "".join(lines if host_first else reversed(lines)),
        f"host/{place}/cgroup.procs": "",
        f"{place}/cgroup.procs": "",
    }
    assert find(tmp_path, files, "cpu") == Levels(version, (f"/{place}",))


def test_of_several_mounts_the_one_that_shows_this_process_is_read() -> None:
    other, own = Mount("/sys/fs/cgroup", "cgroup2", (), "/other"), Mount("/mnt", "cgroup2", (), "/job")
    assert choose_mount([other, own], "/job/inner") == choose_mount([own, other], "/job/inner") == own
    usual, copy = Mount("/sys/fs/cgroup", "cgroup2", ()), Mount("/chroot/sys/fs/cgroup", "cgroup2", ())
    assert choose_mount([usual, copy], "/job") == choose_mount([copy, usual], "/job") == usual


def test_a_path_from_outside_the_namespace_means_the_mounts_top(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/../../system.slice", {"": {"cpu.max": "max"}})
    assert find(tmp_path, files, "cpu") == Levels(2, ("/sys/fs/cgroup",))


def test_the_usual_places_are_tried_without_a_list_of_mounts(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "max"}
    assert find(tmp_path / "2", files, "cpu") == Levels(2, ("/sys/fs/cgroup/job", "/sys/fs/cgroup"))
    files = {"proc/self/cgroup": "1:cpu,cpuacct:/\n", "cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1"}
    assert find(tmp_path / "1", files, "cpu") == Levels(1, ("/cgroup/cpu,cpuacct",))


def test_the_ancient_cpuset_filesystem_has_files_without_a_prefix(tmp_path: Path) -> None:
    files = {
        "proc/mounts": "none /dev/cpuset cpuset rw 0 0\n",
        "proc/self/cpuset": "/job\n",
        "dev/cpuset/job/cpus": "0-1\n",
    }
    assert find(tmp_path, files, "cpuset") == Levels(1, ("/dev/cpuset/job", "/dev/cpuset"), prefix=False)


def test_lines_that_are_none_are_passed_over() -> None:
    assert parse_memberships("garbage\n::\n1:a,b:/x:y\n") == {"": "", "a": "/x:y", "b": "/x:y"}
    assert parse_mounts("short\n\next4 / ext4 rw 0 0\n") == ()
    assert parse_mountinfo("1 2 3 - cgroup\n - \n") == ()


def test_only_the_kernels_own_escapes_are_letters() -> None:
    assert unescape("/a\\134040\\043b\\777\\04") == "/a\\040#b\\777\\04"


def test_an_escaped_space_in_a_mount_point_is_a_space() -> None:
    assert parse_mounts("cgroup /a\\040b cgroup rw,cpu 0 0\n")[0].point == "/a b"
