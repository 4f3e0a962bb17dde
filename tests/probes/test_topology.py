from pathlib import Path

from probes.cpuinfo import read_cpuinfo
from probes.reading import Root
from probes.topology import Topology, read_topology
from tests.probes.machines import CPU, Files, mask, write_machine, x86_cpuinfo, x86_machine


def read(folder: Path, files: Files) -> Topology:
    root = Root(write_machine(folder, files))
    return read_topology(root, read_cpuinfo(root))


def test_threads_cores_and_sockets_are_told_apart(tmp_path: Path) -> None:
    topology = read(tmp_path, x86_machine())
    assert topology.online.bit_count() == 8
    assert len(topology.cores or ()) == 4
    assert topology.sockets == 2


def test_a_cpu_that_the_kernel_does_not_list_is_offline(tmp_path: Path) -> None:
    files = x86_machine() | {f"{CPU}/online": "0-3\n", "proc/cpuinfo": x86_cpuinfo(4)}
    topology = read(tmp_path, files)
    assert topology.online == 0xF
    assert len(topology.cores or ()) == 4


def test_without_a_list_each_cpu_has_its_switch(tmp_path: Path) -> None:
    files = {name: text for name, text in x86_machine().items() if name != f"{CPU}/online"}
    files = {name: text for name, text in files.items() if not name.startswith(f"{CPU}/cpu7/")}
    topology = read(tmp_path, files | {f"{CPU}/cpu7/online": "0\n", f"{CPU}/cpu6/online": "1\n"})
    assert topology.online == 0x7F


def test_the_older_names_of_siblings_serve_too(tmp_path: Path) -> None:
    renames = {"core_cpus": "thread_siblings", "package_cpus": "core_siblings"}
    files = {
        f"{name.rpartition('/')[0]}/{renames[last]}" if (last := name.rpartition("/")[2]) in renames else name: text
        for name, text in x86_machine().items()
    }
    topology = read(tmp_path, files)
    assert (len(topology.cores or ()), topology.sockets) == (4, 2)


def test_sibling_lists_serve_where_masks_are_missing(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-1\n"}
    files |= {f"{CPU}/cpu{cpu}/topology/core_cpus_list": "0-1\n" for cpu in (0, 1)}
    assert len(read(tmp_path, files).cores or ()) == 1


def test_a_package_id_of_minus_one_is_none_and_siblings_count(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-3\n"}
    for cpu in range(4):
        pair = (cpu // 2 * 2, cpu // 2 * 2 + 1)
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "-1\n"
        files[f"{CPU}/cpu{cpu}/topology/core_siblings"] = mask(*pair)
    assert read(tmp_path, files).sockets == 2


def test_sockets_of_s390_are_numbered_within_their_book(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-1\n"}
    for cpu in range(2):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0\n"
        files[f"{CPU}/cpu{cpu}/topology/book_id"] = f"{cpu}\n"
    assert read(tmp_path, files).sockets == 2


def test_cpuinfo_alone_tells_cores_and_sockets_where_it_has_their_ids(tmp_path: Path) -> None:
    rows = [(0, 0), (0, 0), (0, 1), (1, 0)]
    blocks = [f"processor : {n}\nphysical id : {p}\ncore id : {c}\n" for n, (p, c) in enumerate(rows)]
    topology = read(tmp_path, {"proc/cpuinfo": "\n".join(blocks)})
    assert (topology.online, len(topology.cores or ()), topology.sockets) == (0xF, 3, 2)


def test_siblings_that_contradict_each_other_give_way_to_ids(tmp_path: Path) -> None:
    files = x86_machine() | {f"{CPU}/cpu0/topology/core_cpus": mask(0)}
    assert len(read(tmp_path, files).cores or ()) == 4


def test_a_cpu_without_its_topology_is_placed_by_its_sibling(tmp_path: Path) -> None:
    files = {name: text for name, text in x86_machine().items() if f"{CPU}/cpu5/topology" not in name}
    topology = read(tmp_path, files)
    assert (len(topology.cores or ()), topology.sockets) == (4, 2)


def test_cores_of_which_one_is_unknown_are_not_counted(tmp_path: Path) -> None:
    missing = (f"{CPU}/cpu1/topology", f"{CPU}/cpu5/topology")
    files = {name: text for name, text in x86_machine().items() if not name.startswith(missing)}
    topology = read(tmp_path, files)
    assert topology.online == 0xFF
    assert topology.cores is None
    assert topology.sockets == 2  # the package's other CPUs list them


def test_nothing_is_made_up_where_nothing_tells(tmp_path: Path) -> None:
    topology = read(tmp_path, {"proc/cpuinfo": "processor : 0\n\nprocessor : 1\n"})
    assert topology.online == 3
    assert topology.cores is None
    assert topology.sockets is None
