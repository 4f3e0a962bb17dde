"""The program that asks CUDA: `python -m probes.gpu.cuda_program LIFE` prints one JSON object a line.

It loads the driver's library and makes no context, so that no memory of a card is taken.
"""

import ctypes
import sys
from typing import Any

from probes.gpu.child_process import open_channel
from probes.gpu.cuda import LIBRARY, MAX_DEVICES

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


def main(life_seconds: float) -> None:
    emit = open_channel(life_seconds)
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        emit({"outcome": "failed", "reason": f"{LIBRARY} is here and the loader cannot load it: {error}"})
        return
    emit({"driver_version": _read_version(library)})
    code = _call(library, "cuInit", ctypes.c_uint(0))
    count = ctypes.c_int(0)
    if code == 0:
        code = _call(library, "cuDeviceGetCount", ctypes.byref(count))
    if code != 0:
        emit(_explain_error(library, code))
        return
    for index in range(min(count.value, MAX_DEVICES)):
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
