"""In which order torch counts NVIDIA's cards. CUDA puts the fastest first unless it is told otherwise, and guesses it.

By their places on the bus an order stays as it is while the cards do; profiles and measurements bear these names.
"""

from collections.abc import Mapping, Sequence

from probes.hardware import Accelerator

BY_BUS: Mapping[str, str] = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # NVML's order, too


def order_matters(cards: Sequence[Accelerator]) -> bool:
    """Whether CUDA's own order may be another one: of the cards that torch counts, usable or not, some are unlike."""
    counted = [card for card in cards if _is_nvidias(card) and (card.torch_device or "").startswith("cuda")]
    return len({card.name for card in counted}) > 1


def _is_nvidias(card: Accelerator) -> bool:
    """A profile's cards have no vendor; only NVIDIA's have a compute capability."""
    return card.vendor == "NVIDIA" or (not card.vendor and card.compute_capability is not None)
