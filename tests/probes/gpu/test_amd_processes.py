from pathlib import Path

from probes.gpu.amd import read_amd
from probes.gpu.amd_processes import read_processes
from probes.hardware import GpuProcess
from probes.reading import Root
from tests.probes.gpu.test_amd import CARD, NODES, RADEON
from tests.probes.machines import Files, write_machine

FOLDER = "sys/class/kfd/kfd/proc"
FILES: Files = {
    f"{FOLDER}/41/vram_7": "100\n",
    f"{FOLDER}/42/vram_7": "300\n",
    f"{FOLDER}/43/vram_7": "0\n",
    f"{FOLDER}/44/vram_8": "500\n",
    f"{FOLDER}/45/vram_7": "rubbish\n",
    "proc/42/comm": "python\n",
}


def write(folder: Path, namespace: str) -> Root:
    root = write_machine(folder, FILES)
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to(namespace)
    return Root(root)


def test_who_computes_on_a_card_is_told_with_what_it_holds(tmp_path: Path) -> None:
    root = write(tmp_path, "pid:[4026531836]")
    assert read_processes(root, 7) == (GpuProcess(42, "python", 300), GpuProcess(41, None, 100))
    assert read_processes(root, 9) == ()


def test_in_a_container_a_number_of_the_hosts_names_nobody(tmp_path: Path) -> None:
    assert read_processes(write(tmp_path, "pid:[4026532500]"), 7) == (
        GpuProcess(None, None, 300),
        GpuProcess(None, None, 100),
    )


def test_a_kernel_that_does_not_tell_leaves_it_open(tmp_path: Path) -> None:
    assert read_processes(Root(tmp_path), 7) is None


def test_a_card_is_asked_by_its_number_in_the_topology(tmp_path: Path) -> None:
    root = Root(write_machine(tmp_path, RADEON | FILES | {f"{NODES}/1/gpu_id": "8\n"}))
    assert read_amd(root, CARD).processes == (GpuProcess(None, None, 500),)
