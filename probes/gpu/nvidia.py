"""NVIDIA's cards through NVML: the program that probes.gpu.nvml_process runs in a short-lived process.

    python -m probes.gpu.nvidia LIFE [CARD]          everything, once; of one card only, by its number
    python -m probes.gpu.nvidia --watch SECONDS      what changes, again and again, until standard input ends

It prints one JSON object a line: the library, the driver, then each card piece by piece, every card in a thread of its
own, so that a hang or a crash costs as little as it can. The only module that imports pynvml.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from probes.gpu.child_process import open_channel
from probes.gpu.nvml.asking import as_count, as_text, ask_library, explain_error, name_error
from probes.gpu.nvml.cards import read_card
from probes.gpu.nvml.watching import watch_cards
from probes.gpu.xid import read_xids
from probes.reading import Root

Emit = Callable[[dict[str, Any]], None]

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_MAX_CARDS = 64


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--watch"]:
        emit = open_channel(0.0)
        emit(watch(emit, float(arguments[1]), sys.stdin.buffer.read))
        return
    emit = open_channel(float(arguments[0]) if arguments else 0.0)
    emit(read_all(emit, int(arguments[1]) if len(arguments) > 1 else None))


def read_all(emit: Emit, only: int | None = None) -> dict[str, Any]:
    """The closing document: `{"done": true}` or an outcome with its reason. only: the one card to read, by number."""
    if only is None:
        emit(_describe_xids())
    nvml, refusal = start_library(emit)
    if refusal is not None:
        return refusal
    driver = as_text(ask_library(nvml, "nvmlSystemGetDriverVersion"))
    emit({"driver_version": driver, "cuda_driver_version": _read_cuda_version(nvml)})
    count = as_count(ask_library(nvml, "nvmlDeviceGetCount"))
    if count is None:
        return {"outcome": "failed", "reason": "NVML does not say how many cards there are (try: nvidia-smi)"}
    emit({"count": count})
    _read_cards(nvml, range(min(count, _MAX_CARDS)) if only is None else [only], driver, emit)
    return {"done": True}


def watch(emit: Emit, interval_seconds: float, wait_for_end: Callable[[], Any]) -> dict[str, Any]:
    """Tells what changes until `wait_for_end` returns or NVML cannot go on; the closing document."""
    nvml, refusal = start_library(emit)
    return refusal or watch_cards(nvml, emit, interval_seconds, wait_for_end, lambda: start_library(emit)[1])


def start_library(emit: Emit) -> tuple[Any, dict[str, Any] | None]:
    """pynvml, and None or the closing document of a library that does not start."""
    try:
        import pynvml
    except Exception as error:  # noqa: BLE001 - a broken package must cost no more than this probe
        why = f"nvidia-ml-py cannot be imported ({type(error).__name__}); reinstall it"
        return None, {"outcome": "failed", "reason": why}
    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001
        emit(_describe_library(pynvml, name_error(error)))
        return None, _explain_start(error)
    emit(_describe_library(pynvml, None))
    return pynvml, None


def _read_cards(nvml: Any, numbers: Any, driver: str | None, emit: Emit) -> None:
    lock = threading.Lock()

    def tell(key: str, facts: dict[str, Any]) -> None:
        with lock:
            emit({"key": key, "facts": facts})

    def read(number: int) -> None:
        try:
            read_card(nvml, number, driver, tell)
        except Exception as error:  # noqa: BLE001 - what one card answers must not silence the others
            tell(str(number), {"why_not": f"this card could not be read: {explain_error(error)}"})
        with lock:
            emit({"read": str(number)})

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _describe_library(nvml: Any, error: str | None) -> dict[str, Any]:
    """The library tells its version even when it does not fit the kernel module."""
    if error == "NVML_ERROR_LIBRARY_NOT_FOUND":
        return {"library_error": error}
    version = parse_library_version(as_text(ask_library(nvml, "nvmlSystemGetNVMLVersion")))
    return {"library": _LIBRARY, "library_version": version, "library_error": error}


def parse_library_version(text: str | None) -> str | None:
    """NVML puts CUDA's major version before the driver's: `13.580.65.06` is the library of driver 580.65.06."""
    major, dot, rest = (text or "").partition(".")
    return rest if dot and major.isdigit() and len(major) <= 2 else text


def _explain_start(error: Exception) -> dict[str, Any]:
    name = name_error(error)
    if name == "NVML_ERROR_LIBRARY_NOT_FOUND":
        return {"outcome": "absent", "reason": "libnvidia-ml is not installed: there is no NVIDIA driver here"}
    if name == "NVML_ERROR_DRIVER_NOT_LOADED":
        return {"outcome": "absent", "reason": "the NVIDIA kernel module is not loaded (try: modprobe nvidia)"}
    if name == "NVML_ERROR_NO_PERMISSION":
        return {"outcome": "denied", "reason": "this user may not talk to the NVIDIA driver; check /dev/nvidiactl"}
    return {"outcome": "failed", "reason": f"NVML could not be initialised: {explain_error(error)}"}


def _describe_xids() -> dict[str, Any]:
    try:
        xids = read_xids(Root())
    except Exception:  # noqa: BLE001 - the log is beside the point of this program
        xids = None
    if xids is None:
        return {"xids": None}
    return {"xids": {address: [asdict(xid) for xid in found] for address, found in xids.items()}}


def _read_cuda_version(nvml: Any) -> str | None:
    """12040 -> 12.4"""
    number = as_count(ask_library(nvml, "nvmlSystemGetCudaDriverVersion"))
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


if __name__ == "__main__":
    main(sys.argv[1:])
