from probes.gpu.merge import merge_accelerators
from probes.hardware import Accelerator

ON_BUS = Accelerator("pci-0000:01:00.0", vendor="NVIDIA", pci_address="0000:01:00.0", pcie_generation=4)
OTHER = Accelerator("pci-0000:02:00.0", vendor="NVIDIA", pci_address="0000:02:00.0")
TOLD = Accelerator("GPU-1", vendor="NVIDIA", name="A card", pci_address="0000:01:00.0")
LOST = Accelerator("nvidia-1", vendor="NVIDIA", usable=False, why_not="it is lost")


def test_one_card_known_twice_is_listed_once_with_what_both_know() -> None:
    [card] = merge_accelerators([ON_BUS], [TOLD])
    assert (card.id, card.name, card.pcie_generation) == ("GPU-1", "A card", 4)


def test_cards_that_only_one_side_knows_are_kept() -> None:
    assert [card.id for card in merge_accelerators([OTHER], [TOLD])] == ["GPU-1", "pci-0000:02:00.0"]


def test_a_lost_card_is_the_one_left_on_the_bus() -> None:
    cards = merge_accelerators([ON_BUS, OTHER], [TOLD, LOST])
    assert [(card.id, card.why_not) for card in cards] == [("GPU-1", None), ("pci-0000:02:00.0", "it is lost")]


def test_a_lost_card_without_a_match_stands_for_itself() -> None:
    assert [card.id for card in merge_accelerators([], [LOST])] == ["nvidia-1"]


def test_instances_of_one_card_share_its_address() -> None:
    instances = [Accelerator(f"MIG-{n}", vendor="NVIDIA", pci_address="0000:01:00.0") for n in range(2)]
    assert len(merge_accelerators([ON_BUS], [TOLD, *instances])) == 3
