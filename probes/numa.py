"""NUMA nodes, and the memory they hold.

Not every node that sysfs lists is one to place a thread or a tensor on. Left out are nodes that hold no memory
(generic initiators, placeholders), nodes that are a GPU's own memory (NVIDIA's driver lists those), and nodes of
broken firmware that claim CPUs which an earlier node holds already.
"""

from dataclasses import dataclass

from probes.cpusets import MAX_CPUS, iterate_cpus, parse_cpu_list, parse_cpu_mask
from probes.reading import Root, parse_int

NODE_FOLDER = "/sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class Node:
    number: int
    cpus: int  # a set (probes.cpusets); 0 for a node of memory alone
    total_bytes: int | None


def read_nodes(root: Root) -> list[Node]:
    """The nodes to reckon with, lowest number first; empty where the kernel knows of none."""
    return select_nodes(_read_all(root), _read_gpu_nodes(root))


def count_nodes_without_cpus(root: Root) -> int | None:
    """Nodes of memory alone: expanders, and a GPU's own; None where the kernel knows of no node."""
    nodes = _read_all(root)
    return sum(1 for node in nodes if not node.cpus and node.total_bytes != 0) if nodes else None


def read_nodes_total(root: Root) -> int | None:
    """Bytes that all nodes hold together, also those left out; None when one of them does not say."""
    return sum_node_bytes(_read_all(root))


def sum_node_bytes(nodes: list[Node]) -> int | None:
    totals = [node.total_bytes for node in nodes]
    return sum(total for total in totals if total is not None) if totals and None not in totals else None


def select_nodes(nodes: list[Node], gpu_nodes: int) -> list[Node]:
    kept: list[Node] = []
    taken = 0
    for node in nodes:
        if node.cpus & taken or node.total_bytes == 0 or gpu_nodes >> node.number & 1:
            continue
        taken |= node.cpus
        kept.append(node)
    return kept


def _read_all(root: Root) -> list[Node]:
    return root.remember("numa nodes", lambda: _list_nodes(root))


def _list_nodes(root: Root) -> list[Node]:
    names = [name.removeprefix("node") for name in root.list(NODE_FOLDER) if name.startswith("node")]
    numbers = {int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 8}
    online = parse_cpu_list(root.read(f"{NODE_FOLDER}/online"))
    if online:
        numbers &= set(iterate_cpus(online))
    return [_read_node(root, number) for number in sorted(numbers) if number < MAX_CPUS]


def _read_node(root: Root, number: int) -> Node:
    folder = f"{NODE_FOLDER}/node{number}"
    cpus = parse_cpu_mask(root.read(f"{folder}/cpumap"))
    if cpus is None:
        cpus = parse_cpu_list(root.read(f"{folder}/cpulist")) or 0
    return Node(number, cpus, parse_node_total(root.read(f"{folder}/meminfo")))


def parse_node_total(text: str | None) -> int | None:
    """Bytes from a node's meminfo: `Node 0 MemTotal:  8386704 kB`."""
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[2] == "MemTotal:":
            number = parse_int(words[3])
            return number * 1024 if number is not None and number >= 0 else None
    return None


def _read_gpu_nodes(root: Root) -> int:
    """Numbers (as a set) of nodes that are a GPU's memory: POWER9 with V100, Grace Hopper, Grace Blackwell."""
    nodes = 0
    for gpu in root.list("/proc/driver/nvidia/gpus"):
        for line in (root.read(f"/proc/driver/nvidia/gpus/{gpu}/numa_status") or "").splitlines():
            number = parse_int(line.partition(":")[2]) if line.strip().startswith("Node:") else None
            if number is not None and 0 <= number < MAX_CPUS:
                nodes |= 1 << number
    return nodes
