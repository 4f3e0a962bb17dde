"""Questions to NVML, each guarded: what is not answered, or answered with rubbish, is None.

Any call may raise on some card (NOT_SUPPORTED, NO_PERMISSION, UNKNOWN, GPU_IS_LOST); one unsupported field must not
lose the card. Calls go by name, so that one which an older nvidia-ml-py lacks is one unanswered question too.
"""

import math
import re
from typing import Any

from probes.reading import clean, parse_int

# NVML_VALUE_NOT_AVAILABLE of nvml.h in its widths, and what they become when read as signed.
_NOT_AVAILABLE = {-1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
LOST = {
    "NVML_ERROR_GPU_IS_LOST": "the driver has lost this card: it fell off the bus or stopped; restart the machine",
    "NVML_ERROR_RESET_REQUIRED": "the driver says that this card must be reset (nvidia-smi --gpu-reset, or a restart)",
}
NO_ACCESS = "this process may not use this card: its device file is refused (NVML_ERROR_NO_PERMISSION)"


class Card:
    """One card, or one MIG instance, to be asked; remembers which error each call ended with."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.errors: dict[str, str] = {}

    def ask(self, call: str, *arguments: Any) -> Any:
        try:
            return getattr(self.nvml, call)(self.handle, *arguments)
        except Exception as error:  # noqa: BLE001 - the promise of this module
            self.errors[call] = name_error(error)
            return None

    def ask_first(self, calls: tuple[str, ...], *arguments: Any) -> Any:
        """The first answer: newer drivers take old calls away, older ones lack new ones."""
        for call in calls:
            answer = self.ask(call, *arguments)
            if answer is not None:
                return answer
        return None

    def text(self, call: str, *arguments: Any) -> str | None:
        return as_text(self.ask(call, *arguments))

    def count(self, call: str, *arguments: Any) -> int | None:
        return as_count(self.ask(call, *arguments))

    def positive(self, call: str, *arguments: Any) -> int | None:
        """For what cannot be 0 on a card that runs: a clock, a limit, a width."""
        return self.count(call, *arguments) or None

    @property
    def why_lost(self) -> str | None:
        found = [why for name, why in LOST.items() if name in self.errors.values()]
        return found[0] if found else None


def ask_library(nvml: Any, call: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, call)(*arguments)
    except Exception:  # noqa: BLE001
        return None


def name_error(error: Exception) -> str:
    """NVMLError_GpuIsLost is NVML_ERROR_GPU_IS_LOST; one without a class of its own has its number."""
    kind = type(error).__name__
    if not kind.startswith("NVMLError"):
        return kind
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.removeprefix("NVMLError").strip("_"))
    return f"NVML_ERROR_{words.upper() or getattr(error, 'value', 'UNKNOWN')}"


def explain_error(error: Exception) -> str:
    try:
        return clean(str(error)) or name_error(error)
    except Exception:  # noqa: BLE001 - the library looks its words up, which may fail in turn
        return name_error(error)


def explain_unreached(error: Exception) -> str:
    """Why a card that NVML counts has no handle. It counts all cards of the machine, also those that a batch job, a
    device cgroup or the permissions of their files keep from this process (NVIDIA's reference,
    nvmlDeviceGetCount_v2): nothing is wrong with these."""
    if name_error(error) == "NVML_ERROR_NO_PERMISSION":
        return NO_ACCESS
    return f"NVML cannot reach this card: {explain_error(error)}"


def as_text(value: Any) -> str | None:
    """Older releases answer in bytes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return clean(value) if isinstance(value, str) else None


def as_count(value: Any) -> int | None:
    """A whole number from 0 up; None for what stands for "not available"."""
    if isinstance(value, str):
        value = parse_int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value >= 0 and value not in _NOT_AVAILABLE else None


def as_flag(value: Any) -> bool | None:
    """nvmlEnableState_t."""
    count = as_count(value)
    return bool(count) if count in (0, 1) else None


def as_counts(value: Any, length: int) -> tuple[int | None, ...]:
    """The first `length` of a list of numbers; all None when it is shorter or no list."""
    if not isinstance(value, tuple | list) or len(value) < length:
        return (None,) * length
    return tuple(as_count(item) for item in value[:length])
