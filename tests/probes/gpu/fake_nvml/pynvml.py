"""A stand-in for nvidia-ml-py, at the library's boundary: same names, no driver. FAKE_NVML names what it plays.

healthy, two, lost, unified, mig: machines. hang, stubborn, crash, noisy, unimportable: ways to misbehave.
`FAKE_NVML_PID`: a file to write this process's number to, so that a test can see that it ended.
"""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PLAYS = os.environ.get("FAKE_NVML", "healthy")
GIB = 1 << 30

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_MEM = 2
NVML_DEVICE_ARCH_AMPERE = 7
NVML_DEVICE_ARCH_BLACKWELL = 10
NVML_DEVICE_ARCH_UNKNOWN = 0xFFFFFFFF


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


if PLAYS == "unimportable":
    raise RuntimeError("a broken package")


def nvmlInit() -> None:
    if path := os.environ.get("FAKE_NVML_PID"):
        Path(path).write_text(str(os.getpid()))
    if PLAYS == "crash":
        os.abort()
    if PLAYS == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Event().wait()
    if PLAYS == "noisy":
        os.write(1, b'a library that prints\n{"card": 1}\n[]\n')


def nvmlSystemGetDriverVersion() -> str:
    return "580.65.06"


def nvmlSystemGetCudaDriverVersion() -> int:
    return 13000


def nvmlDeviceGetCount() -> int:
    return 2 if PLAYS in ("two", "lost", "hang") else 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if index == 1 and PLAYS == "lost":
        raise NVMLError_GpuIsLost("GPU is lost")
    if index == 1 and PLAYS == "hang":
        threading.Event().wait()
    return index


def nvmlDeviceGetUUID(handle: Any) -> str:
    return (
        f"MIG-00000000-0000-0000-0000-00000000000{handle[1]}" if isinstance(handle, tuple) else f"GPU-0000000{handle}"
    )


def nvmlDeviceGetName(handle: Any) -> bytes | str:
    return b"NVIDIA GB10" if PLAYS == "unified" else "NVIDIA GeForce RTX 3080 Ti"


def nvmlDeviceGetPciInfo(handle: Any) -> SimpleNamespace:
    return SimpleNamespace(busId=f"00000000:0{handle + 1}:00.0".encode())


def nvmlDeviceGetMemoryInfo(handle: Any) -> SimpleNamespace:
    if PLAYS == "unified":
        raise NVMLError_NotSupported("Not Supported")
    return SimpleNamespace(total=6 * GIB if isinstance(handle, tuple) else 12 * GIB, free=5 * GIB, used=GIB)


def nvmlDeviceGetCudaComputeCapability(handle: Any) -> tuple[int, int]:
    return (12, 1) if PLAYS == "unified" else (8, 6)


def nvmlDeviceGetArchitecture(handle: Any) -> int:
    return NVML_DEVICE_ARCH_BLACKWELL if PLAYS == "unified" else NVML_DEVICE_ARCH_AMPERE


def nvmlDeviceGetNumGpuCores(handle: Any) -> int:
    return 10240


def nvmlDeviceGetMemoryBusWidth(handle: Any) -> int:
    return 384


def nvmlDeviceGetMaxClockInfo(handle: Any, clock: int) -> int:
    return 9501


def nvmlDeviceGetUtilizationRates(handle: Any) -> SimpleNamespace:
    return SimpleNamespace(gpu=7, memory=1)


def nvmlDeviceGetTemperature(handle: Any, sensor: int) -> int:
    return 41


def nvmlDeviceGetPowerUsage(handle: Any) -> int:
    return 30100


def nvmlDeviceGetCurrentClocksEventReasons(handle: Any) -> int:
    return 0x5


def nvmlDeviceGetCurrPcieLinkGeneration(handle: Any) -> int:
    return 1


def nvmlDeviceGetMaxPcieLinkGeneration(handle: Any) -> int:
    return 4


def nvmlDeviceGetCurrPcieLinkWidth(handle: Any) -> int:
    return 16


def nvmlDeviceGetMaxPcieLinkWidth(handle: Any) -> int:
    return 16


def nvmlDeviceGetMigMode(handle: Any) -> tuple[int, int]:
    if PLAYS != "mig":
        raise NVMLError_NotSupported("Not Supported")
    return (1, 1)


def nvmlDeviceGetMaxMigDeviceCount(handle: Any) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Any, index: int) -> tuple[Any, int]:
    if index > 1:
        raise NVMLError("Not Found")
    return (handle, index)


def nvmlDeviceGetAttributes(handle: Any) -> SimpleNamespace:
    return SimpleNamespace(multiprocessorCount=28)
