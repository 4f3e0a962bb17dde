import pytest

from probes.gpu.identity import is_same_card
from probes.hardware import Accelerator

UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER = "11111111-2222-3333-4444-555555555555"
ADDRESS = "0000:2d:00.0"
NVIDIA = Accelerator(f"GPU-{UUID}", vendor="NVIDIA", pci_address=ADDRESS)
MIG = Accelerator(f"MIG-{UUID}", vendor="NVIDIA", pci_address=ADDRESS)
ON_BUS = Accelerator(f"pci-{ADDRESS}", vendor="NVIDIA", pci_address=ADDRESS)
AMD = Accelerator("GPU-88aed36b1f0c2e47", vendor="AMD", pci_address=ADDRESS)
ARC = Accelerator(f"pci-{ADDRESS}", vendor="Intel", pci_address=ADDRESS)


@pytest.mark.parametrize(
    ("card", "uuid", "address", "same"),
    [
        (NVIDIA, UUID, None, True),
        (NVIDIA, f"GPU-{UUID.upper()}", None, True),
        (NVIDIA, None, ADDRESS, True),
        (NVIDIA, OTHER, ADDRESS, False),  # a MIG instance of it: its address, not its UUID
        (NVIDIA, OTHER, None, False),
        (NVIDIA, None, "0000:2e:00.0", False),
        (NVIDIA, None, None, False),
        (MIG, f"GPU-{UUID}", ADDRESS, True),  # torch writes GPU- in front of every UUID
        (MIG, OTHER, ADDRESS, False),
        (MIG, None, ADDRESS, False),
        (ON_BUS, OTHER, ADDRESS, True),
        (AMD, "GPU-38386165-6433-3662-3166-306332653437", None, True),  # the text 88aed36b1f0c2e47, byte by byte
        (AMD, "GPU-38386165-6433-3662-3166-306332653438", None, False),
        (AMD, None, ADDRESS, True),
        (ARC, "GPU-8680a056-0800-0000-2d00-000000000000", None, True),
        (ARC, "GPU-8680a056-0800-0000-0300-000000000000", None, False),
        (ARC, "GPU-de10a056-0800-0000-2d00-000000000000", None, False),
        (ARC, "rubbish", None, False),
        (Accelerator("nvidia-1", vendor="NVIDIA"), None, None, False),
    ],
)
def test_a_device_is_a_card_by_uuid_or_by_place(
    card: Accelerator, uuid: str | None, address: str | None, same: bool
) -> None:
    assert is_same_card(card, uuid, address) is same
