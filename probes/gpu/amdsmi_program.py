"""The program that asks amdsmi: `python -m probes.gpu.amdsmi_program LIFE` prints one JSON object a card.

The only module that imports amdsmi. Each question is guarded: one that is not answered is left out.
"""

import sys
from collections.abc import Callable
from typing import Any

from probes.gpu.amdsmi import FOLDER
from probes.gpu.child_process import open_channel

# Function -> the fields of its answer that are wanted (AMD SMI Python API reference).
_QUESTIONS = {
    "amdsmi_get_gpu_asic_info": ("market_name", "num_compute_units", "target_graphics_version"),
    "amdsmi_get_gpu_driver_info": ("driver_version",),
    "amdsmi_get_gpu_vram_info": ("vram_size", "vram_bit_width"),
}
_MAX_CARDS = 64


def main(life_seconds: float) -> None:
    emit = open_channel(life_seconds)
    sys.path.append(FOLDER)
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        handles = list(amdsmi.amdsmi_get_processor_handles())
    except Exception as error:  # noqa: BLE001 - a broken ROCm must cost no more than this process
        emit({"error": f"{type(error).__name__}: {error}"})
        return
    for handle in handles[:_MAX_CARDS]:
        emit({"card": read_card(amdsmi, handle)})


def read_card(amdsmi: Any, handle: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"bdf": _ask(lambda: str(amdsmi.amdsmi_get_gpu_device_bdf(handle)))}
    for function, names in _QUESTIONS.items():
        answer = _ask(lambda function=function: getattr(amdsmi, function)(handle))  # type: ignore[misc]
        if isinstance(answer, dict):
            row |= {name: answer[name] for name in names if isinstance(answer.get(name), str | int)}
    return row


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:  # noqa: BLE001 - amdsmi raises on each card and question that it does not support
        return None


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
