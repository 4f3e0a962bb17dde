from pathlib import Path

from probes.numa import Node, parse_node_meminfo, read_nodes, select_nodes
from probes.reading import Root
from tests.probes.machines import NODE, mask, write_machine, x86_machine


def test_each_node_has_its_cpus_and_memory(tmp_path: Path) -> None:
    nodes = read_nodes(Root(write_machine(tmp_path, x86_machine())))
    assert [(node.number, node.cpus, node.total_bytes) for node in nodes] == [(0, 0x33, 8 << 30), (1, 0xCC, 8 << 30)]


def test_a_node_of_memory_alone_counts_and_one_without_memory_does_not() -> None:
    """As hwloc counts. The last is a die whose cores use their neighbours' memory, as two of a Threadripper 2990WX."""
    nodes = [Node(0, 0xF, 1 << 30), Node(1, 0, 1 << 30), Node(2, 0, 0), Node(3, 0xF0, 0)]
    assert [node.number for node in select_nodes(nodes, 0)] == [0, 1]


def test_nodes_that_claim_the_same_cpus_are_broken_firmware_and_the_first_is_believed() -> None:
    assert [node.number for node in select_nodes([Node(0, 0xF, 1), Node(1, 0xF, 1)], 0)] == [0]


def test_a_gpus_own_memory_is_no_node_to_train_on(tmp_path: Path) -> None:
    files = x86_machine() | {
        f"{NODE}/node252/cpumap": mask(),
        f"{NODE}/node252/meminfo": "Node 252 MemTotal: 16515072 kB\n",
        "proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Node:   252\nStatus: online\n",
    }
    assert [node.number for node in read_nodes(Root(write_machine(tmp_path, files)))] == [0, 1]


def test_only_online_nodes_count(tmp_path: Path) -> None:
    files = x86_machine() | {f"{NODE}/online": "1\n"}
    assert [node.number for node in read_nodes(Root(write_machine(tmp_path, files)))] == [1]


def test_a_kernel_without_numa_has_no_nodes(tmp_path: Path) -> None:
    assert read_nodes(Root(tmp_path)) == []


def test_a_nodes_memory_is_in_kilobytes() -> None:
    told = "Node 0 MemTotal:  8 kB\nNode 0 Active(file): 1 kB\nNode 0 HugePages_Total: 7\nNode 0 MemFree: many kB\n"
    assert parse_node_meminfo(told) == {"MemTotal": 8192, "Active(file)": 1024}
