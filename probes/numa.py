"""NUMA nodes, and the memory they hold.

Not every node that sysfs lists is one to place a tensor on. Left out are, as by hwloc, nodes that hold no memory
(generic initiators, placeholders, dies whose cores use their neighbours' memory alone), nodes that are a GPU's own
memory (NVIDIA's driver lists those), and nodes of broken firmware that claim CPUs which an earlier node holds already.
"""

from dataclasses import dataclass

from probes.cpusets import MAX_CPUS, iterate_cpus, parse_cpu_list, parse_cpu_mask
from probes.reading import Root, parse_int

NODE_FOLDER = "/sys/devices/system/node"
# What a node has left, as MemAvailable counts it for the whole machine but for what is below a low watermark: free
# pages, files that were read once and more than once, and what the kernel can drop of its own.
_LEFT = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


@dataclass(frozen=True, slots=True)
class Node:
    """total_bytes: of its memory. left_bytes: of these, what new processes could take. None: it does not say."""

    number: int
    cpus: int  # a set (probes.cpusets); 0 for a node of memory alone
    total_bytes: int | None
    left_bytes: int | None = None


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


def hold_all_memory(root: Root, nodes: list[Node]) -> bool:
    """Whether no node beside these has memory: the machine's figures are theirs."""
    numbers = {node.number for node in nodes}
    return all(node.number in numbers or node.total_bytes == 0 for node in _read_all(root))


def sum_node_bytes(nodes: list[Node]) -> int | None:
    return _sum_known([node.total_bytes for node in nodes])


def sum_left_bytes(nodes: list[Node]) -> int | None:
    return _sum_known([node.left_bytes for node in nodes])


def _sum_known(sizes: list[int | None]) -> int | None:
    """None for no sizes, and where one is not known."""
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


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
    sizes = parse_node_meminfo(root.read(f"{folder}/meminfo") or "")
    return Node(number, cpus, sizes.get("MemTotal"), _sum_known([sizes.get(key) for key in _LEFT]))


def parse_node_meminfo(text: str) -> dict[str, int]:
    """A node's sizes in bytes: `Node 0 MemTotal:  8386704 kB`."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        number = parse_int(words[3]) if len(words) == 5 and words[4] == "kB" else None
        if number is not None and number >= 0:
            sizes.setdefault(words[2].removesuffix(":"), number * 1024)
    return sizes


def _read_gpu_nodes(root: Root) -> int:
    """Numbers (as a set) of nodes that are a GPU's memory: POWER9 with V100, Grace Hopper, Grace Blackwell."""
    nodes = 0
    for gpu in root.list("/proc/driver/nvidia/gpus"):
        for line in (root.read(f"/proc/driver/nvidia/gpus/{gpu}/numa_status") or "").splitlines():
            number = parse_int(line.partition(":")[2]) if line.strip().startswith("Node:") else None
            if number is not None and 0 <= number < MAX_CPUS:
                nodes |= 1 << number
    return nodes
