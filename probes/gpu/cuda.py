"""What CUDA itself shows to this process, in CUDA's own order, without torch: `cuda:0` is the first of these devices.

NVML knows every card and no order; CUDA's initialisation may fail where NVML works, and obeys CUDA_VISIBLE_DEVICES.
`python -m probes.gpu.cuda LIFE` loads the driver's library in a process of its own and makes no context, so that no
memory of a card is taken. cuInit takes hundreds of milliseconds with eight cards: what it said is kept for a while.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.gpu.child_process import TIMEOUT, ask_child, find_library, open_channel
from probes.gpu.kept import Kept
from probes.gpu.pci import normalize_address
from probes.hardware import Outcome
from probes.reading import clean

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MAX_DEVICES = 64
# What cuInit and cuDeviceGetCount say on broken machines (CUDA Driver API, CUresult), for a library that cannot tell
# its errors' names: a toolkit's stub has no cuGetErrorName worth asking.
_ERROR_NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    800: "CUDA_ERROR_NOT_PERMITTED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}
_NO_DEVICE = 100
# CUdevice_attribute (CUDA Driver API)
_MULTIPROCESSORS, _INTEGRATED, _MEMORY_CLOCK, _BUS_WIDTH, _MAJOR, _MINOR = 16, 18, 36, 37, 75, 76
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
    environment = dict(os.environ) if environment is None else environment
    library = find_cuda_library(environment)
    if library is None:
        return CudaReading(Outcome.ABSENT, f"no CUDA: the driver's library {_LIBRARY} is not here")
    return _kept.get(
        make_key(library, environment),
        lambda: parse_answer(deadline_seconds, environment),
        lambda reading: bool(reading.devices),
    )


def parse_answer(deadline_seconds: float, environment: Mapping[str, str]) -> CudaReading:
    answer = ask_child("probes.gpu.cuda", "CUDA", deadline_seconds, environment)
    return to_reading(answer.documents, answer.ending)


def find_cuda_library(environment: Mapping[str, str]) -> str | None:
    if sys.platform == "win32":
        path = os.path.join(environment.get("SYSTEMROOT", r"C:\Windows"), "System32", _LIBRARY)  # noqa: PTH118
        return path if os.path.exists(path) else None  # noqa: PTH110
    tegra = tuple(f"/usr/lib/aarch64-linux-gnu/{folder}" for folder in ("tegra", "nvidia"))  # Jetson
    return find_library((_LIBRARY,), environment, tegra)


def make_key(library: str, environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Changes with the driver, the device files and the environment that CUDA obeys."""
    places = (os.path.realpath(library), *_DRIVER_SIGNS, *_list_device_files())
    variables = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(_VARIABLES)))
    return (tuple((place, _identify(place)) for place in places), variables)


def _list_device_files() -> list[str]:
    found: list[str] = []
    for folder in _DEVICE_FOLDERS:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208
        except OSError:
            continue
        found += [f"{folder}/{name}" for name in names if folder != "/dev" or name.startswith("nvidia")]
    return found


def _identify(path: str) -> tuple[int, ...] | None:
    try:
        told = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return (told.st_ino, told.st_mode, told.st_rdev, 0 if path.startswith("/dev/") else told.st_mtime_ns)


