"""A stand-in for nvidia-ml-py, at the library's boundary: same names, no driver. FAKE_NVML names what it plays.

healthy, two, lost, refused, unified, mig, empty-mig: machines. hang, stubborn, crash, noisy, unimportable: ways to
misbehave.
`FAKE_NVML_PID`: a file to add this process's number to, so that a test can see that it ended.
`FAKE_NVML_FAULT`: `hang CALL CARD` or `crash CALL CARD`: that call, about that card only, or about any.
`FAKE_NVML_COMPUTE_MODE`: nvmlComputeMode_t, 0 where it is not set.
`FAKE_NVML_STATE`: a file that is read at every call and tells what is so now: words `count=N`, `lost=CARD`, `crash`,
`utilization=N`.
"""

import ctypes
import functools
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PLAYS = os.environ.get("FAKE_NVML", "healthy")
GIB = 1 << 30

NVML_DEVICE_ARCH_AMPERE = 7
NVML_DEVICE_ARCH_BLACKWELL = 10
NVML_DEVICE_ARCH_UNKNOWN = 0xFFFFFFFF


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_InvalidArgument(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_LibRmVersionMismatch(NVMLError):
    pass


class c_nvmlGpuFabricInfo_t(ctypes.Structure):
    _fields_ = [("status", ctypes.c_uint), ("state", ctypes.c_ubyte)]


if PLAYS == "unimportable":
    raise RuntimeError("a broken package")


def state() -> dict[str, str]:
    path = os.environ.get("FAKE_NVML_STATE")
    words = Path(path).read_text().split() if path else []
    return dict(word.partition("=")[::2] for word in words)


def nvmlInit() -> None:
    if path := os.environ.get("FAKE_NVML_PID"):
        with Path(path).open("a") as file:
            file.write(f"{os.getpid()}\n")
    if PLAYS == "crash":
        os.abort()
    if PLAYS == "mismatch":
        raise NVMLError_LibRmVersionMismatch("RM has detected an NVML/RM version mismatch.")
    if PLAYS == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Event().wait()
    if PLAYS == "noisy":
        os.write(1, b'a library that prints\n{"card": 1}\n[]\n')


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return "580.65.06"


def nvmlSystemGetNVMLVersion() -> bytes:
    return b"13.580.65.06"


def nvmlSystemGetCudaDriverVersion() -> int:
    return 13000


def nvmlDeviceGetCount() -> int:
    told = state().get("count")
    return int(told) if told else 2 if PLAYS in ("two", "lost", "refused", "hang") else 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if index == 1 and PLAYS == "lost":
        raise NVMLError_GpuIsLost("GPU is lost")
    if index == 1 and PLAYS == "refused":
        raise NVMLError_NoPermission("Insufficient Permissions")
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


def nvmlDeviceGetPersistenceMode(handle: Any) -> int:
    return 1


def nvmlDeviceGetVirtualizationMode(handle: Any) -> int:
    return 1


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
    return {0: 2100, 2: 9501}[clock]


def nvmlDeviceGetClockInfo(handle: Any, clock: int) -> int:
    return {0: 210, 2: 405}[clock]


def nvmlDeviceGetUtilizationRates(handle: Any) -> SimpleNamespace:
    if isinstance(handle, tuple):
        raise NVMLError_NotSupported("Not Supported")
    return SimpleNamespace(gpu=int(state().get("utilization", 7)), memory=1)


def nvmlDeviceGetTemperature(handle: Any, sensor: int) -> int:
    return 41


def nvmlDeviceGetPowerUsage(handle: Any) -> int:
    return 30100


def nvmlDeviceGetEnforcedPowerLimit(handle: Any) -> int:
    return 350000


def nvmlDeviceGetPowerManagementDefaultLimit(handle: Any) -> int:
    return 360000


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


def nvmlDeviceGetNvLinkState(handle: Any, link: int) -> int:
    if link > 3:
        raise NVMLError_InvalidArgument("Invalid Argument")
    return int(link < 3)


def nvmlDeviceGetFieldValues(handle: Any, fields: list[int]) -> list[SimpleNamespace]:
    return [SimpleNamespace(fieldId=fields[0], nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=14062))]


def nvmlDeviceGetGpuFabricInfo(handle: Any, pointer: Any) -> int:
    pointer._obj.state = 2
    return 0


def nvmlDeviceGetEccMode(handle: Any) -> list[int]:
    return [1, 1]


def nvmlDeviceGetTotalEccErrors(handle: Any, kind: int, counter: int) -> int:
    return {(0, 0): 3, (1, 0): 1, (0, 1): 40, (1, 1): 2}[kind, counter]


def nvmlDeviceGetRemappedRows(handle: Any) -> tuple[int, int, int, int]:
    return (0, 1, 1, 0)


def nvmlDeviceGetComputeRunningProcesses(handle: Any) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB), SimpleNamespace(pid=1 << 30, usedGpuMemory=None)]


def nvmlDeviceGetGraphicsRunningProcesses(handle: Any) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB)]


def nvmlDeviceGetMigMode(handle: Any) -> list[int]:
    if PLAYS not in ("mig", "empty-mig"):
        raise NVMLError_NotSupported("Not Supported")
    return [1, 1]


def nvmlDeviceGetComputeMode(handle: Any) -> int:
    return int(os.environ.get("FAKE_NVML_COMPUTE_MODE", "0"))


def nvmlDeviceGetMaxMigDeviceCount(handle: Any) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Any, index: int) -> tuple[Any, int]:
    if index > 1 or PLAYS == "empty-mig":
        raise NVMLError_NotFound("Not Found")
    return (handle, index)


def nvmlDeviceGetAttributes(handle: Any) -> SimpleNamespace:
    return SimpleNamespace(multiprocessorCount=28)


def with_faults(function: Any) -> Any:
    fault, call, card = [*os.environ.get("FAKE_NVML_FAULT", "").split(), "", "", ""][:3]

    @functools.wraps(function)
    def faulty(*arguments: Any) -> Any:
        now = state()
        if "crash" in now:
            os.kill(os.getpid(), signal.SIGSEGV)
        if arguments and function.__name__.startswith("nvmlDeviceGet") and str(arguments[0]) == now.get("lost"):
            raise NVMLError_GpuIsLost("GPU is lost")
        if function.__name__ == call and card in ("", *map(str, arguments[:1])):
            threading.Event().wait() if fault == "hang" else signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)
        return function(*arguments)

    return faulty


for name, function in list(globals().items()):
    if name.startswith("nvml"):
        globals()[name] = with_faults(function)
