"""What CUDA itself shows to this process, ordered by the bus, without torch: `cuda:0` is the first of these devices.

NVML knows every card and no order; CUDA's initialisation may fail where NVML works, and obeys CUDA_VISIBLE_DEVICES.
A process of its own asks (probes.gpu.cuda_program). cuInit takes hundreds of milliseconds with eight cards: what it
said is kept for a while.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.gpu.child_process import TIMEOUT, ask_child, find_library
from probes.gpu.device_order import BY_BUS
from probes.gpu.kept import Kept
from probes.gpu.pci import normalize_address
from probes.hardware import Outcome
from probes.reading import clean

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
MAX_DEVICES = 64
# What changes the answer: which driver, which device files, which environment.
_DRIVER_SIGNS = ("/proc/driver/nvidia/version", "/sys/module/nvidia", "/dev/dxg", "/dev/nvhost-gpu")
_DEVICE_FOLDERS = ("/dev", "/dev/nvidia-caps", "/proc/driver/nvidia/gpus")
_VARIABLES = ("CUDA_", "NVIDIA_", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One device as CUDA shows it; its place in `CudaReading.devices` is the N of torch's `cuda:N`.

    uuid: as in 8932f937-d72c-…, without GPU- or MIG-; of a MIG instance its own.
    """

    uuid: str | None = None
    pci_address: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    memory_total_bytes: int | None = None
    integrated: bool | None = None  # it uses the machine's memory: Jetson, GB10
    memory_clock_hz: int | None = None
    memory_bus_bits: int | None = None


@dataclass(frozen=True, slots=True)
class CudaReading:
    """compute_error: CUDA's name of it, as CUDA_ERROR_NO_DEVICE; None when it initialised or was not asked.

    driver_version: the newest CUDA that the driver supports, as 13.0.
    """

    outcome: Outcome
    reason: str | None = None
    compute_error: str | None = None
    driver_version: str | None = None
    library: str | None = None
    devices: tuple[CudaDevice, ...] = ()

    @property
    def compute_devices(self) -> int | None:
        """How many devices CUDA shows; None when it was not asked or did not answer."""
        asked = self.outcome is Outcome.OK or self.compute_error is not None
        return len(self.devices) if asked else None


_kept: Kept[CudaReading] = Kept()


def read_cuda(deadline_seconds: float, environment: Mapping[str, str] | None = None) -> CudaReading:
    """`absent` at once where there is no driver library; otherwise what CUDA says before the deadline."""
    environment = {**(os.environ if environment is None else environment), **BY_BUS}  # as torch is asked
    library = find_cuda_library(environment)
    if library is None:
        return CudaReading(Outcome.ABSENT, f"no CUDA: the driver's library {LIBRARY} is not here")
    return _kept.get(
        make_key(library, environment),
        lambda: parse_answer(deadline_seconds, environment),
        lambda reading: bool(reading.devices),
    )


def parse_answer(deadline_seconds: float, environment: Mapping[str, str]) -> CudaReading:
    answer = ask_child("probes.gpu.cuda_program", "CUDA", deadline_seconds, environment)
    return to_reading(answer.documents, answer.ending)


def find_cuda_library(environment: Mapping[str, str]) -> str | None:
    if sys.platform == "win32":
        path = os.path.join(environment.get("SYSTEMROOT", r"C:\Windows"), "System32", LIBRARY)  # noqa: PTH118
        return path if os.path.exists(path) else None  # noqa: PTH110
    tegra = tuple(f"/usr/lib/aarch64-linux-gnu/{folder}" for folder in ("tegra", "nvidia"))  # Jetson
    return find_library((LIBRARY,), environment, tegra)


def make_key(library: str, environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Changes with the driver, the device files and the environment that CUDA obeys."""
    places = (os.path.realpath(library), *_DRIVER_SIGNS, *_list_device_files())
    variables = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(_VARIABLES)))
    return (tuple((place, identify(place)) for place in places), variables)


def _list_device_files() -> list[str]:
    found: list[str] = []
    for folder in _DEVICE_FOLDERS:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208
        except OSError:
            continue
        found += [f"{folder}/{name}" for name in names if folder != "/dev" or name.startswith("nvidia")]
    return found


def identify(path: str) -> tuple[int, ...] | None:
    try:
        told = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return (told.st_ino, told.st_mode, told.st_rdev, 0 if path.startswith("/dev/") else told.st_mtime_ns)


def to_reading(
    documents: tuple[dict[str, Any], ...],
    ending: str | None,
    subject: str = "CUDA",
    library: str = LIBRARY,
    try_this: str = "nvidia-smi",
) -> CudaReading:
    """The child's lines as a reading; a field of another type than it should have is None."""
    header: dict[str, Any] = {}
    devices = []
    for document in documents:
        if isinstance(document.get("device"), dict):
            devices.append(_to_device(document["device"]))
        else:
            header |= document
    outcome, reason = _judge(header, ending, subject, try_this)
    return CudaReading(
        outcome=outcome,
        reason=reason,
        compute_error=_text(header.get("error")),
        driver_version=_text(header.get("driver_version")),
        library=library if header else None,
        devices=tuple(devices[:MAX_DEVICES]),
    )


def _to_device(row: dict[str, Any]) -> CudaDevice:
    numbers = ("multiprocessors", "memory_total_bytes", "memory_clock_hz", "memory_bus_bits")
    return CudaDevice(
        uuid=_text(row.get("uuid")),
        pci_address=normalize_address(_text(row.get("pci_address"))),
        name=_text(row.get("name")),
        compute_capability=_text(row.get("compute_capability")),
        integrated=row["integrated"] if isinstance(row.get("integrated"), bool) else None,
        **{name: row[name] for name in numbers if type(row.get(name)) is int and row[name] > 0},
    )


def _judge(header: dict[str, Any], ending: str | None, subject: str, try_this: str) -> tuple[Outcome, str | None]:
    if ending == TIMEOUT:
        return Outcome.TIMEOUT, f"{subject} did not initialise in time; the driver or a card hangs (try: {try_this})"
    if ending is not None:
        return Outcome.FAILED, ending
    if header.get("outcome") in tuple(Outcome):
        return Outcome(header["outcome"]), _text(header.get("reason"))
    return (Outcome.OK, None) if header.get("done") else (Outcome.FAILED, f"the {subject} process said nothing")


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None
