"""Which processes compute on an AMD card and how much of its memory they hold, as the kernel's KFD tells.

/sys/class/kfd/kfd/proc/PID/vram_GPU holds bytes (kfd_process.c). The PID is the first namespace's: in a container it
belongs to nobody or to somebody else here, so that only who sees all processes names them.
"""

from probes.gpu.hwmon import MOST_MEMORY_BYTES
from probes.gpu.pid_namespace import is_first_namespace
from probes.hardware import GpuProcess
from probes.reading import Root, clean

_FOLDER = "/sys/class/kfd/kfd/proc"
_MAX_PROCESSES = 64
_MAX_FOLDERS = 1024


def read_processes(root: Root, gpu: int) -> tuple[GpuProcess, ...] | None:
    """The largest first; None where the kernel does not tell. gpu: the card's number in KFD's topology."""
    if not root.exists(_FOLDER):
        return None
    names = [name for name in root.list(_FOLDER)[:_MAX_FOLDERS] if name.isdecimal()]
    sizes = {name: root.read_int(f"{_FOLDER}/{name}/vram_{gpu}") for name in names}
    held = sorted(
        ((size, name) for name, size in sizes.items() if size is not None and 0 < size <= MOST_MEMORY_BYTES),
        reverse=True,
    )
    sees_all = is_first_namespace(root) is True
    return tuple(_describe(root, name, size, sees_all) for size, name in held[:_MAX_PROCESSES])


def _describe(root: Root, name: str, size: int, sees_all: bool) -> GpuProcess:
    if not sees_all:
        return GpuProcess(memory_bytes=size)
    return GpuProcess(int(name), clean(root.read(f"/proc/{name}/comm"), 64), size)
