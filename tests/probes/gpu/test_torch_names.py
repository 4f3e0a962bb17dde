from dataclasses import replace

import pytest

from probes.gpu.cuda import CudaDevice, CudaReading
from probes.gpu.torch_names import with_cuda_facts
from probes.hardware import Accelerator, Outcome, Torch

BUILT = Torch("2.13.0+cu130", "13.0")
SLOW = Accelerator("GPU-aa", vendor="NVIDIA", pci_address="0000:01:00.0")
FAST = Accelerator("GPU-bb", vendor="NVIDIA", pci_address="0000:02:00.0")
READING = CudaReading(
    Outcome.OK, devices=(CudaDevice("bb"), CudaDevice(None, "0000:01:00.0", compute_capability="7.5"))
)


def name(*cards: Accelerator, cuda: CudaReading = READING, torch: Torch | None = BUILT) -> list[str | None]:
    return [card.torch_device for card in with_cuda_facts(cards, cuda, torch)]


def test_cudas_order_counts_and_not_the_buss() -> None:
    assert name(SLOW, FAST) == ["cuda:1", "cuda:0"]
    assert name(FAST, SLOW) == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("torch", [None, Torch("2.13.0+cpu", cuda_available=False), Torch("2.13", hip_version="6.4")])
def test_a_torch_without_cuda_has_no_name_for_it(torch: Torch | None) -> None:
    assert name(SLOW, FAST, torch=torch) == [None, None]


def test_what_no_driver_told_comes_from_cuda() -> None:
    [card, _] = with_cuda_facts((SLOW, FAST), READING, BUILT)
    assert card.compute_capability == "7.5"
    [card, _] = with_cuda_facts((replace(SLOW, compute_capability="8.6"), FAST), READING, BUILT)
    assert card.compute_capability == "8.6"


def test_a_card_that_cuda_does_not_show_is_hidden() -> None:
    [_, hidden] = with_cuda_facts((FAST, SLOW), CudaReading(Outcome.OK, devices=(CudaDevice("bb"),)), BUILT)
    assert (hidden.usable, hidden.torch_device) == (False, None)
    assert "CUDA_VISIBLE_DEVICES" in (hidden.why_not or "")


def test_a_mig_instance_beside_the_one_that_cuda_shows_says_so() -> None:
    shown, other = (Accelerator(f"MIG-{n}", vendor="NVIDIA", pci_address="0000:01:00.0") for n in ("aa", "bb"))
    cards = with_cuda_facts((shown, other), CudaReading(Outcome.OK, devices=(CudaDevice("aa", "0000:01:00.0"),)), BUILT)
    assert [card.torch_device for card in cards] == ["cuda:0", None]
    assert "one MIG instance at a time" in (cards[1].why_not or "")


def test_a_cuda_that_does_not_start_is_every_cards_reason() -> None:
    broken = CudaReading(
        Outcome.FAILED, "CUDA could not be initialised: CUDA_ERROR_SYSTEM_NOT_READY", "CUDA_ERROR_SYSTEM_NOT_READY"
    )
    cards = with_cuda_facts((SLOW, replace(FAST, usable=False, why_not="it is lost")), broken, BUILT)
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in (cards[0].why_not or "")
    assert cards[1].why_not == "it is lost", "the first broken link is the reason"


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.ABSENT, Outcome.UNSUPPORTED, Outcome.FAILED])
def test_a_cuda_that_said_nothing_proves_nothing(outcome: Outcome) -> None:
    assert with_cuda_facts((SLOW,), CudaReading(outcome), BUILT) == (SLOW,)


def test_another_vendors_card_is_left_alone() -> None:
    radeon = Accelerator("GPU-cc", vendor="AMD", pci_address="0000:09:00.0")
    assert with_cuda_facts((radeon, SLOW, FAST), READING, BUILT)[0] == radeon


def test_a_device_that_only_cuda_knows_is_listed() -> None:
    """A Jetson: no PCI bus to see it on, and older ones have no NVML."""
    orin = CudaDevice("cc", "0000:00:00.0", "Orin", "8.7", 16, integrated=True)
    [card] = with_cuda_facts((), CudaReading(Outcome.OK, devices=(orin,)), BUILT)
    assert (card.id, card.name, card.torch_device, card.unified_memory) == ("GPU-cc", "Orin", "cuda:0", True)
