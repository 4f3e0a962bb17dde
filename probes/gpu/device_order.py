"""In which order torch counts NVIDIA's cards. CUDA puts the fastest first unless it is told otherwise, and guesses it.

By their places on the bus an order stays as it is while the cards do, and while as many are shown (else:
probes.gpu.renamed); profiles and measurements bear these names.
"""

from collections.abc import Mapping, Sequence

from probes.hardware import Accelerator

BY_BUS: Mapping[str, str] = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # NVML's order, too


def order_matters(cards: Sequence[Accelerator]) -> bool:
    """Whether torch counts a card, and CUDA's own order may be another one: some of those that CUDA has are unlike.

    Hidden ones are among them: where CUDA_VISIBLE_DEVICES holds numbers, they are numbers in CUDA's order.
    """
    own = [card for card in cards if _is_nvidias(card)]
    split = {card.parent_id for card in own}
    names = {card.name for card in own if card.id not in split and (_is_counted(card) or _may_be_hidden(card))}
    return any(map(_is_counted, own)) and len(names) > 1


def _is_counted(card: Accelerator) -> bool:
    return (card.torch_device or "").startswith("cuda")


def _may_be_hidden(card: Accelerator) -> bool:
    """A card that another driver has, as one set aside for a virtual machine, is in none of CUDA's orders."""
    return card.parent_id is None and card.kernel_driver in (None, "nvidia")


def _is_nvidias(card: Accelerator) -> bool:
    """A profile's cards have no vendor; only NVIDIA's have a compute capability."""
    return card.vendor == "NVIDIA" or (not card.vendor and card.compute_capability is not None)
