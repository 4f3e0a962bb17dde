from pathlib import Path

import pytest

from probes.hardware import Memory, Outcome
from probes.memory import MemoryCgroup, compute_usable, parse_meminfo, read_memory
from probes.reading import Root, Unreadable
from tests.probes.machines import GIB, NODE, Files, mask, with_cgroup_v1, with_cgroup_v2, write_machine, x86_machine


def read(folder: Path, files: Files) -> Memory:
    return read_memory(Root(write_machine(folder, files))).memory


def test_a_machine_without_limits_has_what_meminfo_says(tmp_path: Path) -> None:
    assert read(tmp_path, x86_machine()) == Memory(16 * GIB, 12 * GIB, None, 12 * GIB, 0, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_reclaimable_cache_is_not_counted_as_used(tmp_path: Path, version: int) -> None:
    """Limit 4 GiB, 3 in use, of which 2 are files the kernel would drop: 3 GiB are left, not 1."""
    if version == 2:
        contents = {
            "memory.max": f"{4 * GIB}",
            "memory.current": f"{3 * GIB}",
            "memory.stat": f"inactive_file {2 * GIB}\n",
        }
        files = with_cgroup_v2(x86_machine(), "/job", {"job": contents})
    else:
        contents = {"memory.limit_in_bytes": f"{4 * GIB}", "memory.usage_in_bytes": f"{3 * GIB}"}
        contents["memory.stat"] = f"inactive_file 0\ntotal_inactive_file {2 * GIB}\n"
        files = with_cgroup_v1(x86_machine(), "/job", {"memory/job": contents})
    memory = read(tmp_path, files)
    assert (memory.limit_bytes, memory.usable_bytes) == (4 * GIB, 3 * GIB)
    assert memory.total_bytes == 16 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_were_read_twice_are_not_counted_as_used_either(tmp_path: Path, version: int) -> None:
    """A data set in its second epoch: 14 GiB in use of 16, of which 11 are its files and 1 is not told by version 1."""
    told = {"anon": GIB, "inactive_file": 3 * GIB, "active_file": 8 * GIB}
    if version == 2:
        told["slab_reclaimable"] = GIB
        statistics = "".join(f"{name} {size}\n" for name, size in told.items())
        contents = {"memory.max": f"{16 * GIB}", "memory.current": f"{14 * GIB}", "memory.stat": statistics}
        files = with_cgroup_v2(x86_machine(), "/job", {"job": contents})
    else:
        statistics = "".join(f"{name} 0\ntotal_{name} {size}\n" for name, size in told.items())
        statistics += f"hierarchical_memory_limit {16 * GIB}\n"
        contents = {"memory.limit_in_bytes": f"{16 * GIB}", "memory.usage_in_bytes": f"{14 * GIB}"}
        files = with_cgroup_v1(x86_machine(), "/job", {"memory/job": contents | {"memory.stat": statistics}})
    memory = read(tmp_path, files)
    cache = 12 * GIB if version == 2 else 11 * GIB
    assert (memory.usable_bytes, memory.reclaimable_bytes) == (min(2 * GIB + cache, 12 * GIB), cache)


def test_a_limit_further_up_binds(tmp_path: Path) -> None:
    levels = {"a/b": {"memory.max": f"{8 * GIB}", "memory.current": "0"}, "a": {"memory.max": f"{2 * GIB}"}}
    memory = read(tmp_path, with_cgroup_v2(x86_machine(), "/a/b", levels))
    assert (memory.limit_bytes, memory.usable_bytes) == (2 * GIB, 2 * GIB)


def test_version_1s_largest_number_is_no_limit(tmp_path: Path) -> None:
    contents = {"memory.limit_in_bytes": "9223372036854771712\n"}
    assert read(tmp_path, with_cgroup_v1(x86_machine(), "/job", {"memory/job": contents})).limit_bytes is None


def test_a_full_cgroup_leaves_nothing_and_never_less() -> None:
    assert compute_usable(8 * GIB, [MemoryCgroup(GIB, 2 * GIB)]) == 0
    assert compute_usable(None, []) is None


@pytest.mark.parametrize("name", ["Max data size    ", "Max address space"])
def test_what_one_process_may_take_by_ulimit_bounds_what_is_usable(tmp_path: Path, name: str) -> None:
    rows = "Limit                     Soft Limit           Hard Limit           Units\n"
    rows += f"{name}         {4 * GIB}           unlimited            bytes\n"
    rows += f"Max resident set          {GIB}           {GIB}           bytes\n"  # which nothing enforces
    memory = read(tmp_path, x86_machine() | {"proc/self/limits": rows})
    assert (memory.usable_bytes, memory.available_bytes, memory.limit_bytes) == (4 * GIB, 12 * GIB, None)
    unlimited = rows.replace(f"{4 * GIB} ", "unlimited ")
    assert read(tmp_path / "other", x86_machine() | {"proc/self/limits": unlimited}).usable_bytes == 12 * GIB


def node_left(node: int, **kilobytes: int) -> str:
    """What a node's meminfo says beside its size."""
    sizes = {"MemFree": 0, "Active(file)": 0, "Inactive(file)": 0, "SReclaimable": 0} | kilobytes
    return "".join(f"Node {node} {name}: {size} kB\n" for name, size in sizes.items())


def test_only_the_memory_of_allowed_nodes_counts(tmp_path: Path) -> None:
    """Node 1 has 3 GiB left of its 8, and the machine 12 of 16."""
    files = x86_machine() | {"proc/self/status": "Mems_allowed_list:\t1\n"}
    silent = read(tmp_path / "silent", files)
    assert (silent.total_bytes, silent.available_bytes, silent.usable_bytes) == (8 * GIB, None, None)
    left = {"MemFree": 1 << 20, "Active(file)": 1 << 19, "Inactive(file)": 1 << 19, "SReclaimable": 1 << 20}
    files[f"{NODE}/node1/meminfo"] += node_left(1, **left)
    memory = read(tmp_path, files)
    assert (memory.total_bytes, memory.available_bytes, memory.usable_bytes) == (8 * GIB, 3 * GIB, 3 * GIB)


def test_a_gpus_own_memory_is_not_available_to_processes(tmp_path: Path) -> None:
    """Grace Hopper: the driver makes it a node, and the kernel counts it in MemAvailable."""
    files = {
        "proc/meminfo": f"MemTotal: {24 << 20} kB\nMemAvailable: {17 << 20} kB\n",
        "proc/driver/nvidia/gpus/0009:01:00.0/numa_status": "Node:   1\n",
        f"{NODE}/node0/cpumap": mask(0, 1),
        f"{NODE}/node0/meminfo": f"Node 0 MemTotal: {16 << 20} kB\n" + node_left(0, MemFree=10 << 20),
        f"{NODE}/node1/cpumap": mask(),
        f"{NODE}/node1/meminfo": f"Node 1 MemTotal: {8 << 20} kB\n" + node_left(1, MemFree=7 << 20),
    }
    memory = read(tmp_path, files)
    assert (memory.total_bytes, memory.available_bytes) == (16 * GIB, 10 * GIB)


def test_nodes_that_do_not_tell_of_all_memory_are_not_believed(tmp_path: Path) -> None:
    """Memory that was added while the machine ran: the one node says 6 GiB, the kernel 16."""
    files = {"proc/meminfo": "MemTotal: 16777216 kB\n", f"{NODE}/node0/meminfo": "Node 0 MemTotal: 6291456 kB\n"}
    assert read(tmp_path, files).total_bytes == 16 * GIB


def test_a_containers_own_meminfo_counts_where_the_nodes_are_its_hosts(tmp_path: Path) -> None:
    """lxcfs writes the container's limit into /proc/meminfo; the level that has it is above what the container sees."""
    meminfo = "MemTotal: 4194304 kB\nMemAvailable: 3145728 kB\n"
    files = with_cgroup_v2(x86_machine(), "/", {"": {"memory.max": "max\n"}}) | {"proc/meminfo": meminfo}
    memory = read(tmp_path, files)
    assert (memory.total_bytes, memory.available_bytes, memory.usable_bytes) == (4 * GIB, 3 * GIB, 3 * GIB)
    larger = meminfo.replace("4194304", "12582912")
    files |= {"proc/meminfo": larger, "proc/self/status": "Mems_allowed_list:\t1\n"}
    assert read(tmp_path / "on one node", files).total_bytes == 8 * GIB


def test_nodes_that_count_reserved_pages_in_are_believed(tmp_path: Path) -> None:
    files = x86_machine() | {"proc/meminfo": "MemTotal: 16000000 kB\n"}
    assert read(tmp_path, files).total_bytes == 16 * GIB


def test_nodes_tell_where_meminfo_is_missing(tmp_path: Path) -> None:
    files = {name: text for name, text in x86_machine().items() if name != "proc/meminfo"}
    assert read(tmp_path, files) == Memory(total_bytes=16 * GIB)


def test_before_mem_available_free_memory_and_page_cache_stand_for_it(tmp_path: Path) -> None:
    memory = read(tmp_path, {"proc/meminfo": "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\n"})
    assert memory.available_bytes == 35 * 1024


def test_no_memory_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as absent:
        read_memory(Root(tmp_path))
    assert absent.value.outcome is Outcome.ABSENT
    with pytest.raises(Unreadable, match="no MemTotal"):
        read(tmp_path, {"proc/meminfo": "garbage"})


@pytest.mark.parametrize("name", ["memory.max", "memory.current", "memory.stat"])
@pytest.mark.parametrize("text", ["", "garbage", "-1", "9" * 5000])
def test_a_limit_that_cannot_be_understood_is_not_taken_for_none(tmp_path: Path, name: str, text: str) -> None:
    contents = {"memory.max": f"{GIB}\n", "memory.current": "4096\n", "memory.stat": "inactive_file 0\n", name: text}
    files = with_cgroup_v2(x86_machine(), "/job", {"job": contents})
    reading = read_memory(Root(write_machine(tmp_path, files)))
    assert reading.memory.total_bytes == 16 * GIB
    assert (reading.memory.limit_bytes, reading.memory.usable_bytes) == (None, None)
    assert "/sys/fs/cgroup/job/memory." in (reading.reason or "")


def test_a_meminfo_that_was_cut_off_tells_only_of_what_is_whole(tmp_path: Path) -> None:
    whole = x86_machine()["proc/meminfo"]
    for length in range(len("MemTotal: 16777216 kB"), len(whole)):
        memory = read(tmp_path, {"proc/meminfo": whole[:length]})
        assert memory.total_bytes == 16 * GIB
        assert memory.available_bytes in (None, 12 * GIB)


def test_more_available_than_there_is_is_not_believed(tmp_path: Path) -> None:
    memory = read(tmp_path, {"proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 1000 kB\n"})
    assert (memory.total_bytes, memory.available_bytes, memory.usable_bytes) == (102400, None, None)


def test_lines_that_are_no_sizes_are_passed_over() -> None:
    assert parse_meminfo("A: 1 kB\nB:\nC: x kB\nD: -1 kB\nE: 7\n") == {"A": 1024}


def test_memory_high_limits_too_because_above_it_a_process_is_slowed_down(tmp_path: Path) -> None:
    contents = {"memory.max": "max\n", "memory.high": f"{3 * GIB}\n", "memory.current": f"{GIB}\n"}
    memory = read(tmp_path, with_cgroup_v2(x86_machine(), "/job", {"job": contents}))
    assert (memory.limit_bytes, memory.usable_bytes) == (3 * GIB, 2 * GIB)


def test_page_cache_that_is_given_back_when_needed_is_told_apart(tmp_path: Path) -> None:
    contents = {
        "memory.max": f"{4 * GIB}",
        "memory.current": f"{3 * GIB}",
        "memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\n",
    }
    memory = read(tmp_path, with_cgroup_v2(x86_machine(), "/job", {"job": contents}))
    assert memory.reclaimable_bytes == 2 * GIB


def test_swap_in_use_is_what_is_not_free(tmp_path: Path) -> None:
    meminfo = "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 10 kB\nSwapFree: {} kB\n"
    memory = read(tmp_path, {"proc/meminfo": meminfo.format(4)})
    assert (memory.swap_total_bytes, memory.swap_used_bytes) == (10 * 1024, 6 * 1024)
    assert read(tmp_path, {"proc/meminfo": meminfo.format(11)}).swap_used_bytes is None


def test_version_1_tells_of_a_limit_above_what_a_container_sees(tmp_path: Path) -> None:
    contents = {
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.usage_in_bytes": f"{GIB}\n",
        "memory.stat": f"hierarchical_memory_limit {3 * GIB}\ntotal_inactive_file 0\n",
    }
    memory = read(tmp_path, with_cgroup_v1(x86_machine(), "/", {"memory": contents}))
    assert (memory.limit_bytes, memory.usable_bytes) == (3 * GIB, 2 * GIB)
