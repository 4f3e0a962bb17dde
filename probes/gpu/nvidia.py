"""NVIDIA's cards through NVML: the program that probes.gpu.nvml_process runs in a short-lived process.

`python -m probes.gpu.nvidia` prints one JSON object a line: first the driver, then each card as soon as it is read,
so that a card which hangs costs only itself and those after it. Every call is guarded: a card that does not answer a
question has a null there and keeps the rest. The only module that imports pynvml.
"""

import math
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from probes.gpu.child_process import open_channel
from probes.gpu.pci import normalize_address
from probes.hardware import Accelerator
from probes.reading import clean, parse_int

_T = TypeVar("_T")
_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_MAX_CARDS = 64
_MAX_INSTANCES = 16

# CUDA cores in one multiprocessor by compute capability (CUDA C++ Programming Guide, "Arithmetic Instructions").
_CORES_PER_MULTIPROCESSOR = {
    "3.0": 192, "3.5": 192, "3.7": 192, "5.0": 128, "5.2": 128, "5.3": 128, "6.0": 64, "6.1": 128, "6.2": 128,
    "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128,
    "10.3": 128, "11.0": 128, "12.0": 128, "12.1": 128,
}  # fmt: skip
# nvml.h, clocks event reasons: bit -> name
_THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def main(life_seconds: float) -> None:
    emit = open_channel(life_seconds)
    emit(read_all(emit))


def read_all(emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The closing document: `{"done": true}` or an outcome with its reason."""
    try:
        import pynvml
    except Exception as error:  # noqa: BLE001 - a broken package must cost no more than this probe
        return {
            "outcome": "failed",
            "reason": f"nvidia-ml-py cannot be imported ({type(error).__name__}); reinstall it",
        }
    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001
        emit(_describe_library(pynvml, error))
        return _explain_init(error)
    emit(_describe_library(pynvml, None))
    driver = _text(_ask(lambda: pynvml.nvmlSystemGetDriverVersion()))
    emit({"driver_version": driver, "cuda_driver_version": _cuda_version(pynvml)})
    count = _ask(lambda: int(pynvml.nvmlDeviceGetCount()))
    if count is None:
        return {"outcome": "failed", "reason": "NVML does not say how many cards there are (try: nvidia-smi)"}
    for index in range(min(count, _MAX_CARDS)):
        for card in read_card(pynvml, index, driver):
            emit({"card": asdict(card)})
    return {"done": True}


def _describe_library(nvml: Any, error: Exception | None) -> dict[str, Any]:
    """The library tells its version even when it does not fit the kernel module."""
    name = None if error is None else _error_name(error)
    if name == "NVML_ERROR_LIBRARY_NOT_FOUND":
        return {"library_error": name}
    version = parse_library_version(_text(_ask(lambda: nvml.nvmlSystemGetNVMLVersion())))
    return {"library": _LIBRARY, "library_version": version, "library_error": name}


def parse_library_version(text: str | None) -> str | None:
    """NVML puts CUDA's major version before the driver's: `13.580.65.06` is the library of driver 580.65.06."""
    major, dot, rest = (text or "").partition(".")
    return rest if dot and major.isdigit() and len(major) <= 2 else text


def _error_name(error: Exception) -> str:
    """NVMLError_GpuIsLost is NVML_ERROR_GPU_IS_LOST."""
    kind = type(error).__name__
    if not kind.startswith("NVMLError"):
        return kind
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.removeprefix("NVMLError").strip("_"))
    return f"NVML_ERROR_{words.upper() or getattr(error, 'value', 'UNKNOWN')}"


def _explain_init(error: Exception) -> dict[str, Any]:
    name = type(error).__name__
    if name == "NVMLError_LibraryNotFound":
        return {"outcome": "absent", "reason": "libnvidia-ml is not installed: there is no NVIDIA driver here"}
    if name == "NVMLError_DriverNotLoaded":
        return {"outcome": "absent", "reason": "the NVIDIA kernel module is not loaded (try: modprobe nvidia)"}
    if name == "NVMLError_NoPermission":
        return {"outcome": "denied", "reason": "this user may not talk to the NVIDIA driver; check /dev/nvidiactl"}
    return {"outcome": "failed", "reason": f"NVML could not be initialised: {_sentence(error)}"}


def read_card(nvml: Any, index: int, driver: str | None) -> list[Accelerator]:
    """The card and, where it is split by MIG, its instances. One that is lost stays in the list with the reason."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:  # noqa: BLE001
        why = f"NVML cannot reach this card: {_sentence(error)}"
        return [Accelerator(f"nvidia-{index}", vendor="NVIDIA", usable=False, why_not=why, driver_version=driver)]
    card = _describe(nvml, handle, index, driver)
    instances = _read_instances(nvml, handle, card)
    if not instances:
        return [card]
    why = "MIG splits this card; use one of its instances"
    return [Accelerator(**{**asdict(card), "usable": False, "why_not": why}), *instances]


def _describe(nvml: Any, handle: Any, index: int, driver: str | None) -> Accelerator:
    address = normalize_address(_text(_ask(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)))
    capability = _capability(nvml, handle)
    total, free, unified = _memory(nvml, handle)
    return Accelerator(
        id=_text(_ask(lambda: nvml.nvmlDeviceGetUUID(handle))) or (f"pci-{address}" if address else f"nvidia-{index}"),
        vendor="NVIDIA",
        name=_text(_ask(lambda: nvml.nvmlDeviceGetName(handle))),
        architecture=_architecture(nvml, handle),
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_bandwidth_bytes_per_second=None if unified else _bandwidth(nvml, handle),
        unified_memory=unified,
        compute_capability=capability,
        multiprocessors=_multiprocessors(nvml, handle, capability),
        pci_address=address,
        driver_version=driver,
        utilization_percent=_number(_ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        temperature_celsius=_number(_ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        power_watts=_scaled(_ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle)), 1e-3),
        throttle_reasons=_throttle_reasons(nvml, handle),
        pcie_generation=_ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))),
        pcie_generation_maximum=_ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
        pcie_lanes=_ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))),
        pcie_lanes_maximum=_ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))),
    )


