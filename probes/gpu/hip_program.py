"""The program that asks HIP: `python -m probes.gpu.hip_program LIFE` prints one JSON object a line.

Functions are those of the HIP runtime API; none of them takes memory of a card.
"""

import ctypes
import os
import sys
from typing import Any

from probes.gpu.child_process import open_channel
from probes.gpu.cuda import MAX_DEVICES
from probes.gpu.hip import find_hip_library

_NO_DEVICE = 100  # hipErrorNoDevice


def main(life_seconds: float) -> None:
    emit = open_channel(life_seconds)
    try:
        library: Any = ctypes.CDLL(find_hip_library(os.environ) or "libamdhip64.so")
    except OSError as error:
        emit({"outcome": "failed", "reason": f"libamdhip64 is here and the loader cannot load it: {error}"})
        return
    emit({"driver_version": None})
    count = ctypes.c_int(0)
    code = library.hipInit(ctypes.c_uint(0)) or library.hipGetDeviceCount(ctypes.byref(count))
    if code != 0:
        emit(_explain_error(library, code))
        return
    for index in range(min(count.value, MAX_DEVICES)):
        emit({"device": {"pci_address": _read_address(library, index)}})
    emit({"done": True})


def _read_address(library: Any, index: int) -> str | None:
    buffer = ctypes.create_string_buffer(64)
    code = library.hipDeviceGetPCIBusId(buffer, ctypes.c_int(len(buffer)), ctypes.c_int(index))
    return buffer.value.decode("ascii", "replace") if code == 0 else None


def _explain_error(library: Any, code: int) -> dict[str, Any]:
    library.hipGetErrorName.restype = ctypes.c_char_p
    name = (library.hipGetErrorName(ctypes.c_int(code)) or b"").decode("ascii", "replace") or f"hipError {code}"
    if code == _NO_DEVICE:
        return {"outcome": "absent", "error": name, "reason": f"HIP shows no device to this process ({name})"}
    return {"outcome": "failed", "error": name, "reason": f"HIP could not be initialised: {name}"}


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
