"""Versions of Python, torch and the NVIDIA driver, without importing torch.

torch writes its versions into torch/version.py; that text is read, never run. Whether a device works can only be
learnt by importing torch, which the micro-training does in a process of its own: its `ready` event is merged in by
probes.torch_facts. Until then `cuda_available` is None, except for a build without CUDA, where it is False.
"""

import platform
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from probes.hardware import Outcome, Software, Torch
from probes.reading import Root, Unreadable, clean

_CUDNN_PACKAGES = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu11")
_MAX_VERSION_FILE_BYTES = 64 * 1024


def read_software(root: Root) -> Software:
    """Raises Unreadable for a captured machine: /proc and /sys tell of no Python, and this host's is another's."""
    driver = read_nvidia_driver(root)
    if not root.is_host:
        if driver is None:
            raise Unreadable(Outcome.UNSUPPORTED, "a captured machine does not tell which software it had")
        return Software(nvidia_driver=driver)
    return Software(python=platform.python_version(), torch=read_torch(), nvidia_driver=driver)


def explain_software(software: Software) -> str | None:
    """Why something is not known, in a sentence; None when nothing is missing."""
    if software.torch is None:
        return "torch is not installed" if software.python else None
    if software.torch.cuda_available is None:
        return "whether torch's device works is learnt when the micro-training first starts"
    return None


def read_torch() -> Torch | None:
    """None when torch is not installed."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_VERSION_FILE_BYTES)
    except OSError:
        text = ""
    return parse_torch_version(text, _read_package, _read_cudnn)


def parse_torch_version(
    text: str, read_package: Callable[[str], str | None], read_cudnn: Callable[[], str | None]
) -> Torch:
    """torch/version.py's assignments: `__version__ = '2.13.0+cpu'`, `cuda: Optional[str] = None`."""
    found = clean(_find_assignment(text, "__version__")) or read_package("torch")
    cuda, hip, xpu = (clean(_find_assignment(text, name)) for name in ("cuda", "hip", "xpu"))
    tells = re.search(r"^cuda\s*[:=]", text, re.MULTILINE) is not None
    known_without = tells and cuda is None and hip is None
    return Torch(
        version=found,
        cuda_version=cuda,
        hip_version=hip,
        xpu_version=xpu,
        cudnn_version=read_cudnn() if cuda else None,
        cuda_available=False if known_without else None,
        device_count=0 if known_without else None,
    )


def _find_assignment(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}(?:\s*:[^=\n]*)?\s*=\s*['\"]([^'\"\n]*)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


def _read_cudnn() -> str | None:
    """cuDNN as pip installed it beside torch; one that is linked in or the system's is told by torch alone."""
    return next((found for name in _CUDNN_PACKAGES if (found := _read_package(name))), None)


def _read_package(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # takes 15 ms, and is seldom needed

    try:
        return version(name)
    except (PackageNotFoundError, OSError, ValueError):
        return None


def read_nvidia_driver(root: Root) -> str | None:
    """The kernel module's version, without NVML."""
    if told := clean(root.read("/sys/module/nvidia/version")):
        return told
    text = root.read("/proc/driver/nvidia/version") or ""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else None