def to_reading(documents: tuple[dict[str, Any], ...], ending: str | None) -> CudaReading:
    """The child's lines as a reading; a field of another type than it should have is None."""
    header: dict[str, Any] = {}
    devices = []
    for document in documents:
        if isinstance(document.get("device"), dict):
            devices.append(_to_device(document["device"]))
        else:
            header |= document
    outcome, reason = _judge(header, ending)
    return CudaReading(
        outcome=outcome,
        reason=reason,
        compute_error=_text(header.get("error")),
        driver_version=_text(header.get("driver_version")),
        library=_LIBRARY if header else None,
        devices=tuple(devices[:_MAX_DEVICES]),
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


def _judge(header: dict[str, Any], ending: str | None) -> tuple[Outcome, str | None]:
    if ending == TIMEOUT:
        return Outcome.TIMEOUT, "CUDA did not initialise in time; the driver or a card hangs (try: nvidia-smi)"
    if ending is not None:
        return Outcome.FAILED, ending
    if header.get("outcome") in tuple(Outcome):
        return Outcome(header["outcome"]), _text(header.get("reason"))
    return (Outcome.OK, None) if header.get("done") else (Outcome.FAILED, "the CUDA process said nothing")


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


# ---- in the child -------------------------------------------------------------------------------------------------


def main(life_seconds: float) -> None:
    emit = open_channel(life_seconds)
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        emit({"outcome": "failed", "reason": f"{_LIBRARY} is here and the loader cannot load it: {error}"})
        return
    emit({"driver_version": _read_version(library)})
    code = _call(library, "cuInit", ctypes.c_uint(0))
    count = ctypes.c_int(0)
    if code == 0:
        code = _call(library, "cuDeviceGetCount", ctypes.byref(count))
    if code != 0:
        emit(_explain_error(library, code))
        return
    for index in range(min(count.value, _MAX_DEVICES)):
        emit({"device": _read_device(library, index)})
    emit({"done": True})


def _explain_error(library: Any, code: int) -> dict[str, Any]:
    name = _name_error(library, code)
    if code == _NO_DEVICE:
        return {"outcome": "absent", "error": name, "reason": f"CUDA shows no device to this process ({name})"}
    return {"outcome": "failed", "error": name, "reason": f"CUDA could not be initialised: {name}"}


def _name_error(library: Any, code: int) -> str:
    name = ctypes.c_char_p()
    if _call(library, "cuGetErrorName", ctypes.c_int(code), ctypes.byref(name)) == 0 and name.value:
        return name.value.decode("utf-8", "replace")
    return _ERROR_NAMES.get(code, f"CUresult {code}")


def _read_version(library: Any) -> str | None:
    """13000 -> 13.0"""
    number = ctypes.c_int(0)
    if _call(library, "cuDriverGetVersion", ctypes.byref(number)) != 0 or number.value <= 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _read_device(library: Any, index: int) -> dict[str, Any]:
    """Nulls for what this driver does not answer; the device keeps its place in the order."""
    device = ctypes.c_int(0)
    if _call(library, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(index)) != 0:
        return {}
    major, minor = _read_attribute(library, device, _MAJOR), _read_attribute(library, device, _MINOR)
    integrated = _read_attribute(library, device, _INTEGRATED)
    clock_khz = _read_attribute(library, device, _MEMORY_CLOCK)
    return {
        "uuid": _read_uuid(library, device),
        "pci_address": _read_text(library, "cuDeviceGetPCIBusId", device),
        "name": _read_text(library, "cuDeviceGetName", device),
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "multiprocessors": _read_attribute(library, device, _MULTIPROCESSORS),
        "memory_total_bytes": _read_memory(library, device),
        "integrated": None if integrated is None else bool(integrated),
        "memory_clock_hz": clock_khz * 1000 if clock_khz else None,
        "memory_bus_bits": _read_attribute(library, device, _BUS_WIDTH),
    }


def _read_uuid(library: Any, device: ctypes.c_int) -> str | None:
    """The second version tells a MIG instance's own UUID, the first its card's."""
    raw = (ctypes.c_ubyte * 16)()
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if _call(library, name, ctypes.byref(raw), device) == 0:
            digits = bytes(raw).hex()
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])) if any(raw) else None
    return None


def _read_text(library: Any, name: str, device: ctypes.c_int) -> str | None:
    buffer = ctypes.create_string_buffer(256)
    if _call(library, name, buffer, ctypes.c_int(len(buffer)), device) != 0:
        return None
    return buffer.value.decode("utf-8", "replace") or None


def _read_memory(library: Any, device: ctypes.c_int) -> int | None:
    size = ctypes.c_size_t(0)
    return size.value if _call(library, "cuDeviceTotalMem_v2", ctypes.byref(size), device) == 0 else None


def _read_attribute(library: Any, device: ctypes.c_int, attribute: int) -> int | None:
    value = ctypes.c_int(0)
    code = _call(library, "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
    return value.value if code == 0 else None


def _call(library: Any, name: str, *arguments: Any) -> int:
    """The function's CUresult; -1 where this driver has no such function."""
    try:
        return int(getattr(library, name)(*arguments))
    except AttributeError:
        return -1


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
