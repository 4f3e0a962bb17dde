"""What HIP itself shows to this process, in its own order, without torch: a ROCm torch's `cuda:0` is the first.

Like probes.gpu.cuda, whose readings it shares: a process of its own asks (probes.gpu.hip_program), and what it said
is kept for a while. The library is the one that torch brings, else ROCm's.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from probes.gpu.child_process import ask_child, find_library
from probes.gpu.cuda import CudaReading, identify, to_reading
from probes.gpu.kept import Kept
from probes.hardware import Outcome

LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")
_ROCM_FOLDERS = ("/opt/rocm/lib", "/opt/rocm/lib64")
_SIGNS = ("/dev/kfd", "/sys/module/amdgpu")
_VARIABLES = ("HIP_", "ROCR_", "HSA_", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH")

_kept: Kept[CudaReading] = Kept()


def read_hip(deadline_seconds: float, environment: Mapping[str, str] | None = None) -> CudaReading:
    """`absent` at once where there is no HIP library."""
    environment = dict(os.environ) if environment is None else environment
    library = find_hip_library(environment)
    if library is None:
        return CudaReading(Outcome.ABSENT, "no HIP: neither torch nor ROCm brings libamdhip64 here")
    return _kept.get(
        make_key(library, environment),
        lambda: ask_hip(deadline_seconds, environment),
        lambda reading: bool(reading.devices),
    )


def ask_hip(deadline_seconds: float, environment: Mapping[str, str]) -> CudaReading:
    answer = ask_child("probes.gpu.hip_program", "HIP", deadline_seconds, environment)
    return to_reading(answer.documents, answer.ending, subject="HIP", library=LIBRARIES[0], try_this="rocminfo")


def find_hip_library(environment: Mapping[str, str]) -> str | None:
    """torch's own first: it is the one whose devices torch shows."""
    spec = find_spec("torch")
    folder = os.path.join(os.path.dirname(spec.origin), "lib") if spec and spec.origin else None  # noqa: PTH118, PTH120
    if folder is not None:
        own = find_library(LIBRARIES, {"LD_LIBRARY_PATH": folder})
        if own is not None and own.startswith(folder):
            return own
    return find_library(LIBRARIES, environment, _ROCM_FOLDERS)


def make_key(library: str, environment: Mapping[str, str]) -> tuple[Any, ...]:
    try:
        nodes = sorted(os.listdir("/dev/dri"))  # noqa: PTH208
    except OSError:
        nodes = []
    places = (library, *_SIGNS, *(f"/dev/dri/{name}" for name in nodes))
    variables = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(_VARIABLES)))
    return (tuple((place, identify(place)) for place in places), variables)