def _ask(question: Callable[[], _T]) -> _T | None:
    """An answer, or None: any call may raise on some card (NOT_SUPPORTED, NO_PERMISSION, UNKNOWN, GPU_IS_LOST)."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - one unsupported field must not lose the card
        return None


def _memory(nvml: Any, handle: Any) -> tuple[int | None, int | None, bool | None]:
    """Total, free, and whether it is the machine's own memory: GB10, Jetson and Grace say NOT_SUPPORTED then."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.free), False
    except Exception as error:  # noqa: BLE001
        return None, None, True if type(error).__name__ == "NVMLError_NotSupported" else None


def _bandwidth(nvml: Any, handle: Any) -> float | None:
    """Bytes per second: bus width in bits / 8, memory clock in MHz, two transfers a clock (DDR, as NVML counts)."""
    width = _number(_ask(lambda: nvml.nvmlDeviceGetMemoryBusWidth(handle)))
    clock = _number(_ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)))
    return width / 8 * clock * 1e6 * 2 if width and clock else None


def _capability(nvml: Any, handle: Any) -> str | None:
    version = _ask(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    return f"{int(version[0])}.{int(version[1])}" if isinstance(version, tuple | list) and len(version) == 2 else None


def _multiprocessors(nvml: Any, handle: Any, capability: str | None) -> int | None:
    """NVML counts CUDA cores of a whole card; exact division or None."""
    cores = _number(_ask(lambda: nvml.nvmlDeviceGetNumGpuCores(handle)))
    per_unit = _CORES_PER_MULTIPROCESSOR.get(capability or "")
    return int(cores // per_unit) if cores and per_unit and cores % per_unit == 0 else None


def _architecture(nvml: Any, handle: Any) -> str | None:
    """NVML's own answer: the compute capability's major number does not tell families apart."""
    answer = _ask(lambda: nvml.nvmlDeviceGetArchitecture(handle))
    prefix = "NVML_DEVICE_ARCH_"
    names = [name for name in dir(nvml) if name.startswith(prefix) and getattr(nvml, name) == answer]
    known = [name.removeprefix(prefix) for name in names if name != f"{prefix}UNKNOWN"]
    return known[0].title() if answer is not None and known else None


def _throttle_reasons(nvml: Any, handle: Any) -> tuple[str, ...] | None:
    mask = _ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if mask is None:
        mask = _ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    if not isinstance(mask, int):
        return None
    return tuple(name for bit, name in _THROTTLE_REASONS.items() if mask & bit)


def _read_instances(nvml: Any, handle: Any, card: Accelerator) -> list[Accelerator]:
    """MIG instances; each has a UUID of its own (`MIG-…`, a string) and its own share of memory."""
    mode = _ask(lambda: nvml.nvmlDeviceGetMigMode(handle))
    if not isinstance(mode, tuple | list) or not mode or mode[0] != 1:
        return []
    count = _ask(lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0
    found = []
    for number in range(min(count, _MAX_INSTANCES)):
        instance = _ask(lambda number=number: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))  # type: ignore[misc]
        if instance is not None:
            found.append(_describe_instance(nvml, instance, card, number))
    return found


def _describe_instance(nvml: Any, instance: Any, card: Accelerator, number: int) -> Accelerator:
    total, free, _ = _memory(nvml, instance)
    own = {
        "id": _text(_ask(lambda: nvml.nvmlDeviceGetUUID(instance))) or f"{card.id}/mig-{number}",
        "name": _text(_ask(lambda: nvml.nvmlDeviceGetName(instance))) or card.name,
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "memory_bandwidth_bytes_per_second": None,
        "multiprocessors": _ask(lambda: int(nvml.nvmlDeviceGetAttributes(instance).multiprocessorCount)),
        "utilization_percent": None,
    }
    return Accelerator(**{**asdict(card), **own})


def _cuda_version(nvml: Any) -> str | None:
    """12040 -> 12.4"""
    number = _number(_ask(lambda: nvml.nvmlSystemGetCudaDriverVersion()))
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number else None


def _text(value: Any) -> str | None:
    """Older releases answer in bytes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return clean(value) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return parse_int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _scaled(value: Any, factor: float) -> float | None:
    number = _number(value)
    return None if number is None else number * factor


def _sentence(error: Exception) -> str:
    return clean(str(error)) or type(error).__name__


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
