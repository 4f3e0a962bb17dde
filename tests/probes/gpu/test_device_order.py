"""Whether the same `cuda:N` may be two cards, and that everybody here counts by the bus."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.lab.child import child_environment
from probes.gpu import cuda
from probes.gpu.cuda import CudaReading, read_cuda
from probes.gpu.device_order import BY_BUS, order_matters
from probes.hardware import Accelerator, Outcome


def card(name: str | None, device: str | None = "cuda:0", vendor: str = "NVIDIA", **facts: object) -> Accelerator:
    return Accelerator(f"GPU-{name}-{device}", vendor, name, torch_device=device, **facts)  # type: ignore[arg-type]


PART = {"parent_id": "GPU-H100-None"}


@pytest.mark.parametrize(
    ("cards", "matters"),
    [
        ((), False),
        ((card("T400"),), False),
        ((card("H100"), card("H100", "cuda:1")), False),
        ((card("T400"), card("RTX 4090", "cuda:1")), True),
        ((card("GT 710", usable=False), card("RTX 4090", "cuda:1")), True),  # torch counts it all the same
        ((card("T400", None), card("RTX 4090")), True),  # hidden, perhaps by its number
        ((card("T400", None), card("RTX 4090", None)), False),
        ((card("T400", None, kernel_driver="vfio-pci"), card("RTX 4090")), False),
        ((card("H100", None), card("H100 MIG 1g", **PART), card("H100 MIG 2g", None, **PART)), False),
        ((card("MI300X", vendor="AMD"), card("W7900", "cuda:1", "AMD")), False),
        (
            (card("T400", vendor="", compute_capability="7.5"), card("4090", "cuda:1", "", compute_capability="8.9")),
            True,
        ),
        ((card("MI300X", vendor=""), card("W7900", "cuda:1", "")), False),
    ],
)
def test_unlike_cards_of_which_torch_counts_one_may_be_counted_in_two_orders(
    cards: tuple[Accelerator, ...], matters: bool
) -> None:
    assert order_matters(cards) is matters


def test_measuring_processes_and_the_survey_count_by_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this process was told: what is kept bears these names."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert child_environment().items() >= BY_BUS.items()
    asked: list[Mapping[str, str]] = []

    def answer(deadline_seconds: float, environment: Mapping[str, str]) -> CudaReading:
        asked.append(environment)
        return CudaReading(Outcome.OK)

    monkeypatch.setattr(cuda, "find_cuda_library", lambda environment: "/no/such/libcuda.so.1")
    monkeypatch.setattr(cuda, "parse_answer", answer)
    read_cuda(1.0)
    assert asked[0].items() >= BY_BUS.items()
